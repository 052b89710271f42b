// main() of the matrix-like kernels: positions (x) by words of output channels (y), z picks a slice of channels
// or taps. A workgroup computes LOCAL_X * TILE_X positions by LOCAL_Y * TILE_Y channel words; stages of STAGE words
// of K pass through shared memory. A kernel defines, before it includes this:
//   ivec3 locate(int position)           coordinate of a position: column, row, plane; and
//   ivec2 extents()                      how many columns and rows there are, to step from one to the next
//   void place(int slot, ivec3 at)       remember where the words of a position come from
//   void seek(int k)                     the next `a_word`s are for word k of K
//   int a_word(int slot)                 that word of a position
//   int weight_row(int k)                the row of weights that belongs to word k of K
//   int depth()                          words of K
//   int first_channel_word()             where this slice's channel words begin
//   int slice_words()                    channel words of this slice
//   int positions()                      how many there are
//   void store(ivec3 at, int channel_word, ivec4 acc, Channels of)
#ifndef REFSIM_GEMM_GLSL
#define REFSIM_GEMM_GLSL

const uint STAGE = 8;
const uint THREADS = LOCAL_X * LOCAL_Y;
const uint BM = LOCAL_X * TILE_X;          // positions of a workgroup
const uint BN = LOCAL_Y * TILE_Y;          // channel words of a workgroup
const uint ROW = BM / 4 + 1;               // a row of the position tile, in vectors; the odd one spreads the banks
const uint SLOTS = BM * STAGE / THREADS;   // position words that an invocation fetches
const uint COLUMNS = (BN * STAGE + THREADS - 1) / THREADS;
const uint QUADS = TILE_X / 4;

shared ivec4 tile_a[STAGE * ROW];
shared ivec4 tile_b[COLUMNS * THREADS];  // STAGE * BN of them are read

// A few positions further; cheaper than to divide again. (No loop in here: the loops around it would not unroll.)
ivec3 further(ivec3 at, int by) {
    ivec2 size = extents();
    at.x += by;
    if (at.x >= size.x) {
        at.y += int(uint(at.x) / uint(size.x));
        at.x = int(uint(at.x) % uint(size.x));
        if (at.y >= size.y) {
            at.z += int(uint(at.y) / uint(size.y));
            at.y = int(uint(at.y) % uint(size.y));
        }
    }
    return at;
}

// all the products of one word of K; no function, whose array argument would need one size for every build
#define MULTIPLY(k1) \
    { \
        ivec4 a[QUADS], b[TILE_Y]; \
        [[unroll]] for (uint q = 0; q < QUADS; ++q) a[q] = tile_a[k1 * ROW + q * LOCAL_X + gl_LocalInvocationID.x]; \
        [[unroll]] for (uint n = 0; n < TILE_Y; ++n) b[n] = tile_b[k1 * BN + gl_LocalInvocationID.y * TILE_Y + n]; \
        [[unroll]] for (uint q = 0; q < QUADS; ++q) { \
            [[unroll]] for (uint r = 0; r < 4; ++r) { \
                [[unroll]] for (uint n = 0; n < TILE_Y; ++n) { \
                    [[unroll]] for (uint l = 0; l < 4; ++l) { \
                        acc[(q * 4 + r) * TILE_Y + n][l] += dot4(a[q][r], b[n][l]); \
                    } \
                } \
            } \
        } \
    }

void main() {
    uint thread = gl_LocalInvocationIndex;
    int first_position = int(gl_WorkGroupID.x * BM), all_positions = positions();
    int first_word = int(gl_WorkGroupID.y * BN), last_word = slice_words() - 1;
    int row_words = all_channel_words(), slice = first_channel_word(), all_k = depth();
    // neighbours take four neighbouring positions of one K word, then the next K word: 4 x 8 words are one line
    uint k_of = thread / 4 % STAGE, m_of = thread % 4 + thread / (4 * STAGE) * 4;
    ivec3 at = locate(min(first_position + int(m_of), all_positions - 1));
    [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
        place(int(s), at);
        if (first_position + int(m_of + (s + 1) * (THREADS / STAGE)) < all_positions) {
            at = further(at, int(THREADS / STAGE));
        }
    }
    ivec4 acc[TILE_X * TILE_Y];
    [[unroll]] for (uint i = 0; i < TILE_X * TILE_Y; ++i) acc[i] = ivec4(0);

    Channels of[TILE_Y];  // asked for early: they are there when the sums are
    [[unroll]] for (uint n = 0; n < TILE_Y; ++n) {
        of[n] = channels_at(4 * (slice + min(first_word + int(gl_LocalInvocationID.y * TILE_Y + n), last_word)));
    }

    // the words of the next stage are under way while this one is computed
    int next_a[SLOTS];
    ivec4 next_b[COLUMNS];
#define FETCH(K0) \
    { \
        int k = (K0) + int(k_of); \
        bool live = k < all_k; \
        if (live) seek(k); \
        [[unroll]] for (uint s = 0; s < SLOTS; ++s) next_a[s] = live ? a_word(int(s)) : 0; \
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) { \
            uint cell = thread + c * THREADS; \
            int row = (K0) + int(cell / BN), word = min(first_word + int(cell % BN), last_word); \
            next_b[c] = row < all_k ? weight[weight_row(row) * row_words + slice + word] : ivec4(0); \
        } \
    }
    FETCH(0)
    for (int k0 = 0; k0 < all_k; k0 += int(STAGE)) {
        [[unroll]] for (uint s = 0; s < SLOTS; ++s) {
            uint m = m_of + s * (THREADS / STAGE);
            // an invocation's quads of positions stand apart, so that neighbours read neighbouring vectors
            uint quad = m / 4, to = quad % QUADS * LOCAL_X + quad / QUADS;
            tile_a[k_of * ROW + to][m % 4] = next_a[s];
        }
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
            tile_b[thread + c * THREADS] = next_b[c];
        }
        barrier();
        if (k0 + int(STAGE) < all_k) FETCH(k0 + int(STAGE))
        if (k0 + int(STAGE) <= all_k) {
            for (uint k1 = 0; k1 < STAGE; ++k1) MULTIPLY(k1)  // a literal bound, which drivers unroll
        } else {
            for (uint k1 = 0; k1 < uint(all_k - k0); ++k1) MULTIPLY(k1)
        }
        barrier();
    }
    int first = first_position + int(gl_LocalInvocationID.x * TILE_X);
    if (first >= all_positions) return;
    ivec3 start = locate(first);
    [[unroll]] for (uint n = 0; n < TILE_Y; ++n) {
        int word = first_word + int(gl_LocalInvocationID.y * TILE_Y + n);
        if (word <= last_word) {
            ivec3 here = start;
            [[unroll]] for (uint m = 0; m < TILE_X; ++m) {
                if (first + int(m) < all_positions) store(here, slice + word, acc[m * TILE_Y + n], of[n]);
                here = further(here, 1);
            }
        }
    }
}

#endif
