// accumulate(a, b, sum): sum plus four products of signed bytes. With UNSIGNED_DOT: of unsigned bytes.
//
// FALLBACK takes the bytes apart. Otherwise one instruction of SPV_KHR_integer_dot_product; the compiler's own
// extension is newer than the compilers of distributions.
#ifndef DOT_GLSL
#define DOT_GLSL

#ifdef FALLBACK

#include "include/lanes.glsl"

int accumulate(int a, int b, int sum) {
    for (uint k = 0u; k < 4u; k++) {
        sum += lane(a, k) * lane(b, k);
    }
    return sum;
}

#else

#extension GL_EXT_spirv_intrinsics : require

// 6018 = DotProductInput4x8BitPacked, 6019 = DotProduct; 0 = PackedVectorFormat4x8Bit
#ifdef UNSIGNED_DOT

// 4451 = OpUDot
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4451)
uint op_udot(uint a, uint b, spirv_literal int packed_format);

uint accumulate(uint a, uint b, uint sum) {
    return sum + op_udot(a, b, 0);
}

#else

// 4453 = OpSDotAccSat; sums here never saturate
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4453)
int op_sdot_acc_sat(int a, int b, int sum, spirv_literal int packed_format);

int accumulate(int a, int b, int sum) {
    return op_sdot_acc_sat(a, b, sum, 0);
}

#endif
#endif

#endif
