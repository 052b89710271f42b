// Written by python -m refsim_gpu.build_push from PROBES in gpu/build_push.py; do not edit.
const int COUNT = 0;
const int INV = 1;  // float
const int ZP = 2;
const int SCALE = 3;  // float
