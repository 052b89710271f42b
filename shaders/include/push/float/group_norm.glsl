// Written by python -m refsim_gpu.build_push from ROWS in gpu/float_words.py; do not edit.
const int OUT_N_STRIDE = 0;
const int OUT_C_STRIDE = 1;
const int OUT_H_STRIDE = 2;
const int OUT_W_STRIDE = 3;
const int X_N_STRIDE = 4;
const int X_C_STRIDE = 5;
const int X_H_STRIDE = 6;
const int X_W_STRIDE = 7;
const int WIDTH = 8;
const int HEIGHT = 9;
const int DEPTH = 10;
const int EPS = 11;  // float
layout(constant_id = 6) const uint WHAT = 0;
layout(constant_id = 7) const bool WEIGHT = false;
layout(constant_id = 8) const bool BIAS = false;
