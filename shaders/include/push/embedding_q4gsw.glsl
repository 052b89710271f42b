// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/embedding_q4gsw.py; do not edit.
const int OUT = 0;  // tensor
const int ROWS = 8;
const int GROUP = 9;
const int TABLE_ROWS = 10;
layout(constant_id = 6) const uint OUT_HASH = 0;
