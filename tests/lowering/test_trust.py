"""A .pt2 file that carries code: it is refused with the reason, and nothing runs unless it is trusted."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from refsim.cli import main  # noqa: E402
from refsim.core.errors import FormatError  # noqa: E402
from refsim.partition.archive import checked  # noqa: E402
from refsim.partition.load import load  # noqa: E402

MODELS = Path(__file__).parents[1] / "data" / "models"
GOOD = MODELS / "linear_head_gemv.pt2"


class Planted:
    """A pickle that leaves a file where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def rewritten(
    target: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes] | None = None
) -> Path:
    """The good file with other members."""
    with zipfile.ZipFile(GOOD) as good, zipfile.ZipFile(target, "w") as made:
        for name in good.namelist():
            made.writestr(name, change(name, good.read(name)))
        for name, raw in (more or {}).items():
            made.writestr(f"{good.namelist()[0].partition('/')[0]}/{name}", raw)
    return target


def program(edit: Callable[[dict], None]) -> Callable[[str, bytes], bytes]:
    def change(name: str, raw: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return raw
        content = json.loads(raw)
        edit(content)
        return json.dumps(content).encode()

    return change


def in_place_of(ending: str, other: bytes) -> Callable[[str, bytes], bytes]:
    return lambda name, raw: other if name.endswith(ending) else raw


def pickled(mark: Path) -> bytes:
    made = io.BytesIO()
    torch.save((Planted(mark),), made)
    return made.getvalue()


def refused(path: Path, match: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FormatError, match=match):
        load(path)
    capsys.readouterr()
    assert main(["lower", str(path)]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("refsim: "))
    assert "--trust" in line


def test_the_bundled_files_are_data_alone() -> None:
    for path in MODELS.glob("*.pt2"):
        assert checked(path.read_bytes(), path.name)


def test_example_inputs_that_run_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "ran"
    path = rewritten(tmp_path / "m.pt2", in_place_of("sample_inputs/model.pt", pickled(mark)))
    refused(path, "a pickle of more than tensors", capsys)
    assert not mark.exists()
    with contextlib.suppress(FormatError):  # these are no inputs
        load(path, trust=True)
    assert mark.exists()  # as torch does


@pytest.mark.parametrize("kind", ["weights", "constants"])
def test_pickled_weights(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "ran"
    row = {"path_name": "tensor_99", "is_param": False, "use_pickle": True, "tensor_meta": None}

    def change(name: str, raw: bytes) -> bytes:
        if not name.endswith(f"model_{kind}_config.json"):
            return raw
        content = json.loads(raw)
        content["config"]["x"] = row
        return json.dumps(content).encode()

    path = rewritten(tmp_path / "m.pt2", change, {f"data/{kind}/tensor_99": pickled(mark)})
    refused(path, "a pickle of more than tensors", capsys)
    row["path_name"] = "opaque_obj_0"
    path = rewritten(tmp_path / "o.pt2", change, {f"data/{kind}/opaque_obj_0": pickle.dumps(Planted(mark))})
    refused(path, "a pickled object", capsys)
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('touch {}')", "s0.__class__", "[].append(s0)", "open('{}', 'w')", "lambda: 1"],
)
def test_a_size_that_is_evaluated(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = tmp_path / "ran"

    def edit(content: dict) -> None:
        first = next(iter(content["graph_module"]["graph"]["tensor_values"].values()))
        first["sizes"][0] = {"as_expr": {"expr_str": text.format(mark), "hint": {"as_int": 1}}}

    refused(rewritten(tmp_path / "m.pt2", program(edit)), "a size is more than arithmetic", capsys)
    assert not mark.exists()


def test_guards_are_left_behind(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    def edit(content: dict) -> None:
        content["guards_code"] = [f"open({str(mark)!r}, 'w')"]

    exported = load(rewritten(tmp_path / "m.pt2", program(edit)))
    exported.module()
    assert not mark.exists()


@pytest.mark.parametrize(
    "target",
    ["torch.os.system", "torch.ops.aten.from_file.default", "torch.hub.load", "#x:y", "torch.ops.prims.x.y"],
)
def test_an_operator_that_is_none(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def edit(content: dict) -> None:
        content["graph_module"]["graph"]["nodes"][0]["target"] = target

    refused(rewritten(tmp_path / "m.pt2", program(edit)), "an operator is not among those of", capsys)


def test_a_signature_that_names_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def edit(content: dict) -> None:
        context = {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": "[]"}
        spec = {"type": "collections.defaultdict", "context": json.dumps(context), "children_spec": []}
        content["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, spec])

    refused(rewritten(tmp_path / "m.pt2", program(edit)), "the signature names a class", capsys)


def test_archives_that_hide_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = in_place_of("nothing", b"")
    path = rewritten(tmp_path / "a.pt2", same, {"data/aotinductor/model/m.wrapper.so": b"\x7fELF"})
    refused(path, "compiled code", capsys)
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = rewritten(tmp_path / "b.pt2", same, {"models/model.json": b"{}"})
    refused(path, "two members of one name", capsys)
    with zipfile.ZipFile(tmp_path / "c.pt2", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("m/models/model.json", "{}")
    refused(tmp_path / "c.pt2", "a compressed member", capsys)


@pytest.mark.parametrize("raw", [b"{", b"[" * 100_000, b"\xff"])
def test_json_that_is_none(raw: bytes, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not the JSON of a program"):
        load(rewritten(tmp_path / "m.pt2", in_place_of("models/model.json", raw)))


def test_symbols_and_functions_of_sizes_are_arithmetic(tmp_path: Path) -> None:
    class Any(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x, x[: x.shape[0] // 2]]).reshape(-1, 3).relu()

    rows = torch.export.Dim("rows", min=4, max=64)
    exported = torch.export.export(Any(), (torch.zeros(8, 6),), dynamic_shapes=({0: 2 * rows},))
    torch.export.save(exported, tmp_path / "m.pt2")
    found = load(tmp_path / "m.pt2")
    assert found.module()(torch.ones(12, 6)).shape == (36, 3)


def test_shapes_of_other_tensors_are_no_code(tmp_path: Path) -> None:
    class Like(torch.nn.Module):
        def forward(self, x, y):
            return x.reshape_as(y) + x.view_as(y) + x.type_as(y)[:1, :1].expand_as(y)

    exported = torch.export.export(Like(), (torch.zeros(4, 6), torch.zeros(8, 3)))
    torch.export.save(exported, tmp_path / "m.pt2")
    assert load(tmp_path / "m.pt2").module()(torch.ones(4, 6), torch.zeros(8, 3)).shape == (8, 3)
