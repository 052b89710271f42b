"""What operators are made of: their description, calls and cases, the registry, and the pieces that families share."""
