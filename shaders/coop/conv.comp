#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/push/coop/conv.glsl"
#include "include/conv.glsl"
#include "include/coop.glsl"

// A quad is four columns of the output, of one row. How x is read: one word at a time; the quad as one vector, where
// its columns are a block of x; or as parts of two blocks.
const uint BY_WORDS = 0, AS_BLOCK = 1, OF_BLOCKS = 2;

ivec3 origin[SLOTS];  // the tap (0, 0) of a quad: column, row, batch; or, AS_BLOCK, its vector
ivec2 tap;            // offset of the sought tap: column, row
int channel_word;

ivec2 extents() { return ivec2((push[OUT + W] + 3) >> 2, push[OUT + H]); }
int planes() { return push[OUT + N]; }
int columns() { return push[OUT + W]; }
int tap_chunks() { return (push[IC4] + 3) >> 2; }
int chunks() { return push[KERNEL_H] * push[KERNEL_W] * tap_chunks(); }
int all_channels() { return push[OUT + C]; }
int slice_words() { return push[OC4]; }
bool quads_first() { return dim_at(OUT_HASH, 0) == W; }
bool out_quads() { return outer_block(OUT_HASH) == 4 || (quads_first() && (push[OUT + W] & 3) == 0); }
// The word of a coordinate of a tensor that packs channels, the channel given in words; shorter than word_idx.
int packed_word(int at, uint hashed, ivec3 p, int channel_word) {
    int wide = outer_block(hashed), shift = wide >> 1;  // 4 or 1 columns
    int block = (p.x >> shift) * push[at + W_STRIDE] + p.y * push[at + H_STRIDE] + channel_word * push[at + C_STRIDE] +
                p.z * push[at + N_STRIDE];
    return (block << shift) + (p.x & (wide - 1));
}
int out_index(ivec3 at, int channel) { return packed_word(OUT, OUT_HASH, at, channel >> 2); }

ivec3 locate(int quad) {
    ivec3 at = position_coord(quad, extents().x, push[OUT + H]);
    return ivec3(4 * at.x, at.yz);
}

int x_group() { return int(gl_WorkGroupID.z / SPLITS) * push[IC4]; }

void place(int slot, ivec3 at) {
    if (X_QUADS == AS_BLOCK) {
        origin[slot].x = packed_word(X, X_HASH, at, x_group()) >> 2;
    } else {
        origin[slot] = ivec3(at.x * push[STRIDE_W] - push[PADDING_W], at.y * push[STRIDE_H] - push[PADDING_H], at.z);
    }
}

// Beyond K the weights are 0: any word will do there, if it lies in the tensor.
void seek(int k) {
    uint words = 4 * uint(tap_chunks()), number = min(uint(k) / words, uint(push[KERNEL_H] * push[KERNEL_W] - 1));
    channel_word = min(k - int(number * words), push[IC4] - 1);
    if (X_QUADS != AS_BLOCK) {
        channel_word += x_group();
        tap.x = int(number % uint(push[KERNEL_W])) * push[DILATION_W];
        tap.y = int(number / uint(push[KERNEL_W])) * push[DILATION_H];
    }
}

// The row and the first column that a quad reads at the sought tap.
ivec2 source(int slot) { return origin[slot].xy + tap; }

// No load depends on a branch, so all of them are under way at once. What lies outside the image is replaced later.
ivec4 a_low(int slot) {
    if (X_QUADS == AS_BLOCK) return x4[origin[slot].x + channel_word];
    ivec3 at = ivec3(source(slot), origin[slot].z);
    int last = push[X + W] - 1;
    at.y = clamp(at.y, 0, push[X + H] - 1);
    if (X_QUADS == OF_BLOCKS) {
        at.x = clamp(at.x, 0, last);
        return x4[packed_word(X, X_HASH, at, channel_word) >> 2];
    }
    ivec4 found;
    [[unroll]] for (int i = 0; i < 4; ++i) {
        int w = clamp(at.x + i * push[STRIDE_W], 0, last);
        found[i] = x[packed_word(X, X_HASH, ivec3(w, at.yz), channel_word)];
    }
    return found;
}

ivec4 a_high(int slot) {
    if (X_QUADS != OF_BLOCKS) return ivec4(0);
    ivec2 at = source(slot);
    ivec3 next = ivec3(clamp(at.x + 4, 0, push[X + W] - 1), clamp(at.y, 0, push[X + H] - 1), origin[slot].z);
    return x4[packed_word(X, X_HASH, next, channel_word) >> 2];
}

ivec4 a_quad(int slot, ivec4 low, ivec4 high) {
    if (X_QUADS == AS_BLOCK) return low;
    ivec2 at = source(slot);
    if (X_QUADS == OF_BLOCKS) {
        bool two = (at.x & 2) != 0, one = (at.x & 1) != 0;
        low = two ? ivec4(low.zw, high.xy) : low;
        low = one ? ivec4(low.yzw, two ? high.z : high.x) : low;
    }
    ivec4 columns = at.x + ivec4(0, 1, 2, 3) * push[STRIDE_W];
    bool row = uint(at.y) < uint(push[X + H]);
    int border = splat(push[IN_ZP]);
    [[unroll]] for (int i = 0; i < 4; ++i) low[i] = row && uint(columns[i]) < uint(push[X + W]) ? low[i] : border;
    return low;
}

#include "include/coop_gemm.glsl"
