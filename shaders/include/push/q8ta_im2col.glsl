// Written by python -m refsim_gpu.build_push from PUSH and SPEC of refsim/ops/q8ta_im2col.py; do not edit.
const int X = 0;  // tensor
const int OUT = 8;  // tensor
const int KERNEL_H = 16;
const int KERNEL_W = 17;
const int STRIDE_H = 18;
const int STRIDE_W = 19;
const int PADDING_H = 20;
const int PADDING_W = 21;
const int DILATION_H = 22;
const int DILATION_W = 23;
const int IC4 = 24;
const int OC4 = 25;
const int IN_ZP = 26;
layout(constant_id = 6) const uint X_HASH = 0;
layout(constant_id = 7) const uint OUT_HASH = 0;
