"""Which operators of torch a file may name: functions of tensors, and nothing that opens files or skips checks."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from refsim import aten
from refsim.aten import bridge
from refsim.aten.allowed import ALLOWED, PLACE, is_allowed
from refsim.core.errors import UnknownOperatorError

REFUSED = (
    "aten::from_file", "aten.from_file.default", "aten::from_file.out", "aten::segment_reduce", "aten::set_",
    "aten::resize_", "aten::_reshape_alias", "aten::randn", "aten::bernoulli", "aten::lstm.input", "aten::gcd",
    "aten::empty_strided", "aten::relu_", "aten::_pin_memory", "prims::device_put", "inductor::_alloc_from_pool",
    "quantized::conv2d_unpack", "aten::no_such_operator",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_file_may_not_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "find_spec", lambda _: object())  # as where torch is installed
    with pytest.raises(
        UnknownOperatorError, match=f"node 3: not among the operators .* got {name}, need .*{PLACE}"
    ):
        aten.find(name, "node 3")


def test_the_place_exists_and_names_stand_once() -> None:
    assert (Path(__file__).parents[2] / PLACE).is_file()
    text = (Path(__file__).parents[2] / PLACE).read_text().split('"""', 2)[2]
    for names in ALLOWED.values():
        assert all(text.split().count(name) == 1 for name in names if name not in ("is", "for"))
    assert is_allowed("aten", "erfinv") and not is_allowed("prims", "erfinv")


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_what_torch_runs_is_known_to_it_and_writes_nowhere() -> None:
    import torch

    (result,) = aten.find("aten::logaddexp", "x").run([np.zeros(2, np.float32)] * 2, "x")
    assert result == pytest.approx(np.log(np.float32(2)))
    for name in sorted(ALLOWED["aten"]):
        packet = getattr(torch.ops.aten, name)
        overloads = [getattr(packet, overload)._schema for overload in packet.overloads()]
        tensors = [schema for schema in overloads if str(schema.arguments[0].type).startswith("Tensor")]
        for schema in tensors:
            written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
            assert all(a in {o.name for o in schema.arguments if o.is_out} for a in written), schema


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_no_file_appears(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with pytest.raises(UnknownOperatorError, match="not among the operators"):
        aten.find("aten::from_file", "x").run([str(target), True, 1024], "x")
    assert not target.exists()
