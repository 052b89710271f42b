// Element number i of what a kernel computes, as places in its tensors: sizes and strides of up to DIMS dims, the fastest
// first, stand in the push words from SIZE_0, OUT_0, A_0 and (ARITY 2) B_0 on. See gpu/strided.py.
#ifndef REFSIM_STRIDED_GLSL
#define REFSIM_STRIDED_GLSL

struct Places {
    int result, a, b;
};

int element_number() {
    return int(gl_GlobalInvocationID.y) * int(gl_NumWorkGroups.x * gl_WorkGroupSize.x) + int(gl_GlobalInvocationID.x);
}

Places places(int number) {
    Places at = Places(push[OUT_AT], push[A_AT], BINARY ? push[B_AT] : 0);
    uint rest = uint(number);
    for (int k = 0; k < int(DIMS); ++k) {
        uint size = uint(push[SIZE_0 + k]);
        int along = int(rest % size);
        rest /= size;
        at.result += along * push[OUT_0 + k];
        at.a += along * push[A_0 + k];
        if (BINARY) at.b += along * push[B_0 + k];
    }
    return at;
}

#ifdef REFSIM_THIRD
int third_place(int number) {
    int at = push[C_AT];
    uint rest = uint(number);
    for (int k = 0; k < int(DIMS); ++k) {
        uint size = uint(push[SIZE_0 + k]);
        at += int(rest % size) * push[C_0 + k];
        rest /= size;
    }
    return at;
}
#endif

#endif
