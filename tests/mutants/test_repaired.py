"""Where a search for a repair says that a bug of a shader is."""

from __future__ import annotations

import pytest
from needed import needs_device

from mutants.generated.change import Change
from mutants.repaired import SHADERS, Target, tried


@pytest.mark.long
def test_what_works_around_a_bug_does_not_hide_the_line_that_has_it() -> None:
    """Another condition two lines above leads round the loop; the loop's line is told beside it."""
    file, statement = "include/elementwise.glsl", "for (int t = 0; t < 4; ++t)"
    source = (SHADERS / file).read_text()
    begin = source.index(statement, source.index("ivec4 four")) + statement.index("4")
    change = Change(file, source, begin, begin + 1, "0", "constant", "main", statement)
    with needs_device():
        found = tried(Target.own("int8x4_to_nchw"), change, "-O0", 300.0)
    assert found is not None and found.repaired
    assert found.among and not found.named, str(found)
