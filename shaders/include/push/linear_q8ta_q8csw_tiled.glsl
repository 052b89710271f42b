// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/linear_q8ta_q8csw_tiled.py; do not edit.
const int X = 0;  // tensor
const int OUT = 8;  // tensor
const int K4 = 16;
const int IN_ZP = 17;
const int IN_SCALE = 18;  // float
const int FLAGS = 19;
const int HAS_BIAS = 512;  // in FLAGS
layout(constant_id = 6) const uint X_HASH = 0;
layout(constant_id = 7) const uint OUT_HASH = 0;
