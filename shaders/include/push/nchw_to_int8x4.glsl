// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/nchw_to_int8x4.py; do not edit.
const int OUT = 0;  // tensor
const int X = 8;  // tensor
layout(constant_id = 6) const uint OUT_HASH = 0;
