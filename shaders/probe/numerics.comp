#version 450
#pragma optimize(off)
#extension GL_KHR_shader_subgroup_basic : require
// What a device makes of one operation on binary32 numbers, one pipeline for each, so that a compiler sees nothing of
// the others, and not optimized, so that what is measured is the device and not the compiler of the SPIR-V. OPERATION counts the rows of OPERATIONS in gpu/probe.py. Bits go in and bits come out.

layout(local_size_x = 64, local_size_y = 1, local_size_z = 1) in;
layout(constant_id = 0) const uint OPERATION = 0;

layout(std430, set = 0, binding = 0) readonly buffer A { int a_bits[]; };
layout(std430, set = 0, binding = 1) readonly buffer B { int b_bits[]; };
layout(std430, set = 0, binding = 2) readonly buffer C { int c_bits[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Out { int out_bits[]; };
layout(push_constant) uniform Push { uint count; };

int measured(float a, float b, float c) {
    switch (OPERATION) {
        case 0u: return floatBitsToInt(round(a));
        case 1u: return floatBitsToInt(roundEven(a));
        case 2u: return floatBitsToInt(fma(a, b, c));
        case 3u: return floatBitsToInt(a * b + c);  // not precise: the compiler may fuse it
        case 4u: {
            precise float product = a * b;
            precise float total = product + c;
            return floatBitsToInt(total);
        }
        case 5u: {
            precise float total = a + b;
            return floatBitsToInt(total);
        }
        case 6u: {
            precise float product = a * b;
            return floatBitsToInt(product);
        }
        case 7u: {
            precise float quotient = a / b;
            return floatBitsToInt(quotient);
        }
        case 8u: return int(a);
        default: return int(gl_SubgroupSize);
    }
}

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < count) {
        out_bits[i] = measured(intBitsToFloat(a_bits[i]), intBitsToFloat(b_bits[i]), intBitsToFloat(c_bits[i]));
    }
}
