#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/bytes.glsl"
#include "include/tile.glsl"
#include "include/qmath.glsl"

// a byte for each byte: what a dequantize, operators on single elements and a quantize make of it
INPUT(0, x);
INPUT4(0, x4);
INPUT(1, table);
OUTPUT(2, result);
OUTPUT4(2, result4);

INT8_LOADER(x, X_VECTORS)
INT8_STORER(result, OUT_VECTORS)

int word(int source) {
    int made = 0;
    [[unroll]] for (int k = 0; k < 4; ++k) made |= table[bitfieldExtract(uint(source), 8 * k, 8)] << 8 * k;
    return made;
}

void main() {
    ivec4 origin = tile_origin(OUT), tile[4];
    Walk to = walk(OUT, OUT_HASH, origin);
    if (any(lessThanEqual(to.live, ivec3(0)))) return;
    load_x(walk(X, X_HASH, origin), tile);
    turn(tile, X_HASH, OUT_HASH);
    [[unroll]] for (int v = 0; v < 4; ++v) {
        [[unroll]] for (int u = 0; u < 4; ++u) tile[v][u] = word(tile[v][u]);
    }
    clear_padding(tile, to, splat(push[PADDING]));
    store_result(to, tile);
}
