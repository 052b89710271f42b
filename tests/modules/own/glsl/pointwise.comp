// A pointwise convolution as a port to another API might have it: all sizes and strides are push constants, the weights
// are words of four input channels, output channel after output channel, and no buffer holds sums of weights.
// An invocation computes one word, which is four output channels of a pixel.
#version 450

layout(local_size_x = 8, local_size_y = 4, local_size_z = 2) in;

layout(set = 0, binding = 0) readonly buffer Source { int x_words[]; };
layout(set = 0, binding = 1) readonly buffer Weights { int weights[]; };
layout(set = 0, binding = 2) readonly buffer Scales { float scales[]; };
layout(set = 0, binding = 3) readonly buffer Bias { float biases[]; };
layout(set = 0, binding = 4) writeonly buffer Target { int y_words[]; };

layout(push_constant) uniform Push {
    int width, height, batches, in_channels, out_channels;
    int x_across, x_down, x_deep, x_image;
    int y_across, y_down, y_deep, y_image;
    float in_scale;
    int in_zp;
    float inv_out_scale;
    int out_zp;
    int relu;
};

int byte_of(int word, int k) {
    return bitfieldExtract(word, 8 * k, 8);
}

// Blocks hold four columns of four channels; strides count blocks.
int word_in(int across, int down, int deep, int image, ivec3 pixel, int c4) {
    return 4 * (pixel.x / 4 * across + pixel.y * down + c4 * deep + pixel.z * image) + pixel.x % 4;
}

int finished(int sum, int oc) {
    precise float scale = scales[oc] * in_scale;
    precise float product = float(sum) * scale;
    precise float real = product + biases[oc];
    if (relu != 0) {
        real = max(real, 0.0);
    }
    precise float scaled = real * inv_out_scale;
    return int(clamp(roundEven(scaled), float(-128 - out_zp), float(127 - out_zp))) + out_zp;
}

void main() {
    const ivec3 at = ivec3(gl_GlobalInvocationID);
    const ivec3 pixel = ivec3(at.x, at.y % height, at.y / height);
    const int oc4 = at.z, ic4s = (in_channels + 3) / 4;
    if (at.x >= width || pixel.z >= batches || 4 * oc4 >= out_channels) {
        return;
    }
    int word = 0;
    for (int k = 0; k < 4; k++) {
        const int oc = 4 * oc4 + k;
        int value = out_zp;
        if (oc < out_channels) {
            int sum = 0;
            for (int c4 = 0; c4 < ic4s; c4++) {
                const int x = x_words[word_in(x_across, x_down, x_deep, x_image, pixel, c4)];
                const int w = weights[oc * ic4s + c4];
                for (int lane = 0; lane < 4; lane++) {
                    sum += (byte_of(x, lane) - in_zp) * byte_of(w, lane);
                }
            }
            value = finished(sum, oc);
        }
        word |= (value & 255) << (8 * k);
    }
    y_words[word_in(y_across, y_down, y_deep, y_image, pixel, oc4)] = word;
}
