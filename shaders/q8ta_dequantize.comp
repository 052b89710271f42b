#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/q8ta_dequantize.glsl"
#include "include/tile.glsl"
#include "include/qmath.glsl"

INPUT(0, x);
INPUT4(0, x4);
OUTPUT(1, result);
OUTPUT4(1, result4);

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
            vec4 four = dequant4(lanes_of(tile[v][u]), push[ZP], push_float(SCALE));
            if (v < to.live.x && u < to.live.y) {
                store_floats(to, to.first + v * to.vector + u * to.word, floatBitsToInt(four));
            }
        }
    }
}
