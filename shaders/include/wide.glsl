// Unsigned integers of 64 bits, the low word first.
#ifndef REFSIM_WIDE_GLSL
#define REFSIM_WIDE_GLSL

uvec2 added(uvec2 a, uvec2 b) {
    uint carry, low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}
uvec2 subtracted(uvec2 a, uvec2 b) {
    uint borrow, low = usubBorrow(a.x, b.x, borrow);
    return uvec2(low, a.y - b.y - borrow);
}
bool above(uvec2 a, uvec2 b) {
    return a.y > b.y || a.y == b.y && a.x > b.x;
}

// by 0 to 63 bits
uvec2 left(uvec2 a, uint by) {
    if (by >= 32u) return uvec2(0u, a.x << (by - 32u));
    return by == 0u ? a : uvec2(a.x << by, a.y << by | a.x >> (32u - by));
}
uvec2 right(uvec2 a, uint by) {
    if (by >= 32u) return uvec2(a.y >> (by - 32u), 0u);
    return by == 0u ? a : uvec2(a.x >> by | a.y << (32u - by), a.y >> by);
}

// the upper half of the product
uvec2 times(uvec2 a, uvec2 b) {
    uvec2 low, cross, other, high;
    umulExtended(a.x, b.x, low.y, low.x);
    umulExtended(a.x, b.y, cross.y, cross.x);
    umulExtended(a.y, b.x, other.y, other.x);
    umulExtended(a.y, b.y, high.y, high.x);
    uint one, two, middle = uaddCarry(low.y, cross.x, one);
    uaddCarry(middle, other.x, two);
    return added(added(high, uvec2(cross.y, 0u)), added(uvec2(other.y, 0u), uvec2(one + two, 0u)));
}

#endif
