// The parts that the matrix-like convolutions share; see gemm.glsl. z is a group of channels.
#ifndef REFSIM_CONV_GEMM_GLSL
#define REFSIM_CONV_GEMM_GLSL

INPUT(0, x);
INPUT4(1, weight);
INPUT4(2, sums);
INPUT4(3, scales);
INPUT4(4, bias);
OUTPUT(5, result);

#include "epilogue.glsl"

int all_channel_words() { return (push[OUT + C] + 3) >> 2; }
int slice_words() { return push[OC4]; }
int positions() { return push[OUT + W] * push[OUT + H] * push[OUT + N]; }

void store_at(ivec3 at, int channel_word, ivec4 acc, Channels of, bool integer) {
    ivec4 p = ivec4(at.xy, 4 * channel_word, at.z);
    result[word_idx(OUT, OUT_HASH, p)] = out_word(integer, acc, of, p.z, push[OUT + C]);
}

#endif
