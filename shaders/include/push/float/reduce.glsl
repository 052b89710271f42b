// Written by python -m refsim_gpu.build_push from ROWS in gpu/float_words.py; do not edit.
const int SIZE_0 = 0;
const int SIZE_1 = 1;
const int SIZE_2 = 2;
const int SIZE_3 = 3;
const int SIZE_4 = 4;
const int OUT_0 = 5;
const int OUT_1 = 6;
const int OUT_2 = 7;
const int OUT_3 = 8;
const int OUT_4 = 9;
const int A_0 = 10;
const int A_1 = 11;
const int A_2 = 12;
const int A_3 = 13;
const int A_4 = 14;
const int OUT_AT = 15;
const int A_AT = 16;
const int COUNT = 17;
const int LENGTH = 18;
const int STEP = 19;
const int INNER_LENGTH = 20;
const int INNER_STEP = 21;
const int DIVISOR = 22;  // float
layout(constant_id = 6) const uint HOW = 0;
const uint IN_TURN = 0;  // of HOW
const uint DEALT = 1;  // of HOW
const uint PACKED = 2;  // of HOW
const uint ROW = 3;  // of HOW
const uint LARGEST = 4;  // of HOW
const uint LEAST = 5;  // of HOW
layout(constant_id = 7) const uint DIMS = 1;
