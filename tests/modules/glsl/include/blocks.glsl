// The blocks of 4 x 4 elements that the invocations of an elementwise kernel take.
//
// A block config has the bits of a hashed layout: the order in which blocks are numbered, the two dims that are cut
// into fours, and these fours.
#ifndef BLOCKS_GLSL
#define BLOCKS_GLSL

#include "include/tensor.glsl"

// Blocks along each of the four dims.
uvec4 blocks_of(Tensor t, uint config) {
    uvec4 blocks = t.sizes[0];
    blocks[inner_dim(config)] = div_up(blocks[inner_dim(config)], inner_size(config));
    blocks[outer_dim(config)] = div_up(blocks[outer_dim(config)], outer_size(config));
    return blocks;
}

uvec4 first_element(uvec4 block, uint config) {
    block[inner_dim(config)] *= inner_size(config);
    block[outer_dim(config)] *= outer_size(config);
    return block;
}

// The first element of a block by its number; false if there are fewer blocks.
bool block_by_number(Tensor t, uint config, uint number, out Coord at) {
    const uvec4 blocks = blocks_of(t, config);
    for (uint place = 0u; place < 4u; place++) {
        const uint dim = layout_dim(config, place);
        at.whcn[dim] = number % blocks[dim];
        number /= blocks[dim];
    }
    at.whcn = first_element(at.whcn, config);
    for (uint dim = 0u; dim < 4u; dim++) {
        at.beyond[dim] = number % t.sizes[1][dim];
        number /= t.sizes[1][dim];
    }
    return number == 0u;
}

// The first element of a block by its place along W, H and (N, C); false if there are fewer blocks.
bool block_by_place(Tensor t, uint config, uvec3 place, out Coord at) {
    const uvec4 blocks = blocks_of(t, config);
    const uvec4 block = uvec4(place.xy, place.z % blocks.z, place.z / blocks.z);
    at = Coord(first_element(block, config), uvec4(0));
    return all(lessThan(block, blocks));
}

// How many elements of a word that begins at a coordinate and lies along a dim are inside the tensor: 0 to 4.
uint lanes_inside(Tensor t, uvec4 whcn, uint dim) {
    uvec4 outside = whcn;
    outside[dim] = 0u;
    if (any(greaterThanEqual(outside, t.sizes[0])) || whcn[dim] >= t.sizes[0][dim]) {
        return 0u;
    }
    return min(4u, t.sizes[0][dim] - whcn[dim]);
}

uvec4 moved(uvec4 whcn, uint dim, uint by) {
    whcn[dim] += by;
    return whcn;
}

#endif
