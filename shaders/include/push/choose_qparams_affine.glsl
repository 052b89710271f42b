// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/choose_qparams_affine.py; do not edit.
const int COUNT = 0;
const int ROWS = 1;
const int K = 2;
const int QMIN = 3;
const int QMAX = 4;
const int FLAGS = 5;
