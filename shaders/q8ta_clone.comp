#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/q8ta_clone.glsl"
#include "include/tile.glsl"

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
