"""Float to int8 and back."""
