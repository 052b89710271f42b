"""What a runtime refuses in a file, or gets wrong, found without running it: rules over a description of a release."""
