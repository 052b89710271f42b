#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/bilinear.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"
#include "include/image.glsl"

INPUT(0, x);
OUTPUT(1, result);

struct Neighbours {
    int low, high;
    float along;  // from the lower one, which is the first element where there is none before
};

Neighbours neighbours(int place, int size, float step_size) {
    float where = ALIGN ? product(float(place), step_size) : chained(sum(float(place), 0.5), step_size, -0.5);
    int last = size - 1;
    int low = clamp(int(floor(where)), 0, last), high = clamp(int(ceil(where)), 0, last);
    return Neighbours(low, high, sum(where, -float(low)));
}

float between(float a, float b, float t) {
    return sum(product(a, sum(1.0, -t)), product(b, t));
}

void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Element at = element(number);
    Neighbours row = neighbours(at.h, push[X_H], push_float(STEP_H));
    Neighbours column = neighbours(at.w, push[X_W], push_float(STEP_W));
    int image = at.c * push[X_C_STRIDE] + at.n * push[X_N_STRIDE];
    int left = image + column.low * push[X_W_STRIDE], right = image + column.high * push[X_W_STRIDE];
    int top = row.low * push[X_H_STRIDE], bottom = row.high * push[X_H_STRIDE];
    float upper = between(intBitsToFloat(x[left + top]), intBitsToFloat(x[right + top]), column.along);
    float lower = between(intBitsToFloat(x[left + bottom]), intBitsToFloat(x[right + bottom]), column.along);
    result[place_of(at)] = floatBitsToInt(between(upper, lower, row.along));
}
