#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/reduce.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"

const bool BINARY = false;
const int B_AT = 0, B_0 = 0;
#include "include/strided.glsl"

INPUT(0, a);
OUTPUT(1, result);

float at_place(int first, int i, int j) {
    return intBitsToFloat(a[first + i * push[STEP] + j * push[INNER_STEP]]);
}

// Four workers: worker t adds places t, t + 4, .. of the first dim, for each all of the second; then in turn. With one
// worker, all in turn.
float dealt(int first, int workers) {
    float total = 0.0;
    for (int t = 0; t < workers; ++t) {
        float part = 0.0;
        for (int i = t; i < push[LENGTH]; i += workers) {
            for (int j = 0; j < push[INNER_LENGTH]; ++j) part = sum(part, at_place(first, i, j));
        }
        total = sum(total, part);
    }
    return total;
}

// Texels of four along the packed dim, dealt out to four workers by component; what is left of the last texel goes to
// the first component of the worker in turn.
float packed_sum(int first) {
    int texels = push[LENGTH] / 4;
    vec4 total = vec4(0.0);
    for (int t = 0; t < 4; ++t) {
        precise vec4 part = vec4(0.0);
        for (int i = t; i < texels; i += 4) {
            for (int k = 0; k < 4; ++k) part[k] = sum(part[k], at_place(first, 4 * i + k, 0));
        }
        if (t == texels % 4) {
            for (int i = 4 * texels; i < push[LENGTH]; ++i) part.x = sum(part.x, at_place(first, i, 0));
        }
        for (int k = 0; k < 4; ++k) total[k] = sum(total[k], part[k]);
    }
    return sum(sum(sum(sum(0.0, total.x), total.y), total.z), total.w);
}

// 64 lanes, each from its first element on, and a tree over them. What a lane lacks in the last round is -0; without any
// element it holds 0.
float row_sum(int first) {
    float lanes[64];
    for (int t = 0; t < 64; ++t) {
        float lane = t < push[LENGTH] ? at_place(first, t, 0) : 0.0;
        for (int i = t + 64; i < push[LENGTH]; i += 64) lane = sum(lane, at_place(first, i, 0));
        lanes[t] = lane;
    }
    for (int half_way = 32; half_way > 0; half_way /= 2) {
        for (int t = 0; t < half_way; ++t) lanes[t] = sum(lanes[t], lanes[t + half_way]);
    }
    return lanes[0];
}

float extreme(int first) {
    float found = at_place(first, 0, 0);
    for (int i = 0; i < push[LENGTH]; ++i) {
        for (int j = 0; j < push[INNER_LENGTH]; ++j) {
            float next = at_place(first, i, j);
            if (is_nan(found)) continue;
            if (is_nan(next) || (HOW == LARGEST ? less(found, next) : less(next, found))) found = next;
        }
    }
    return found;
}

void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Places at = places(number);
    float total;
    switch (HOW) {
        case IN_TURN: total = dealt(at.a, 1); break;
        case DEALT: total = dealt(at.a, 4); break;
        case PACKED: total = packed_sum(at.a); break;
        case ROW: total = row_sum(at.a); break;
        default: total = extreme(at.a); break;
    }
    if (push[DIVISOR] > 0) total = quotient(total, push_float(DIVISOR));
    result[at.result] = floatBitsToInt(total);
}
