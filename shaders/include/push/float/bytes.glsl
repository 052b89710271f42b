// Written by python -m refsim_gpu.build_push from ROWS in gpu/float_words.py; do not edit.
const int OUT = 0;  // tensor
const int X = 8;  // tensor
const int PADDING = 16;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
layout(constant_id = 8) const bool OUT_VECTORS = false;
layout(constant_id = 9) const bool X_VECTORS = false;
