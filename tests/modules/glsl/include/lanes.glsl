// The four signed bytes of a word; lane 0 is the low byte.
#ifndef LANES_GLSL
#define LANES_GLSL

int lane(int word, uint k) {
    return bitfieldExtract(word, int(8u * k), 8);  // of an int: extends the sign
}

int with_lane(int word, uint k, int value) {
    return bitfieldInsert(word, value, int(8u * k), 8);
}

int splat(int value) {
    return (value & 255) * 0x01010101;
}

#endif
