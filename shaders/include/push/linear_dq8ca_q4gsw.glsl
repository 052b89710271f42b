// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/linear_dq8ca_q4gsw.py; do not edit.
const int M = 0;
const int OUTPUTS = 1;
const int K4 = 2;
const int GROUP4 = 3;
const int FLAGS = 4;
const int HAS_BIAS = 512;  // in FLAGS
