#version 450
#extension GL_GOOGLE_include_directive : require
#include "../include/push/probe/qmath.glsl"
#include "../include/launch.glsl"
#include "../include/lanes.glsl"
#include "../include/qmath.glsl"
// Pins include/qmath.glsl to refsim/core/qmath.py: a row of what each function gives for one triple of numbers.

const int ROW = 8;
INPUT(0, triples);
OUTPUT(1, rows);

// What the sum with a large number in to_int8x4() stands for.
int spelled_out(float y, int zp) {
    return int(roundEven(clamp(y, float(-128 - zp), float(127 - zp)))) + zp;
}

void main() {
    int i = int(gl_GlobalInvocationID.x);
    if (i >= push[COUNT]) return;
    int bits = triples[3 * i];
    float x = intBitsToFloat(bits), y = intBitsToFloat(triples[3 * i + 1]), z = intBitsToFloat(triples[3 * i + 2]);
    int zp = push[ZP], at = ROW * i;
    vec4 four = vec4(y, z, y, z);  // neighbours that must leave the lane alone
    four[i & 3] = x;
    rows[at] = lane(requant4(four, push_float(INV), lowest(zp, false), zp), i & 3);
    rows[at + 1] = lane(quantize4(four, push_float(INV), zp), i & 3);
    rows[at + 2] = lane(to_int8x4(four, lowest(zp, false), zp), i & 3);
    rows[at + 3] = spelled_out(x, zp);
    rows[at + 4] = floatBitsToInt(dequant(lane(bits, 0), zp, push_float(SCALE)));
    rows[at + 5] = floatBitsToInt(mul_add(x, y, z));
    rows[at + 6] = int(is_nan4(vec4(x)).y);
    rows[at + 7] = insert(splat(0), i & 3, lane(bits, i & 3));
}
