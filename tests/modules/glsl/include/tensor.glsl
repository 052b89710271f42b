// A tensor in a buffer: its uniform block, and where an element lies.
//
// Dims are numbered in WHCN order. Strides count blocks. A hashed layout has, from its lowest bits on: four dims, the
// fastest first (4 bits each), the inner dim, the outer dim, the inner block size, the outer block size.
#ifndef TENSOR_GLSL
#define TENSOR_GLSL

struct Tensor {
    uvec4 sizes[2];
    uvec4 dim_order[2];
    uvec4 strides[2];
    uvec2 counts;  // dims; elements of the buffer, padding included
};

// Four dims, and four more outside of them; no layout blocks those.
struct Coord {
    uvec4 whcn;
    uvec4 beyond;
};

uint layout_dim(uint hashed, uint place) {
    return hashed >> (4u * place) & 15u;
}

uint inner_dim(uint hashed) {
    return hashed >> 16u & 15u;
}

uint outer_dim(uint hashed) {
    return hashed >> 20u & 15u;
}

uint inner_size(uint hashed) {
    return hashed >> 24u & 15u;
}

uint outer_size(uint hashed) {
    return hashed >> 28u;
}

uint block_numel(uint hashed) {
    return inner_size(hashed) * outer_size(hashed);
}

uint div_up(uint value, uint by) {
    return (value + by - 1u) / by;
}

uint dot_u(uvec4 a, uvec4 b) {
    uvec4 products = a * b;
    return products.x + products.y + products.z + products.w;
}

// The element's index in the buffer; bytes, if the tensor is int8.
uint element_at(Tensor t, uint hashed, Coord at) {
    const uint inner = inner_dim(hashed), outer = outer_dim(hashed);
    uvec4 block = at.whcn;
    block[inner] /= inner_size(hashed);
    block[outer] /= outer_size(hashed);
    const uint within =
        at.whcn[outer] % outer_size(hashed) * inner_size(hashed) + at.whcn[inner] % inner_size(hashed);
    return (dot_u(block, t.strides[0]) + dot_u(at.beyond, t.strides[1])) * block_numel(hashed) + within;
}

uint element_at(Tensor t, uint hashed, uvec4 whcn) {
    return element_at(t, hashed, Coord(whcn, uvec4(0)));
}

// The index of the word that begins at an element.
uint word_at(Tensor t, uint hashed, uvec4 whcn) {
    return element_at(t, hashed, whcn) / 4u;
}

// The element that lies at an index of the buffer; it may be padding. Four dims.
uvec4 coord_at(Tensor t, uint hashed, uint element) {
    uint block = element / block_numel(hashed), within = element % block_numel(hashed);
    uvec4 at = uvec4(0);
    for (uint place = 4u; place-- > 0u;) {
        const uint dim = layout_dim(hashed, place);
        at[dim] = block / t.strides[0][dim];
        block %= t.strides[0][dim];
    }
    at[inner_dim(hashed)] = at[inner_dim(hashed)] * inner_size(hashed) + within % inner_size(hashed);
    at[outer_dim(hashed)] = at[outer_dim(hashed)] * outer_size(hashed) + within / inner_size(hashed);
    return at;
}

// The size of a dim in the buffer, padding included.
uint padded_size(Tensor t, uint hashed, uint dim) {
    uint block = 1u;
    if (dim == inner_dim(hashed)) {
        block = inner_size(hashed);
    } else if (dim == outer_dim(hashed)) {
        block = outer_size(hashed);
    }
    return div_up(t.sizes[0][dim], block) * block;
}

#endif
