// main() of the kernels on cooperative matrices. A position is a column of four neighbours: positions are counted in such
// quads, and the last quad of a row of positions may reach beyond it. A workgroup computes TILE_M positions by TILE_N
// channels, a subgroup WARP_M by WARP_N of them. Stages of TILE_K bytes of K pass through shared memory. K is padded: a
// tap's channels to 16, all of it to whole stages; the weights are 0 there, so what is read of x there does not matter.
// Workgroups along z are groups of channels, and SPLITS parts of K, whose sums go to a scratch buffer; the build with
// REFSIM_FINISH adds those up. A kernel defines, before it includes this:
//   ivec3 locate(int quad)               first column, row, plane of a quad; and
//   ivec2 extents()                      how many quads a row has, and how many rows a plane
//   int planes()
//   void place(int slot, ivec3 at)       remember where the words of a quad come from
//   void seek(int k)                     what follows is for word k of K
//   ivec4 a_low(int slot), a_high(slot)  loads for that word of four positions; nothing waits for them yet
//   ivec4 a_quad(int slot, low, high)    the word of four positions, from what was loaded
//   int chunks()                         16 bytes of K each, before the padding to stages
//   int all_channels(), slice_words()    output channels; words of a group of them
//   int columns()                        positions in a row
//   int out_index(ivec3 at, int channel) the word of an output
//   bool out_quads()                     whether the words of a quad are neighbours that begin at a multiple of four
//   bool quads_first()                   whether quads of positions are nearer in the output than words of channels
#ifndef REFSIM_COOP_GEMM_GLSL
#define REFSIM_COOP_GEMM_GLSL

#ifdef REFSIM_EMULATED
#define UNROLL
#else
#define UNROLL [[unroll]]
#endif

int all_quads() { return extents().x * extents().y * planes(); }

// The output words of a quad; positions beyond the row hold 0 where a quad is written as a whole.
void store_quad(ivec3 at, int word, ivec4 sums[4], Channels of) {
    int left = columns() - at.x;
    ivec4 words;
    [[unroll]] for (int i = 0; i < 4; ++i) words[i] = out_word(INTEGER_ZP != 0, sums[i], of, 4 * word, all_channels());
    if (out_quads()) {
        words = mix(ivec4(0), words, lessThan(ivec4(0, 1, 2, 3), ivec4(left)));
        result4[out_index(at, 4 * word) >> 2] = words;
    } else {
        [[unroll]] for (int i = 0; i < 4; ++i) {
            if (i < left) result[out_index(at + ivec3(i, 0, 0), 4 * word)] = words[i];
        }
    }
}

#ifdef REFSIM_FINISH

// One word of one position an invocation: x is a word of a group's channels, y a position, z a group.
void main() {
    int word = int(gl_GlobalInvocationID.x), position = int(gl_GlobalInvocationID.y), group = int(gl_WorkGroupID.z);
    if (word >= slice_words() || position >= 4 * all_quads()) return;
    Channels of = channels_at(4 * (group * slice_words() + word));
    int at = (group * int(SPLITS) * int(PARTIAL_ROWS) + position) * int(PARTIAL_COLUMNS / 4) + word;
    int step = int(PARTIAL_ROWS * PARTIAL_COLUMNS / 4);
    ivec4 sum = ivec4(0);
    for (uint s = 0; s < SPLITS; s += 8) {
        ivec4 part[8];
        [[unroll]] for (uint u = 0; u < 8; ++u) part[u] = partial[at + int(min(s + u, SPLITS - 1)) * step];
        [[unroll]] for (uint u = 0; u < 8; ++u) sum += s + u < SPLITS ? part[u] : ivec4(0);
    }
    ivec3 where = locate(position >> 2) + ivec3(position & 3, 0, 0);
    int channel = 4 * (group * slice_words() + word);
    if (where.x < columns()) {
        result[out_index(where, channel)] = out_word(INTEGER_ZP != 0, sum, of, channel, all_channels());
    }
}

#else

shared uvec4 pool[POOL];

#include "coopmat.glsl"

// all the products of a stage; no function, because an array of matrices as an argument may lie in memory
#define MULTIPLY_STAGE(FROM) \
    UNROLL for (uint k = 0; k < TILE_K / DEPTH; ++k) { \
        TILE_A a[ROWS_M]; \
        UNROLL for (uint m = 0; m < ROWS_M; ++m) { \
            LOAD_A(a[m], (FROM) + (warp_m * WARP_M + m * EDGE) * ROW + k * (DEPTH / 16)); \
        } \
        UNROLL for (uint n = 0; n < ROWS_N; ++n) { \
            TILE_B b; \
            LOAD_B(b, (FROM) + (TILE_M + warp_n * WARP_N + n * EDGE) * ROW + k * (DEPTH / 16)); \
            UNROLL for (uint m = 0; m < ROWS_M; ++m) MULTIPLY(a[m], b, acc[m * ROWS_N + n]); \
        } \
    }

// What an invocation stores in turn t of 16 positions: neighbours store neighbours.
uint own_word(uint t, uint words) { return quads_first() ? t * (LANES / 4) + LANE / 4 : LANE % words; }
uint own_quad(uint t, uint words) { return quads_first() ? LANE % 4 : (t * LANES + LANE) / words; }

#define FETCH(NUMBER) \
    { \
        seek((NUMBER) * int(K_WORDS) + int(k_of)); \
        UNROLL for (uint s = 0; s < SLOTS; ++s) { \
            next_a[s] = a_low(int(s)); \
            next_high[s] = a_high(int(s)); \
        } \
        UNROLL for (uint c = 0; c < COLUMNS; ++c) { \
            uint unit = thread + c * THREADS; \
            int chunk = (NUMBER) * int(K_CHUNKS) + int(unit / TILE_N); \
            next_b[c] = weight[chunk * channels + min(first_channel + int(unit % TILE_N), channels - 1) + slice]; \
        } \
    }

#define SPREAD(TO) \
    { \
        UNROLL for (uint s = 0; s < SLOTS; ++s) { \
            uint quad = thread / K_WORDS + s * (THREADS / K_WORDS); \
            ivec4 found = a_quad(int(s), next_a[s], next_high[s]); \
            [[unroll]] for (uint i = 0; i < 4; ++i) { \
                pool[(TO) + (4 * quad + i) * ROW + k_of / 4][k_of % 4] = uint(found[i]); \
            } \
        } \
        UNROLL for (uint c = 0; c < COLUMNS; ++c) { \
            uint unit = thread + c * THREADS; \
            pool[(TO) + (TILE_M + unit % TILE_N) * ROW + unit / TILE_N] = uvec4(next_b[c]); \
        } \
    }

void main() {
    uint thread = gl_LocalInvocationIndex, warp_m = SUBGROUP % WARPS_M, warp_n = SUBGROUP / WARPS_M;
    int group = int(gl_WorkGroupID.z / SPLITS), split = int(gl_WorkGroupID.z % SPLITS);
    int first_quad = int(gl_WorkGroupID.x * TILE_QUADS), last_quad = all_quads() - 1;
    int first_channel = int(gl_WorkGroupID.y * TILE_N), channels = 4 * slice_words();
    int stages = (chunks() + int(K_CHUNKS) - 1) / int(K_CHUNKS), share = (stages + int(SPLITS) - 1) / int(SPLITS);
    int slice = group * ((chunks() + 7) & ~7) * channels;
    int number = split * share, end = min(number + share, stages);
    uint k_of = thread % K_WORDS;
    UNROLL for (uint s = 0; s < SLOTS; ++s) {
        int quad = int(thread / K_WORDS + s * (THREADS / K_WORDS));
        place(int(s), locate(min(first_quad + quad, last_quad)));
    }
    SUM acc[ROWS_M * ROWS_N];
    UNROLL for (uint i = 0; i < ROWS_M * ROWS_N; ++i) acc[i] = ZERO;

    // the words of the next stage are under way while this one is computed
    ivec4 next_a[SLOTS], next_high[SLOTS], next_b[COLUMNS];
    FETCH(number)
#if REFSIM_BUFFERS == 1
    for (; number < end; ++number) {
        SPREAD(0)
        barrier();
        if (number + 1 < end) FETCH(number + 1)
        MULTIPLY_STAGE(0)
        barrier();
    }
#else
    uint from = 0;
    SPREAD(0)
    if (number + 1 < end) FETCH(number + 1)
    barrier();
    for (; number < end; ++number) {
        MULTIPLY_STAGE(from)
        from = STAGE - from;
        if (number + 1 < end) {
            SPREAD(from)
            if (number + 2 < end) FETCH(number + 2)
        }
        barrier();
    }
#endif
    if (SPLITS > 1) {
        uint stride = gl_NumWorkGroups.y * TILE_N, rows = gl_NumWorkGroups.x * TILE_M;
        uint at = (gl_WorkGroupID.z * rows + gl_WorkGroupID.x * TILE_M + warp_m * WARP_M) * stride +
                  gl_WorkGroupID.y * TILE_N + warp_n * WARP_N;
        UNROLL for (uint m = 0; m < ROWS_M; ++m) {
            UNROLL for (uint n = 0; n < ROWS_N; ++n) {
                STORE_OUT(acc[m * ROWS_N + n], at + m * EDGE * stride + n * EDGE, stride);
            }
        }
    } else {
        // the invocations of a subgroup take turns: a word of channels and a quad of positions each
        const uint WORDS = WARP_N / 4, TURNS = (4 * WORDS + LANES - 1) / LANES;
        uint strip = SUBGROUP * STRIP;
        int first_word = (first_channel + int(warp_n * WARP_N)) / 4;
        Channels of[TURNS];  // asked for early: they are there when they are needed
        UNROLL for (uint t = 0; t < TURNS; ++t) {
            int in_slice = min(first_word + int(own_word(t, WORDS)), slice_words() - 1);
            of[t] = channels_at(4 * (group * slice_words() + in_slice));
        }
        UNROLL for (uint m = 0; m < ROWS_M; ++m) {
            UNROLL for (uint n = 0; n < ROWS_N; ++n) {
                STORE_SHARED(acc[m * ROWS_N + n], strip + n * 4, STRIP_ROW);
            }
            SUBGROUP_BARRIER;
            UNROLL for (uint t = 0; t < TURNS; ++t) {
                uint own = own_word(t, WORDS), from = own_quad(t, WORDS);
                int word = first_word + int(own), quad = first_quad + int((warp_m * WARP_M + m * EDGE) / 4 + from);
                if (own < WORDS && from < 4 && word < slice_words() && quad <= last_quad) {
                    ivec4 sums[4];
                    [[unroll]] for (uint i = 0; i < 4; ++i) {
                        sums[i] = ivec4(pool[strip + (4 * from + i) * STRIP_ROW + own]);
                    }
                    store_quad(locate(quad), group * slice_words() + word, sums, of[t]);
                }
            }
            SUBGROUP_BARRIER;
        }
    }
}

#endif
#endif
