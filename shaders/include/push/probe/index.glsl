// Written by python -m refsim_gpu.build_push from PROBES in gpu/build_push.py; do not edit.
const int META = 0;  // tensor
const int COUNT = 8;
layout(constant_id = 6) const uint HASH = 0;
