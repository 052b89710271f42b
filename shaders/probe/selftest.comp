#version 450
// Mixes one word of every tensor type with a specialization constant and a push word, so that a host that
// gets any upload, binding, constant or download wrong cannot reproduce the result. Integers only: the
// answer must be the same on every device.

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(constant_id = 1) const uint MULTIPLIER = 1;

// Every tensor is read as raw words; binding 3 holds f64, two words to an element.
layout(std430, set = 0, binding = 0) readonly buffer F32 { uint f32_words[]; };
layout(std430, set = 0, binding = 1) readonly buffer I32 { uint i32_words[]; };
layout(std430, set = 0, binding = 2) readonly buffer U32 { uint u32_words[]; };
layout(std430, set = 0, binding = 3) readonly buffer F64 { uvec2 f64_words[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Out { uint out_words[]; };

layout(push_constant) uniform Push { uint offset; uint count; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= count) {
        return;
    }
    uint mixed = f32_words[i] * MULTIPLIER ^ i32_words[i];
    mixed = mixed * MULTIPLIER ^ u32_words[i];
    mixed = mixed * MULTIPLIER ^ f64_words[i].x;
    mixed = mixed * MULTIPLIER ^ f64_words[i].y;
    out_words[i] = mixed + offset;
}
