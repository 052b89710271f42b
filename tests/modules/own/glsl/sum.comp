// The sum of two tensors as another team might write it: one uniform block of plain sizes, strides and scales, and a
// workgroup that the module fixes itself. A word holds four channels; an invocation computes one word.
#version 450

layout(local_size_x = 16, local_size_y = 2, local_size_z = 4) in;

layout(set = 0, binding = 0) uniform Facts {
    ivec4 size;  // columns, rows, words of channels, images
    ivec4 a_stride;
    ivec4 b_stride;
    ivec4 out_stride;
    float a_scale;
    int a_zp;
    float b_scale;
    int b_zp;
    float alpha;
    float inv_out_scale;
    int out_zp;
};
layout(set = 0, binding = 1) readonly buffer A { int a_words[]; };
layout(set = 0, binding = 2) readonly buffer B { int b_words[]; };
layout(set = 0, binding = 3) writeonly buffer Out { int out_words[]; };

int word_at(ivec4 place, ivec4 stride) {
    const ivec4 parts = place * stride;
    return parts.x + parts.y + parts.z + parts.w;
}

float real_value(int word, int k, float scale, int zp) {
    precise float real = float(bitfieldExtract(word, 8 * k, 8) - zp) * scale;
    return real;
}

void main() {
    const ivec3 at = ivec3(gl_GlobalInvocationID);
    const ivec4 place = ivec4(at.xy, at.z % size.z, at.z / size.z);
    if (any(greaterThanEqual(place, size))) {
        return;
    }
    const int a = a_words[word_at(place, a_stride)];
    const int b = b_words[word_at(place, b_stride)];
    int word = 0;
    for (int k = 0; k < 4; k++) {
        precise float addend = alpha * real_value(b, k, b_scale, b_zp);
        precise float sum = real_value(a, k, a_scale, a_zp) + addend;
        precise float scaled = sum * inv_out_scale;
        const int value = int(clamp(roundEven(scaled), float(-128 - out_zp), float(127 - out_zp))) + out_zp;
        word |= (value & 255) << (8 * k);
    }
    out_words[word_at(place, out_stride)] = word;
}
