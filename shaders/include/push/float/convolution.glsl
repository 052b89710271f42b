// Written by python -m refsim_gpu.build_push from ROWS in gpu/float_words.py; do not edit.
const int OUT_W = 0;
const int OUT_H = 1;
const int OUT_C = 2;
const int OUT_W_STRIDE = 3;
const int OUT_H_STRIDE = 4;
const int OUT_C_STRIDE = 5;
const int OUT_N_STRIDE = 6;
const int X_W = 7;
const int X_H = 8;
const int X_W_STRIDE = 9;
const int X_H_STRIDE = 10;
const int X_C_STRIDE = 11;
const int X_N_STRIDE = 12;
const int WEIGHT_W_STRIDE = 13;
const int WEIGHT_H_STRIDE = 14;
const int WEIGHT_C_STRIDE = 15;
const int WEIGHT_N_STRIDE = 16;
const int KERNEL_H = 17;
const int KERNEL_W = 18;
const int STRIDE_H = 19;
const int STRIDE_W = 20;
const int PAD_H = 21;
const int PAD_W = 22;
const int DILATION_H = 23;
const int DILATION_W = 24;
const int COUNT = 25;
const int GROUP_IN = 26;
const int GROUP_OUT = 27;
const int BLOCK = 28;
const int LOW = 29;  // float
const int HIGH = 30;  // float
layout(constant_id = 6) const bool BIAS = false;
layout(constant_id = 7) const bool BIAS_FIRST = false;
layout(constant_id = 8) const bool CLAMP = false;
layout(constant_id = 9) const bool CHANNELS_FIRST = false;
