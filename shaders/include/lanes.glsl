// The four int8 lanes of a word, lowest byte first (refsim/lanes.py).
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

#endif
