#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/float/gather.glsl"
#include "include/launch.glsl"

const bool BINARY = true;
#include "include/strided.glsl"

INPUT(0, a);
INPUT(1, b);
OUTPUT(2, result);

// A negative number counts from the end. One beyond both ends reads what lies there; the host, which sees the numbers
// too, then says that they are wrong (refsim_gpu.session).
void main() {
    int number = element_number();
    if (number >= push[COUNT]) return;
    Places at = places(number);
    int chosen = b[at.b];
    chosen = clamp(chosen < 0 ? chosen + push[LENGTH] : chosen, 0, push[LENGTH] - 1);
    result[at.result] = a[at.a + chosen * push[STEP]];
}
