// Written by python -m refsim_gpu.build_push from COOP in gpu/build_push.py; do not edit.
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
const int ZP = 27;
const int IN_SCALE = 28;  // float
const int INV = 29;  // float
const int FLAGS = 30;
const int RELU = 256;  // in FLAGS
const int HAS_BIAS = 512;  // in FLAGS
layout(constant_id = 6) const uint X_HASH = 0;
layout(constant_id = 7) const uint OUT_HASH = 0;
layout(constant_id = 8) const uint INTEGER_ZP = 0;
layout(constant_id = 9) const uint X_QUADS = 0;
layout(constant_id = 10) const uint SPLITS = 1;
layout(constant_id = 11) const uint PARTIAL_ROWS = 1;
layout(constant_id = 12) const uint PARTIAL_COLUMNS = 1;
