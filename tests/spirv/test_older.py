"""Modules of SPIR-V 1.4 to 1.6 as modules of 1.3: what they bind and how large their workgroups are stays."""

from __future__ import annotations

import pytest
from spirv.glsl import BUILDS, EVERYTHING, compiled, validate

from refsim.spirv.module import Module, Section
from refsim.spirv.older import lowered
from refsim.spirv.opcodes import Op
from refsim.spirv.reflect import interface
from refsim.spirv.rewrite import for_kompute

NEWER = [
    build for build, options in BUILDS.items() if "--target-spv=spv1.0" not in options and len(options) == 3
]

#: A choice between two vectors by one truth value is an instruction of 1.4.
CHOICE = """
layout(local_size_x = 4, local_size_y = 2) in;
layout(set = 0, binding = 0) buffer Out { vec4 t_out[]; };
void main() {
  vec4 x = t_out[1], y = t_out[2];
  t_out[0] = x.x > 1.0 ? x : y;
}
"""


#: With a size that a constant sets, and one that has a name.
PLAIN = """
layout(local_size_x_id = 0, local_size_y = 2, local_size_z_id = 2) in;
layout(set = 0, binding = 0) buffer Out { uint t_out[]; };
layout(push_constant) uniform Push { uint at; } push;
shared uint held[64];
void main() {
  held[gl_LocalInvocationIndex] = gl_WorkGroupSize.x;
  barrier();
  t_out[push.at] = held[0];
}
"""


@pytest.mark.parametrize("build", NEWER)
def test_what_needs_no_newer_version_is_written_as_an_older_one(build: str) -> None:
    module = Module.parse(compiled(PLAIN, build), build)
    work = module.copy()
    lowered(work)
    assert module.version > work.version == (1, 3)
    validate(work.to_bytes())
    again = Module.parse(work.to_bytes(), build)
    assert interface(again) == interface(module)
    assert not [row for row in again.sections[Section.EXECUTION_MODE] if row.op == Op.EXECUTION_MODE_ID]
    rewritten = Module.parse(for_kompute(Module.parse(compiled(EVERYTHING, build), build), 6).code, build)
    assert rewritten.version == (1, 3)
    validate(rewritten.to_bytes())


@pytest.mark.parametrize("source", [CHOICE, EVERYTHING], ids=["a choice of vectors", "images"])
def test_what_needs_a_newer_version_stays(source: str) -> None:
    module = Module.parse(compiled(source, "spv15"), "newer")
    work = module.copy()
    lowered(work)
    assert work.to_bytes() == module.to_bytes()


@pytest.mark.parametrize("build", ["O", "spv10"])
def test_an_old_module_stays_as_it_is(build: str) -> None:
    work = Module.parse(code := compiled(EVERYTHING, build), build)
    lowered(work)
    assert work.to_bytes() == code
