"""Matrix products by tiles of a processor's matrix unit (AMX): 16 rows by 16 columns of sums, 64 bytes of K at once."""
