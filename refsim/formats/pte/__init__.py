"""The .pte container (``ET12``): read, checked and written."""
