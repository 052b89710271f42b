// From a real value to a quantized one.
#ifndef REQUANT_GLSL
#define REQUANT_GLSL

// scaled: the value divided by the scale. Rounds to nearest even. NaN counts as 0; isnan() is not reliable.
int quantized(float scaled, int zp) {
    if ((floatBitsToUint(scaled) & 0x7fffffffu) > 0x7f800000u) {
        return zp;
    }
    return int(clamp(roundEven(scaled), float(-128 - zp), float(127 - zp))) + zp;
}

int requant(float real, float inv_scale, int zp) {
    precise float scaled = real * inv_scale;
    return quantized(scaled, zp);
}

float real_value(int q, float scale, int zp) {
    precise float real = float(q - zp) * scale;
    return real;
}

#endif
