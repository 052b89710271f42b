// Written by python -m refsim_gpu.build_push from refsim/core/push.py; do not edit.
// where a tensor's sizes and strides stand among its words
const int W = 0, H = 1, C = 2, N = 3, W_STRIDE = 4, H_STRIDE = 5, C_STRIDE = 6, N_STRIDE = 7;
const int GUARD_WORDS = 256, PLANE_ROW = 32768;
layout(push_constant) uniform Push { int push[32]; };
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
#ifndef REFSIM_LOCAL_X  // a build for one tile has these as literals
layout(constant_id = 0) const uint LOCAL_X = 1;
layout(constant_id = 1) const uint LOCAL_Y = 1;
layout(constant_id = 2) const uint LOCAL_Z = 1;
layout(constant_id = 3) const uint TILE_X = 1;
layout(constant_id = 4) const uint TILE_Y = 1;
layout(constant_id = 5) const uint TILE_Z = 1;
#endif
