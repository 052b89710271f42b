// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/q8ta_add.py; do not edit.
const int OUT = 0;  // tensor
const int A = 8;  // tensor
const int B = 16;  // tensor
const int A_SCALE = 24;  // float
const int A_ZP = 25;
const int B_SCALE = 26;  // float
const int B_ZP = 27;
const int INV = 28;  // float
const int ZP = 29;
const int ALPHA = 30;  // float
const int FLAGS = 31;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint A_HASH = 0;
layout(constant_id = 8) const uint B_HASH = 0;
layout(constant_id = 9) const bool OUT_VECTORS = false;
layout(constant_id = 10) const bool A_VECTORS = false;
layout(constant_id = 11) const bool B_VECTORS = false;
