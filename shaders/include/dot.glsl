// dot4(a, b): the sum of four products of signed bytes, each operand packed four bytes to a word (lane 0 in the
// low byte). Exact: the extreme, 4 * (-128 * -128) = 65536, is far inside an int.
//
// Normally one OpSDot. The compiler's own dot-product extension is newer than the compilers that
// distributions ship, so the instruction is spelled out through GL_EXT_spirv_intrinsics. Define REFSIM_NO_DOT
// before including for a device without VK_KHR_shader_integer_dot_product; the result is the same.
#ifndef REFSIM_DOT_GLSL
#define REFSIM_DOT_GLSL

#ifdef REFSIM_NO_DOT

int dot4(int a, int b) {
    int sum = 0;
    for (int bit = 0; bit < 32; bit += 8) {
        // bitfieldExtract of an int extends the sign
        sum += bitfieldExtract(a, bit, 8) * bitfieldExtract(b, bit, 8);
    }
    return sum;
}

#else

#extension GL_EXT_spirv_intrinsics : require

// 6019 = DotProduct, 6018 = DotProductInput4x8BitPacked, 4450 = OpSDot; SPIR-V's names have no GLSL spelling
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int refsim_op_sdot(int a, int b, spirv_literal int packed_format);

int dot4(int a, int b) {
    return refsim_op_sdot(a, b, 0);  // 0 = PackedVectorFormat4x8Bit
}

#endif
#endif
