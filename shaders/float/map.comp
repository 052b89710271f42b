#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/map.glsl"
#include "include/launch.glsl"
#include "include/qmath.glsl"
#include "include/real.glsl"

const bool BINARY = OP >= FIRST_BINARY;
#include "include/strided.glsl"

INPUT(0, a);
INPUT(1, b);
OUTPUT(2, result);

// what spirv-opt makes of a division by 6
const float SIXTH = 0.16666667;

float hardswish(float x) {
    if (x <= -3.0) return 0.0;
    return x >= 3.0 ? x : product(product(x, SIXTH), sum(x, 3.0));
}

// mix() of a truth value is a choice
float hardsigmoid(float x) {
    return size_of(x) <= size_of(3.0) ? chained(x, SIXTH, 0.5) : float(less(0.0, x));
}

float leaky_relu(float x, float slope) {
    return product(x, is_nan(x) ? 0.0 : less(0.0, x) ? 1.0 : slope);
}

float unary(float x, float p, float q) {
    switch (OP) {
        case CLAMP: return smaller(larger(x, p), q);
        case HARDSWISH: return hardswish(x);
        case HARDSIGMOID: return hardsigmoid(x);
        default: return leaky_relu(x, p);
    }
}

float binary(float x, float y, float alpha) {
    switch (OP) {
        case ADD: return chained(alpha, y, x);
        case MUL: return product(x, y);
        case DIV: return quotient(x, y);
        case MAXIMUM: return larger(is_nan(y) ? y : x, y);
        default: return smaller(is_nan(y) ? y : x, y);
    }
}

bool compared(float x, float y) {
    bool ordered = !is_nan(x) && !is_nan(y), equal = ordered && rank_of(x) == rank_of(y);
    switch (OP) {
        case EQUAL: return equal;
        case UNEQUAL: return !equal;
        case BELOW: return less(x, y);
        case UP_TO: return less(x, y) || equal;
        case ABOVE: return less(y, x);
        case FROM: return less(y, x) || equal;
        default: {
            float apart = sum(x, uintBitsToFloat(floatBitsToUint(y) ^ 0x80000000u));
            return less(uintBitsToFloat(size_of(apart)), push_float(P));
        }
    }
}

int whole(int x, int y) {
    switch (OP) {
        case WHOLE_ADD: return x + int(push_float(P)) * y;
        case WHOLE_EQUAL: return int(x == y);
        case WHOLE_UNEQUAL: return int(x != y);
        case AND: return x & y;
        default: return x | y;
    }
}

void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Places at = places(number);
    int word = a[at.a];
    if (OP == COPY) {
        result[at.result] = word;
    } else if (OP == ABS) {
        result[at.result] = word & 0x7FFFFFFF;
    } else if (OP == NEG) {
        result[at.result] = word ^ int(0x80000000u);
    } else if (OP == NUMBER) {
        result[at.result] = floatBitsToInt(float(word));
    } else if (OP >= FIRST_WHOLE) {
        result[at.result] = whole(word, b[at.b]);
    } else if (OP >= FIRST_COMPARED) {
        result[at.result] = int(compared(intBitsToFloat(word), intBitsToFloat(b[at.b])));
    } else {
        float x = intBitsToFloat(word);
        float made = BINARY ? binary(x, intBitsToFloat(b[at.b]), push_float(P)) : unary(x, push_float(P), push_float(Q));
        result[at.result] = floatBitsToInt(made);
    }
}
