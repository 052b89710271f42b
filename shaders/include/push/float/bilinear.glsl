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
const int COUNT = 13;
const int STEP_H = 14;  // float
const int STEP_W = 15;  // float
layout(constant_id = 6) const bool ALIGN = false;
layout(constant_id = 7) const bool CHANNELS_FIRST = false;
