// The four int8 lanes of a word, lowest byte first (refsim/core/lanes.py).
#ifndef REFSIM_LANES_GLSL
#define REFSIM_LANES_GLSL

int lane(int word, int k) {
    return bitfieldExtract(word, 8 * k, 8);  // of an int: extends the sign
}

// q goes into lane k, which is still 0
int insert(int word, int k, int q) {
    return word | (q & 255) << (8 * k);
}

int splat(int q) {
    return (q & 255) * 0x01010101;
}

ivec4 lanes_of(int word) {
    return ivec4(lane(word, 0), lane(word, 1), lane(word, 2), lane(word, 3));
}

// The first lanes of a word, and those of another behind them.
int first_lanes(int word, int lanes, int rest) {
    return lanes < 4 ? bitfieldInsert(rest, word, 0, 8 * lanes) : word;
}

// Byte k of word l becomes byte l of word k.
ivec4 transposed(ivec4 v) {
    const int EVEN = 0x00FF00FF, LOW = 0x0000FFFF;
    ivec2 even = (v.xz & EVEN) | (v.yw & EVEN) << 8, odd = (v.xz >> 8 & EVEN) | (v.yw & ~EVEN);
    return ivec4((even.x & LOW) | even.y << 16, (odd.x & LOW) | odd.y << 16,
                 (even.x >> 16 & LOW) | (even.y & ~LOW), (odd.x >> 16 & LOW) | (odd.y & ~LOW));
}

#endif
