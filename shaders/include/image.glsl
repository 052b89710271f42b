// Element number i of an image that a kernel computes, and its place: sizes and strides stand in the push words from
// OUT_W on. CHANNELS_FIRST says that channels lie next to each other.
#ifndef REFSIM_IMAGE_GLSL
#define REFSIM_IMAGE_GLSL

struct Element {
    int w, h, c, n;
};

int element_number() {
    return int(gl_GlobalInvocationID.y) * int(gl_NumWorkGroups.x * gl_WorkGroupSize.x) + int(gl_GlobalInvocationID.x);
}

Element element(int number) {
    int width = push[OUT_W], height = push[OUT_H], channels = push[OUT_C];
    int inner = CHANNELS_FIRST ? number / channels : number;
    Element at = Element(inner % width, inner / width % height, number % channels, number / width / height / channels);
    if (!CHANNELS_FIRST) at.c = number / width / height % channels;
    return at;
}

int place_of(Element at) {
    return at.w * push[OUT_W_STRIDE] + at.h * push[OUT_H_STRIDE] + at.c * push[OUT_C_STRIDE] + at.n * push[OUT_N_STRIDE];
}

#endif
