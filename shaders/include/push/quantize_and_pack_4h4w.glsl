// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/quantize_and_pack_4h4w.py; do not edit.
const int OUT = 0;  // tensor
const int X = 8;  // tensor
const int INV = 16;  // float
const int ZP = 17;
const int FLAGS = 18;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
