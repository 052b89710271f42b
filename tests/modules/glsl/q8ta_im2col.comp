// The windows of a convolution in a 4W4C scratch tensor whose channels are (group, tap, input channel). An invocation
// writes one block: four columns x four of these channels.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/conv.glsl"
#include "include/lanes.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const uint UNUSED = 1;
layout(constant_id = 4) const uint OUT_LAYOUT = 0;
layout(constant_id = 5) const uint IN_LAYOUT = 0;

layout(set = 0, binding = 0) restrict writeonly buffer Out { ivec4 out_blocks[]; };
layout(set = 0, binding = 1) restrict readonly buffer In { int in_words[]; };
layout(set = 0, binding = 2) uniform OutTensor { Tensor out_tensor; };
layout(set = 0, binding = 3) uniform InTensor { Tensor in_tensor; };
layout(set = 0, binding = 4) uniform ConvParams { Conv conv; };
layout(push_constant) uniform Push { int in_zp; };

// The word of four input channels that a scratch column has at its k4.
int source(uvec2 to, uint k4, uint n) {
    const uint words = in_words_per_group(conv), taps = uint(conv.kernel.x * conv.kernel.y);
    const uint group = k4 / (taps * words), tap = k4 / words % taps, ic4 = k4 % words;
    const ivec2 at = under(conv, to, uvec2(tap % uint(conv.kernel.x), tap / uint(conv.kernel.x)));
    if (!in_image(in_tensor, at)) {
        return splat(in_zp);
    }
    return in_words[word_at(in_tensor, IN_LAYOUT, uvec4(at, 4u * (group * words + ic4), n))];
}

void main() {
    const uvec4 sizes = out_tensor.sizes[0];
    const uint k4s = sizes.z / 4u, columns4 = sizes.x / 4u;
    const uint k4 = gl_GlobalInvocationID.x % k4s, rest = gl_GlobalInvocationID.x / k4s;
    const uint column4 = rest % columns4, row = rest / columns4;
    if (row >= sizes.y) {
        return;
    }
    for (uint n = 0u; n < sizes.w; n++) {
        ivec4 block;
        for (uint column = 0u; column < 4u; column++) {
            block[column] = source(uvec2(4u * column4 + column, row), k4, n);
        }
        const uvec4 to = uvec4(4u * column4, row, 4u * k4, n);
        out_blocks[element_at(out_tensor, OUT_LAYOUT, to) / 16u] = block;
    }
}
