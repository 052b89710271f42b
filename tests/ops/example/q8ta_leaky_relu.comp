#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/q8ta_leaky_relu.glsl"
#include "include/tile.glsl"
#include "include/qmath.glsl"

INPUT(0, x);
INPUT4(0, x4);
OUTPUT(1, result);
OUTPUT4(1, result4);

INT8_LOADER(x, X_VECTORS)
INT8_STORER(result, OUT_VECTORS)

int word(int source) {
    vec4 real = dequant4(lanes_of(source), push[IN_ZP], push_float(IN_SCALE));
    real = mix(real * push_float(SLOPE), real, greaterThanEqual(real, vec4(0.0)));
    return requant4(real, push_float(INV), lowest(push[ZP], false), push[ZP]);
}

void main() {
    ivec4 origin = tile_origin(OUT), tile[4];
    Walk to = walk(OUT, OUT_HASH, origin);
    if (any(lessThanEqual(to.live, ivec3(0)))) return;
    load_x(walk(X, X_HASH, origin), tile);
    [[unroll]] for (int v = 0; v < 4; ++v) {
        [[unroll]] for (int u = 0; u < 4; ++u) tile[v][u] = word(tile[v][u]);
    }
    clear_padding(tile, to, 0);
    store_result(to, tile);
}
