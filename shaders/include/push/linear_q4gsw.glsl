// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/linear_q4gsw.py; do not edit.
const int OUT = 0;  // tensor
const int K4 = 8;
const int ROWS = 9;
const int GROUP4 = 10;
const int FLAGS = 11;
const int HAS_BIAS = 512;  // in FLAGS
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const int LANES = 0;
