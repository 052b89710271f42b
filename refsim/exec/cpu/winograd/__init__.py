"""3x3 convolutions in Winograd's form, in exact integers."""
