"""A rewritten module computes what its twin does: the same kernel, written with storage buffers by hand."""

from __future__ import annotations

import numpy as np
import pytest
from spirv.glsl import BUILDS, compiled, validate

from refsim.spirv.module import Module
from refsim.spirv.reflect import interface
from refsim.spirv.rewrite import Rewritten, for_kompute
from refsim_gpu import spirv
from refsim_gpu.kompute import Device

GUARD = np.uint32(0x5A3CC3A5)
GUARD_WORDS = 16

COMMON = """
layout(constant_id = 3) const int PLUS = 0;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
struct Pair { ivec2 a; int b; };
"""

#: Every kind of descriptor. Positions run one past each edge, so fetches and writes leave the images on all sides.
IMAGES = (
    COMMON
    + """
layout(set = 0, binding = 0) writeonly buffer Out { int t_out[]; };
layout(set = 0, binding = 1) readonly buffer In { ivec4 t_in[]; };
layout(set = 0, binding = 2) uniform isampler2D t_weight;
layout(set = 0, binding = 3) uniform sampler3D t_float;
layout(set = 0, binding = 4, rgba32f) uniform writeonly image3D t_image;
layout(set = 0, binding = 5, rgba32i) uniform iimage2D t_plane;
layout(set = 0, binding = 6, r32ui) uniform uimage2D t_single;
layout(set = 0, binding = 7) uniform Meta { ivec4 sizes[2]; mat3x2 m; uvec2 count; Pair pairs[2]; float last; } meta;
layout(set = 0, binding = 8, rg32f) uniform image3D t_pair;
layout(push_constant) uniform Push { float scale; int zp; } push;

ivec4 fetched(isampler2D image, ivec2 pos) { return texelFetch(image, pos, 0); }
ivec4 twice(isampler2D image, ivec2 pos) { return fetched(image, pos) * 2; }
#define WEIGHT(pos) (twice(t_weight, pos) + fetched(t_weight, pos))
#define FLOAT(pos) texelFetch(t_float, pos, 0)
#define STORE_IMAGE(pos, value) imageStore(t_image, pos, value)
#define PLANE(pos) imageLoad(t_plane, pos)
#define STORE_PLANE(pos, value) imageStore(t_plane, pos, value)
#define SINGLE(pos) imageLoad(t_single, pos)
#define STORE_SINGLE(pos, value) imageStore(t_single, pos, value)
#define PAIR(pos) imageLoad(t_pair, pos)
#define STORE_PAIR(pos, value) imageStore(t_pair, pos, value)
#define SIZE_WEIGHT textureSize(t_weight, 0)
#define SIZE_IMAGE imageSize(t_image)
"""
)
BUFFERS = (
    COMMON
    + """
layout(constant_id = 16) const int WX = 1;
layout(constant_id = 17) const int WY = 1;
layout(constant_id = 18) const int FX = 1;
layout(constant_id = 19) const int FY = 1;
layout(constant_id = 20) const int FZ = 1;
layout(std430, set = 0, binding = 0) buffer Out { int t_out[]; };
layout(std430, set = 0, binding = 1) readonly buffer In { ivec4 t_in[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weight { ivec4 t_weight[]; };
layout(std430, set = 0, binding = 3) readonly buffer Float { vec4 t_float[]; };
layout(std430, set = 0, binding = 4) buffer Image { vec4 t_image[]; };
layout(std430, set = 0, binding = 5) buffer Plane { ivec4 t_plane[]; };
layout(std430, set = 0, binding = 6) buffer Single { uint t_single[]; };
layout(std140, set = 0, binding = 7) readonly buffer Meta {
  ivec4 sizes[2]; mat3x2 m; uvec2 count; Pair pairs[2]; float last;
} meta;
layout(std430, set = 0, binding = 8) buffer PairOf { vec2 t_pair[]; };
layout(push_constant) uniform Push { float scale; int zp; } push;

bool in2(ivec2 p) { return p.x >= 0 && p.y >= 0 && p.x < WX && p.y < WY; }
bool in3(ivec3 p) { return p.x >= 0 && p.y >= 0 && p.z >= 0 && p.x < FX && p.y < FY && p.z < FZ; }
int at2(ivec2 p) { return p.x + WX * p.y; }
int at3(ivec3 p) { return p.x + FX * (p.y + FY * p.z); }
ivec4 weight(ivec2 p) { if (in2(p)) return t_weight[at2(p)]; return ivec4(0); }
vec4 floats(ivec3 p) { if (in3(p)) return t_float[at3(p)]; return vec4(0); }
ivec4 plane(ivec2 p) { if (in2(p)) return t_plane[at2(p)]; return ivec4(0); }
uvec4 single(ivec2 p) { if (in2(p)) return uvec4(t_single[at2(p)], 0, 0, 1); return uvec4(0, 0, 0, 1); }
vec4 pair(ivec3 p) { if (in3(p)) return vec4(t_pair[at3(p)], 0, 1); return vec4(0); }
#define WEIGHT(pos) (weight(pos) * 3)
#define FLOAT(pos) floats(pos)
#define STORE_IMAGE(pos, value) if (in3(pos)) t_image[at3(pos)] = value
#define PLANE(pos) plane(pos)
#define STORE_PLANE(pos, value) if (in2(pos)) t_plane[at2(pos)] = value
#define SINGLE(pos) single(pos)
#define STORE_SINGLE(pos, value) if (in2(pos)) t_single[at2(pos)] = (value).x
#define PAIR(pos) pair(pos)
#define STORE_PAIR(pos, value) if (in3(pos)) t_pair[at3(pos)] = (value).xy
#define SIZE_WEIGHT ivec2(WX, WY)
#define SIZE_IMAGE ivec3(FX, FY, FZ)
"""
)
#: Each invocation reads and writes its own texels only, so the order of invocations cannot show.
BODY = """
void main() {
  ivec3 pos = ivec3(gl_GlobalInvocationID) - 1;
  ivec3 size = SIZE_IMAGE;
  ivec4 sum = WEIGHT(pos.xy) + t_in[0] * meta.sizes[1] + int(meta.count.y) * meta.pairs[1].a.xyxy + meta.pairs[0].b;
  vec4 texel = FLOAT(pos) * push.scale + meta.m[2].xyxy + meta.last + PAIR(pos);
  for (int i = -1; i <= SIZE_WEIGHT.x; i += 1) {
    sum += WEIGHT(ivec2(i, pos.y)) * (i + PLUS);
    if (i == size.z) {
      STORE_IMAGE(pos, texel);
    }
  }
  if (i_am_first) {
    uvec4 value = SINGLE(pos.xy) + uint(sum.y);
    STORE_SINGLE(pos.xy, value);
    ivec4 old = PLANE(pos.xy);
    STORE_PLANE(pos.xy, old + sum + ivec4(size, SIZE_WEIGHT.y));
  }
  STORE_IMAGE(pos, texel + 1);
  STORE_PAIR(pos, texel * 2);
  ivec3 all = size + 2;
  t_out[pos.x + 1 + all.x * (pos.y + 1 + all.y * (pos.z + 1))] = sum.x + sum.w + push.zp + t_out_length;
}
""".replace("i_am_first", "pos.z == 0").replace("t_out_length", "t_out.length()")

#: Width and height of the 2-d images, width, height and depth of the 3-d ones; counts that are no multiples of 4.
EXTENTS = [((5, 3), (5, 3, 2)), ((1, 1), (1, 1, 1)), ((4, 8), (3, 7, 5)), ((9, 2), (2, 9, 1))]


def memory(words: np.ndarray, guard: int) -> np.ndarray:
    """The words between guards."""
    around = np.full(guard, GUARD)
    return np.concatenate([around, np.ascontiguousarray(words).view(np.uint32).reshape(-1), around])


def arrays(plane: tuple[int, int], volume: tuple[int, int, int], seed: int) -> list[np.ndarray]:
    """The words of each binding, by number."""
    random = np.random.default_rng(seed)
    texels, cells = plane[0] * plane[1], volume[0] * volume[1] * volume[2]
    out = (volume[0] + 2) * (volume[1] + 2) * (volume[2] + 2)
    integers = lambda *shape: random.integers(-(2**31), 2**31, shape, np.int32)  # noqa: E731
    floats = lambda *shape: random.integers(-1000, 1000, shape).astype(np.float32)  # noqa: E731
    meta = integers(256 // 4)
    meta[8:28] = floats(20).view(np.int32)  # the matrix, among others
    meta[20:56] = np.where(np.arange(36) % 3, meta[20:56], 3)
    meta[28:64] = integers(36) % 1000
    return [
        integers(out),
        integers(1, 4),
        integers(texels, 4),
        floats(cells, 4),
        floats(cells, 4),
        integers(texels, 4),
        integers(texels),
        meta,
        floats(cells, 2),
    ]


def run(
    device: Device,
    code: bytes,
    words: list[np.ndarray],
    spec: list[int],
    grid: tuple[int, int, int],
    local: tuple,
) -> list[np.ndarray]:
    tensors = [device.tensor(array) for array in words]
    algorithm = device.algorithm(code, tensors, grid, spec, [np.float32(0.5).view(np.uint32), 7], local=local)
    kp = device.kp
    operations = kp.OpTensorSyncDevice(tensors), device.dispatch(algorithm), kp.OpTensorSyncLocal(tensors)
    device.run(device.recorded(*operations))
    return [np.array(tensor.data()) for tensor in tensors]


def spec_words(made: Rewritten, local: tuple[int, ...], extents: dict[int, tuple[int, ...]]) -> list[int]:
    """Specialization constants as Kompute wants them: all ids from 0 on."""
    values = {0: local[0], 1: local[1], 2: local[2], 3: 11}
    for binding, ids in made.extent_ids.items():
        values |= zip(ids, extents[binding], strict=True)
    return [values.get(number, 0) for number in range(max(values) + 1)]


@pytest.mark.parametrize("guard", [0, GUARD_WORDS])
@pytest.mark.parametrize("build", BUILDS)
def test_every_descriptor_kind_equals_its_twin(device: Device, build: str, guard: int) -> None:
    module = Module.parse(compiled(IMAGES + BODY, build), build)
    made = for_kompute(module, spec_count=4, guard_words=guard)
    validate(made.code)
    assert Module.parse(made.code, build).version <= (1, 3)  # of Vulkan 1.1
    assert {row.kind for row in made.bindings} == {"storage buffer"}
    assert interface(Module.parse(made.code, build)).bindings == made.bindings
    twin = compiled(BUFFERS + BODY, "O0")
    for seed, (plane, volume) in enumerate(EXTENTS):
        local, grid = (1, 1, 1), (volume[0] + 2, volume[1] + 2, volume[2] + 2)
        extents = {2: plane, 3: volume, 4: volume, 5: plane, 6: plane, 8: volume}
        words = arrays(plane, volume, seed)
        want_spec = [*local, 11, *[0] * 12, *plane, *volume]
        want = run(device, twin, [memory(array, 0) for array in words], want_spec, grid, local)
        arrayed = {row.number for row in made.bindings if row.stride}
        guards = [guard if number in arrayed else 0 for number in range(len(words))]
        given = [memory(array, width) for array, width in zip(words, guards, strict=True)]
        got = run(device, made.code, given, spec_words(made, local, extents), grid, local)
        for number, (mine, theirs, width) in enumerate(zip(got, want, guards, strict=True)):
            inner = mine[width : len(mine) - width]
            assert inner.tobytes() == theirs.tobytes(), f"binding {number} of {plane}, {volume}"
            assert (mine[:width] == GUARD).all() and (mine[len(mine) - width :] == GUARD).all(), number
        assert want[0].tobytes() != memory(words[0], 0).tobytes()  # the kernel did something


STRAY = """
layout(local_size_x = 1) in;
layout(set = 0, binding = 0) buffer Out { int t_out[]; };
layout(push_constant) uniform Push { int at; int value; } push;
void main() { t_out[push.at] = push.value; }
"""


@pytest.mark.parametrize("at", [-16, -1, 0, 6, 7, 22])
def test_a_stray_store_hits_a_guard(device: Device, at: int) -> None:
    module = Module.parse(compiled(STRAY), "stray")
    made = for_kompute(module, spec_count=0, guard_words=GUARD_WORDS)
    words = memory(np.zeros(7, np.int32), GUARD_WORDS)
    tensor = device.tensor(words)
    algorithm = device.algorithm(made.code, [tensor], (1, 1, 1), (), (at & 0xFFFFFFFF, 1))
    kp = device.kp
    device.run(
        device.recorded(
            kp.OpTensorSyncDevice([tensor]), device.dispatch(algorithm), kp.OpTensorSyncLocal([tensor])
        )
    )
    assert np.flatnonzero(np.array(tensor.data()) != words).tolist() == [GUARD_WORDS + at]


@pytest.mark.parametrize("name", ["q8ta_relu", "q8ta_add", "q8ta_clone"])
def test_modules_without_images_are_left_alone(name: str) -> None:
    code = spirv.load(name)
    made = for_kompute(Module.parse(code, name), spec_count=8)
    assert made.code == code and not made.extent_ids
