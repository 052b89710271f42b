// Written by python -m refsim_gpu.build_push from PROBES in gpu/build_push.py; do not edit.
const int OUT = 0;  // tensor
const int RADIX_W = 8;
const int RADIX_H = 9;
const int RADIX_C = 10;
const int RADIX_N = 11;
const int RADIX_LANES = 12;
layout(constant_id = 6) const uint OUT_HASH = 0;
