// Kernels that make 4 columns x 4 rows x 4 channels an invocation, of tensors of any layout: x is a word of channels, y
// of columns, z of rows padded to 4, of all batches (refsim/ops/base/elementwise.py: launch_tiles). In between, a tile is
// sixteen words in the order of the packed dim: where channels are packed, [row][column] words of four channels;
// else [channel][row] words of four columns.
#ifndef REFSIM_TILE_GLSL
#define REFSIM_TILE_GLSL

#include "index.glsl"
#include "lanes.glsl"

#define BY_CHANNELS(hashed) (inner_dim(hashed) == C)

// the first element of this invocation's tile of a tensor whose push words begin at `at`
ivec4 tile_origin(int at) {
    int rows = (push[at + H] + 3) & ~3, row = 4 * int(gl_GlobalInvocationID.z);
    return ivec4(4 * int(gl_GlobalInvocationID.y), row % rows, 4 * int(gl_GlobalInvocationID.x), row / rows);
}

// Where a tile lies in a buffer. A tile begins at whole blocks, so one step always goes as far.
struct Walk {
    int first;               // the first word of the tile
    int vector, word, lane;  // to the next vector, to the next word of one, to the next lane of a word (of floats)
    ivec3 live;              // vectors, words of each and lanes of a word that lie in the tensor, if below 4
};

int address(int at, uint hashed, ivec4 p) {
    return block_numel(hashed) > 1 ? word_idx(at, hashed, p) : buf_idx(at, hashed, p);
}

Walk walk(int at, uint hashed, ivec4 origin) {
    bool by_channels = BY_CHANNELS(hashed);
    int first = address(at, hashed, origin), row = address(at, hashed, origin + ivec4(0, 1, 0, 0)) - first;
    int column = address(at, hashed, origin + ivec4(1, 0, 0, 0)) - first;
    int channel = address(at, hashed, origin + ivec4(0, 0, 1, 0)) - first;
    ivec3 left = ivec3(push[at], push[at + H], push[at + C]) - origin.xyz;
    return by_channels ? Walk(first, row, column, channel, left.yxz) : Walk(first, channel, row, column, left.zyx);
}

void swap_vectors(inout ivec4 tile[4]) {
    ivec4 was[4] = tile;
    [[unroll]] for (int k = 0; k < 4; ++k) tile[k] = ivec4(was[0][k], was[1][k], was[2][k], was[3][k]);
}

// a tile in the order of one tensor to that of another; a row's words of channels become words of columns, or back
void turn(inout ivec4 tile[4], uint from, uint to) {
    if (BY_CHANNELS(from) == BY_CHANNELS(to)) return;
    if (BY_CHANNELS(to)) swap_vectors(tile);
    [[unroll]] for (int r = 0; r < 4; ++r) tile[r] = transposed(tile[r]);
    if (BY_CHANNELS(from)) swap_vectors(tile);
}

// what lies beyond the tensor becomes a word's lanes
void clear_padding(inout ivec4 tile[4], Walk to, int padding) {
    int lanes = first_lanes(-1, min(to.live.z, 4), 0);
    [[unroll]] for (int v = 0; v < 4; ++v) {
        [[unroll]] for (int u = 0; u < 4; ++u) {
            int kept = v < to.live.x && u < to.live.y ? lanes : 0;
            tile[v][u] = tile[v][u] & kept | padding & ~kept;
        }
    }
}

// void load_NAME(walk, tile), void store_NAME(walk, tile): an int8 tile of the buffer NAME, whose vectors are NAME4
#define INT8_LOADER(name, VECTORS) \
    void load_##name(Walk from, out ivec4 tile[4]) { \
        [[unroll]] for (int v = 0; v < 4; ++v) { \
            int at = from.first + v * from.vector; \
            tile[v] = ivec4(0); \
            if (v < from.live.x) { \
                if (VECTORS) { \
                    tile[v] = name##4[at >> 2]; \
                } else { \
                    [[unroll]] for (int u = 0; u < 4; ++u) { \
                        if (u < from.live.y) tile[v][u] = name[at + u * from.word]; \
                    } \
                } \
            } \
        } \
    }

#define INT8_STORER(name, VECTORS) \
    void store_##name(Walk to, ivec4 tile[4]) { \
        [[unroll]] for (int v = 0; v < 4; ++v) { \
            int at = to.first + v * to.vector; \
            if (v < to.live.x) { \
                if (VECTORS) { \
                    name##4[at >> 2] = tile[v]; \
                } else { \
                    [[unroll]] for (int u = 0; u < 4; ++u) { \
                        if (u < to.live.y) name[at + u * to.word] = tile[v][u]; \
                    } \
                } \
            } \
        } \
    }

#endif
