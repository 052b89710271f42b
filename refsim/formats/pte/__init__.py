"""The .pte container (``ET12``): its program, read and checked."""
