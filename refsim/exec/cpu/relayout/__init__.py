"""From one layout to another: words, tiles and planes moved."""
