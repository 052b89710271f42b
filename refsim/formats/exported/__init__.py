"""Programs that torch.export made, read without torch: their operators, and the lines of code that these come from."""
