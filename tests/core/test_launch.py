"""Launch: words, domains and grids."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some

from refsim.core import launch
from refsim.core.errors import LimitError
from refsim.core.launch import PLANE_ROW, Launch, column_local, plane_global_size, plane_words
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS, Layout
from refsim.core.push import MAX_PUSH_WORDS
from refsim.core.tensor import TensorDesc
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

OUT = TensorDesc((1, 4, 3, 5), "4C")  # type: ignore[arg-type]


@pytest.mark.parametrize("row", (*INT8_LAYOUTS, *FLOAT_LAYOUTS), ids=str)
def test_a_plane_domain_covers_every_word_once(row: Layout) -> None:
    for shape in ((2, 5, 3, 7), (1, 1, 1, 1), (3, 4, 9, 2), (2, 2, 2, 3, 4, 5)):
        desc = TensorDesc(shape, row)
        x, y, z = plane_global_size(desc)
        assert x == plane_words(desc)
        assert x * y * z == desc.words, shape


def test_many_planes_fold_into_rows() -> None:
    desc = TensorDesc((PLANE_ROW + 5, 1, 1, 1), "4W")  # type: ignore[arg-type]
    x, y, z = plane_global_size(desc)
    assert (y, z) == (2, PLANE_ROW)
    assert x * y * z >= desc.words


@pytest.mark.parametrize(
    ("global_size", "local", "tile", "grid"),
    [
        ((1, 1, 1), (64, 1, 1), (1, 1, 1), (1, 1, 1)),
        ((64, 2, 3), (64, 1, 1), (1, 1, 1), (1, 2, 3)),
        ((65, 9, 3), (8, 8, 1), (1, 1, 1), (9, 2, 3)),
        ((65, 9, 3), (8, 8, 1), (4, 2, 1), (3, 1, 3)),
    ],
)
def test_the_grid_is_rounded_up(global_size, local, tile, grid) -> None:
    launch = Launch("q8ta_clone", OUT, (), (), global_size, local, tile)
    assert launch.grid == grid
    assert launch.reached == global_size
    assert launch.invocations == np.prod(grid) * np.prod(local)


def test_a_grid_that_is_too_small_covers_less() -> None:
    """So that a dispatch that floors shows in the bytes of the emulating executor too."""
    launch = Launch("q8ta_clone", OUT, (), (), (100, 1, 1), grid=(1, 1, 1))
    assert launch.reached == (64, 1, 1)


def test_push_words_have_a_limit() -> None:
    Launch("x", OUT, (), (0,) * MAX_PUSH_WORDS, (1, 1, 1))
    with pytest.raises(LimitError, match="x: too many push words; got 33, need <= 32"):
        Launch("x", OUT, (), (0,) * (MAX_PUSH_WORDS + 1), (1, 1, 1))


@pytest.mark.parametrize("name", OPS)
def test_launches_of_every_operator(name: str) -> None:
    """The words are words, the grid is legal on every device, and the kernel named is one."""
    for case in some(OPS[name]):
        for step in bind(case).call.dispatches():
            launch = step.launch
            kernel = OPS[launch.shader].kernel
            assert kernel is not None
            assert (len(kernel.push), len(kernel.spec)) == (len(launch.push), len(launch.spec))
            assert all(0 <= word < 1 << 32 for word in (*launch.push, *launch.spec))
            assert all(1 <= count <= 65535 for count in launch.grid)
            assert np.prod(launch.local) <= 256, "more than the GPUs of today all allow"
            assert launch.reached == launch.global_size
            assert launch.out.words >= 1


def test_a_size_that_counts_nothing_is_refused_where_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong arithmetic would else be told by whatever divides by it, or by the limits of a device."""
    monkeypatch.setattr(launch, "PLANE_ROW", -4)
    with pytest.raises(LimitError, match=r"global size that counts nothing; got \(\d+, -?\d+, -4\)") as told:
        plane_global_size(OUT)
    assert "plane_global_size" in [frame.name for frame in told.traceback]
    monkeypatch.setattr(launch, "min", lambda *sizes: 128 if len(sizes) == 2 else min(*sizes), raising=False)
    with pytest.raises(LimitError, match=r"workgroup that counts nothing; got \(128, 0, 1\)"):
        column_local(OUT, 4)
