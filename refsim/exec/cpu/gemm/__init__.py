"""Matrix products: gathered windows, packed weights, a register tile of sums."""
