// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/q8ta_pixel_shuffle.py; do not edit.
const int OUT = 0;  // tensor
const int X = 8;  // tensor
const int IN_SCALE = 16;  // float
const int IN_ZP = 17;
const int INV = 18;  // float
const int ZP = 19;
const int FLAGS = 20;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
layout(constant_id = 8) const uint MOVES_BYTES = 0;
layout(constant_id = 9) const uint R = 2;
layout(constant_id = 10) const bool OUT_VECTORS = false;
layout(constant_id = 11) const bool X_VECTORS = false;
