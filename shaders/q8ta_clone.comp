#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tile.glsl"

// Push words as in refsim/ops/q8ta_clone.py.
const int OUT = 0, X = 8;
layout(constant_id = 6) const uint OUT_HASH = 0;
layout(constant_id = 7) const uint X_HASH = 0;
layout(constant_id = 8) const bool OUT_VECTORS = false;
layout(constant_id = 9) const bool X_VECTORS = false;
INPUT(0, x);
INPUT4(0, x4);
OUTPUT(1, result);
OUTPUT4(1, result4);

INT8_LOADER(x, X_VECTORS)
INT8_STORER(result, OUT_VECTORS)

void main() {
    ivec4 origin = tile_origin(OUT), tile[4];
    Walk to = walk(OUT, OUT_HASH, origin);
    if (any(lessThanEqual(to.live, ivec3(0)))) return;
    load_x(walk(X, X_HASH, origin), tile);
    turn(tile, X_HASH, OUT_HASH);
    if (X_HASH != OUT_HASH) clear_padding(tile, to, 0);  // else padding is copied too
    store_result(to, tile);
}
