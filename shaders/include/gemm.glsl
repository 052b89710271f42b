// main() of the matrix-like kernels: positions (x) by words of output channels (y), z picks a slice of channels
// or taps. A workgroup computes LOCAL_X * TILE_X positions by LOCAL_Y * TILE_Y channel words; stages of STAGE words
// of K pass through shared memory. A kernel defines, before it includes this:
//   void place(int slot, int position)   remember where the words of a position come from
//   void seek(int k)                     the next `a_word`s are for word k of K
//   int a_word(int slot)                 that word of a position
//   int weight_row(int k)                the row of weights that belongs to word k of K
//   int depth()                          words of K
//   int first_channel_word()             where this slice's channel words begin
//   int slice_words()                    channel words of this slice
//   int positions()                      how many there are
//   void store(int position, int channel_word, ivec4 acc, Channels of)
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
shared ivec4 tile_b[STAGE * BN];

void main() {
    uint thread = gl_LocalInvocationIndex;
    int first_position = int(gl_WorkGroupID.x * BM);
    int first_word = int(gl_WorkGroupID.y * BN);
    // neighbours take four neighbouring positions of one K word, then the next K word: 4 x 8 words are one line
    uint k_of = thread / 4 % STAGE, m_of = thread % 4 + thread / (4 * STAGE) * 4;
    for (uint s = 0; s < SLOTS; ++s) {
        place(int(s), min(first_position + int(m_of + s * (THREADS / STAGE)), positions() - 1));
    }
    ivec4 acc[TILE_X * TILE_Y];
    for (uint i = 0; i < TILE_X * TILE_Y; ++i) acc[i] = ivec4(0);
    int last_word = slice_words() - 1;

    for (int k0 = 0; k0 < depth(); k0 += int(STAGE)) {
        int k = k0 + int(k_of);
        bool live = k < depth();
        if (live) seek(k);
        for (uint s = 0; s < SLOTS; ++s) {
            uint m = m_of + s * (THREADS / STAGE);
            // an invocation's quads of positions stand apart, so that neighbours read neighbouring vectors
            uint quad = m / 4, at = quad % QUADS * LOCAL_X + quad / QUADS;
            tile_a[k_of * ROW + at][m % 4] = live ? a_word(int(s)) : 0;
        }
        for (uint c = 0; c < COLUMNS; ++c) {
            uint cell = thread + c * THREADS;
            if (BN * STAGE % THREADS == 0 || cell < BN * STAGE) {
                int row = k0 + int(cell / BN);
                int word = min(first_word + int(cell % BN), last_word);
                tile_b[cell] = row < depth()
                    ? weight[weight_row(row) * all_channel_words() + first_channel_word() + word] : ivec4(0);
            }
        }
        barrier();
        for (uint k1 = 0; k1 < STAGE; ++k1) {
            ivec4 a[QUADS], b[TILE_Y];
            for (uint q = 0; q < QUADS; ++q) a[q] = tile_a[k1 * ROW + q * LOCAL_X + gl_LocalInvocationID.x];
            for (uint n = 0; n < TILE_Y; ++n) b[n] = tile_b[k1 * BN + gl_LocalInvocationID.y * TILE_Y + n];
            for (uint q = 0; q < QUADS; ++q) {
                for (uint r = 0; r < 4; ++r) {
                    for (uint n = 0; n < TILE_Y; ++n) {
                        for (uint l = 0; l < 4; ++l) {
                            acc[(q * 4 + r) * TILE_Y + n][l] += dot4(a[q][r], b[n][l]);
                        }
                    }
                }
            }
        }
        barrier();
    }
    for (uint n = 0; n < TILE_Y; ++n) {
        int word = first_word + int(gl_LocalInvocationID.y * TILE_Y + n);
        if (word > last_word) continue;
        word += first_channel_word();
        Channels of = channels_at(4 * word);
        for (uint m = 0; m < TILE_X; ++m) {
            int position = first_position + int(gl_LocalInvocationID.x * TILE_X + m);
            if (position < positions()) store(position, word, acc[m * TILE_Y + n], of);
        }
    }
}

#endif
