// Index math of packed buffers, the formulas of refsim/core/index.py. A tensor is its meta words (sizes, then strides in
// blocks, WHCN) from push[at] on, and a hashed layout that is a specialization constant, so that every
// division below is by a constant once the pipeline is made.
#ifndef REFSIM_INDEX_GLSL
#define REFSIM_INDEX_GLSL

#include "launch.glsl"

int dim_at(uint hashed, int place) {  // place 0 is the fastest dim
    return int(hashed >> (4 * place)) & 15;
}
int inner_dim(uint hashed) { return int(hashed >> 16) & 15; }
int outer_dim(uint hashed) { return int(hashed >> 20) & 15; }
int inner_block(uint hashed) { return int(hashed >> 24) & 15; }
int outer_block(uint hashed) { return int(hashed >> 28) & 15; }
int block_numel(uint hashed) { return inner_block(hashed) * outer_block(hashed); }

int block_extent(uint hashed, int dim) {
    return dim == inner_dim(hashed) ? inner_block(hashed) : dim == outer_dim(hashed) ? outer_block(hashed) : 1;
}

// A component by number, and the vector with one component moved: a subscript that only the specialization makes
// constant would send the vector through memory.
int along(ivec4 p, int dim) {
    return dim == W ? p.x : dim == H ? p.y : dim == C ? p.z : p.w;
}
ivec4 moved(ivec4 p, int dim, int by) {
    return p + by * ivec4(dim == W, dim == H, dim == C, dim == N);
}

// coordinates are (w, h, c, n) and never negative, so unsigned division serves
int blocks(uint hashed, int dim, int along) {
    return int(uint(along) / uint(block_extent(hashed, dim)));
}

int block_idx(int at, uint hashed, ivec4 p) {
    return blocks(hashed, W, p.x) * push[at + W_STRIDE] + blocks(hashed, H, p.y) * push[at + H_STRIDE] +
           blocks(hashed, C, p.z) * push[at + C_STRIDE] + p.w * push[at + N_STRIDE];
}

int intra_block_idx(uint hashed, ivec4 p) {
    uint inner = uint(along(p, inner_dim(hashed))) % uint(inner_block(hashed));
    uint outer = uint(along(p, outer_dim(hashed))) % uint(outer_block(hashed));
    return int(outer) * inner_block(hashed) + int(inner);
}

int buf_idx(int at, uint hashed, ivec4 p) {
    return block_idx(at, hashed, p) * block_numel(hashed) + intra_block_idx(hashed, p);
}

int word_idx(int at, uint hashed, ivec4 p) {
    return buf_idx(at, hashed, p) >> 2;
}

bool inside(int at, ivec4 p) {
    return p.x < push[at] && p.y < push[at + H] && p.z < push[at + C] && p.w < push[at + N];
}

// How many of the four lanes that begin at a coordinate hold elements; 0 for a word of padding.
int lanes_inside(int at, uint hashed, ivec4 p) {
    int dim = inner_dim(hashed);
    return inside(at, p) ? min(4, push[at + dim] - along(p, dim)) : 0;
}

ivec4 lane_coord(uint hashed, ivec4 p, int k) {
    return moved(p, inner_dim(hashed), k);
}

// Words of a block: 1 element each in a float buffer, 4 in an int8 one.
int words_per_block(uint hashed) {
    int numel = block_numel(hashed);
    return numel > 1 ? numel >> 2 : 1;
}

// Elements of a word along the packed dim.
int word_elements(uint hashed) {
    return block_numel(hashed) > 1 ? 4 : 1;
}

// --- the global_size of kernels that compute each word by itself (refsim/core/launch.py: plane_global_size) ---

struct Plane {
    int first_word;  // number of the plane's first word in the buffer
    int words;       // words of the plane
    ivec4 origin;    // coordinate of its first element
};

Plane this_plane(int at, uint hashed) {
    int second = dim_at(hashed, 2), slowest = dim_at(hashed, 3);
    int number = int(gl_WorkGroupID.y) * PLANE_ROW + int(gl_WorkGroupID.z);
    Plane plane;
    plane.words = push[at + W_STRIDE + second] * words_per_block(hashed);
    plane.first_word = number * plane.words;
    int rows = int(uint(push[at + W_STRIDE + slowest]) / uint(push[at + W_STRIDE + second]));  // blocks of the second slowest
    plane.origin = moved(ivec4(0), second, int(uint(number) % uint(rows)));
    plane.origin = moved(plane.origin, slowest, int(uint(number) / uint(rows)));
    return plane;
}

// Coordinate of the first element of word x of a plane.
ivec4 word_coord(int at, uint hashed, Plane plane, int x) {
    uint per_block = uint(words_per_block(hashed));
    uint block = uint(x) / per_block, intra = uint(x) % per_block;
    int fast = dim_at(hashed, 0), next = dim_at(hashed, 1);
    uint row = uint(push[at + W_STRIDE + next]);  // blocks of the fastest dim
    ivec4 p = moved(plane.origin, fast, int(block % row) * block_extent(hashed, fast));
    p = moved(p, next, int(block / row) * block_extent(hashed, next));
    return moved(p, outer_dim(hashed), int(intra));  // an int8 word holds one element of the outer dim
}

#endif
