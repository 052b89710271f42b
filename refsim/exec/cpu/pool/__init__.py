"""Max pooling and means over images."""
