#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/values.glsl"
#include "include/tile.glsl"
#include "include/qmath.glsl"

// a float for each byte: what a dequantize and operators on single elements make of it
INPUT(0, x);
INPUT4(0, x4);
INPUT(1, table);
OUTPUT(2, result);
OUTPUT4(2, result4);

INT8_LOADER(x, X_VECTORS)

void store_floats(Walk to, int at, ivec4 four) {
    if (OUT_VECTORS) {
        result4[at >> 2] = four;
    } else {
        [[unroll]] for (int k = 0; k < 4; ++k) {
            if (k < to.live.z) result[at + k * to.lane] = four[k];
        }
    }
}

void main() {
    ivec4 origin = tile_origin(OUT), tile[4];
    Walk to = walk(OUT, OUT_HASH, origin);
    if (any(lessThanEqual(to.live, ivec3(0)))) return;
    load_x(walk(X, X_HASH, origin), tile);
    turn(tile, X_HASH, OUT_HASH);
    [[unroll]] for (int v = 0; v < 4; ++v) {
        [[unroll]] for (int u = 0; u < 4; ++u) {
            if (v < to.live.x && u < to.live.y) {
                ivec4 four;
                [[unroll]] for (int k = 0; k < 4; ++k) four[k] = table[bitfieldExtract(uint(tile[v][u]), 8 * k, 8)];
                store_floats(to, to.first + v * to.vector + u * to.word, four);
            }
        }
    }
}
