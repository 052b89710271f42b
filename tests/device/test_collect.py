"""From outputs, in whatever form a runner saves them, back to buffers; and what is refused on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saved import arrays

from device.simulated import Runtime
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError, RefsimError
from refsim.device import manifest as m
from refsim.device.bisect import bisect
from refsim.device.collect import collect, read, write
from refsim.device.expose import ExposeOptions, expose
from refsim.device.expose import write as write_exposed
from refsim.exec.model import load
from refsim.formats.cases import sha256
from refsim.formats.dumps import Recorded
from refsim.ops.base.target import Target

DATA = Path(__file__).parents[1] / "data"
DEVICE = DATA / "device"
OPTIONS: dict[str, Any] = {"profile": None, "device": True, "limit": 5}
MODES = {
    "words": ExposeOptions(),
    "share": ExposeOptions(fill=None, share=True),
    "values": ExposeOptions(m.VALUES, fill=None),
}


@dataclass
class Run:
    """An exposed program, its inputs, and what the simulated runtime gave."""

    file: Path
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


def run_of(
    name: str, folder: Path, options: ExposeOptions, target: Target | None = None, chunk: int | None = None
) -> list[Run]:
    inputs = [np.load(DATA / "models" / f"{name}.io.npz")["in0"]]
    files = expose(DATA / "models" / f"{name}.pte", options, chunk=chunk, name=str(folder / "m.pte"))
    paths = write_exposed(folder / "m.pte", files)
    return [
        Run(Path(path), inputs, Runtime(one.data, target).run(inputs))
        for path, one in zip(paths, files, strict=True)
    ]


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Run:
    (run,) = run_of("linear_head", tmp_path_factory.mktemp("linear"), ExposeOptions())
    return run


def as_npz(run: Run, folder: Path) -> list[Path]:
    return [arrays(folder / "outs.npz", run.outputs)]


def as_positional_npz(run: Run, folder: Path) -> list[Path]:
    return [arrays(folder / "outs.npz", run.outputs, "arr_")]


def as_npy_folder(run: Run, folder: Path) -> list[Path]:
    (folder / "outs").mkdir()
    for number, array in enumerate(run.outputs):
        np.save(folder / "outs" / f"output_{number}.npy", array)
    return [folder / "outs"]


def as_runner(run: Run, folder: Path) -> list[Path]:
    """What executor_runner writes for --output_file BASE."""
    for number, array in enumerate(run.outputs):
        (folder / f"base-{number}.bin").write_bytes(array.tobytes())
    return [folder / "base"]


def as_files(run: Run, folder: Path) -> list[Path]:
    names = [folder / f"{'zyxwv'[n]}.raw" for n in range(len(run.outputs))]
    for name, array in zip(names, run.outputs, strict=True):
        name.write_bytes(array.tobytes())
    return names


FORMS: dict[str, Callable[[Run, Path], list[Path]]] = {
    "npz": as_npz, "positional npz": as_positional_npz, "folder of npy": as_npy_folder, "executor_runner": as_runner,
    "raw folder": lambda run, folder: [as_runner(run, folder)[0].parent], "raw files in order": as_files,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_outputs(form: str, linear: Run, tmp_path: Path) -> None:
    folder = tmp_path / "outs"
    folder.mkdir()
    collected = collect(read([(linear.file, FORMS[form](linear, folder))]))
    write(tmp_path / "dump", collected)
    recorded = Recorded(tmp_path / "dump")
    rows = bisect(load(DATA / "models" / "linear_head.pte"), recorded, linear.inputs, **OPTIONS)
    assert len(rows) == 5 and all(row.run and row.run.differing == 0 for row in rows)


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["mixed_ops", "mobilenet_v2_035_96"])
def test_a_right_device_is_right(name: str, mode: str, tmp_path: Path) -> None:
    """Every operator on its own inputs too, in every mode; padding that is not known counts for nothing."""
    (run,) = run_of(name, tmp_path, MODES[mode])
    collected = collect(read([(run.file, as_npz(run, tmp_path))]))
    write(tmp_path / "dump", collected)
    recorded = Recorded(tmp_path / "dump")
    assert list(recorded.entries) == sorted(collected.infos)
    packed = [value for value, info in collected.infos.items() if info["dtype"] == "int8"]
    assert {recorded.entries[value].elements_only for value in packed} == {mode == "values"}
    rows = bisect(load(DATA / "models" / f"{name}.pte"), recorded, run.inputs, **OPTIONS)
    assert all(row.run is not None and row.run.differing == 0 for row in rows)
    assert sum(row.alone is not None for row in rows) >= len(rows) - 1
    assert all(row.alone.differing == 0 for row in rows if row.alone is not None)


@pytest.mark.long
def test_layouts_that_the_device_chose(tmp_path: Path) -> None:
    """A Mali device packs the input of a convolution in another order; the words are read in that order."""
    (run,) = run_of("refine_seg", tmp_path, ExposeOptions(), Target(mali=True))
    parts = read([(run.file, as_npz(run, tmp_path))])
    for mali in (False, True):
        collected = collect(parts, Target(mali=mali))
        rows = bisect(collected.model, collected, run.inputs, **OPTIONS)
        assert all(row.run is not None and row.run.same for row in rows) == mali


def test_parts_of_a_large_model(tmp_path: Path) -> None:
    runs = run_of("mixed_ops", tmp_path, ExposeOptions(), chunk=5)
    given = []
    for number, run in enumerate(runs):
        (tmp_path / str(number)).mkdir()
        given.append((run.file, as_npz(run, tmp_path / str(number))))
    (whole,) = run_of("mixed_ops", tmp_path, ExposeOptions())
    collected = collect(read(given))
    expected = collect(read([(whole.file, as_npz(whole, tmp_path))]))
    assert collected.infos.keys() == expected.infos.keys()
    for name, held in expected.held.items():
        assert isinstance(held, PackedBuffer) and collected.held[name] == held
    with pytest.raises(FormatError, match=r"collected twice; got .*0/outs.npz"):
        read([given[0], given[0]])


# --- what is refused -------------------------------------------------------------------------------------


def test_outputs_that_do_not_fit(linear: Run, tmp_path: Path) -> None:
    def refused(content: dict[str, np.ndarray], match: str) -> None:
        np.savez(tmp_path / "o.npz", **content)
        with pytest.raises(RefsimError, match=match):
            read([(linear.file, [tmp_path / "o.npz"])])

    good = {f"out{number}": array for number, array in enumerate(linear.outputs)}
    refused({k: v for k, v in good.items() if k != "out3"}, "another number of outputs; got 4.*also out3$")
    with pytest.raises(FormatError, match=rf"a folder without outputs.*did you mean {tmp_path / 'o.npz'}\?$"):
        read([(linear.file, [tmp_path])])
    slip = {{"out3": "outt3"}.get(k, k): v for k, v in good.items()}
    refused(slip, r"got 4: .*, need 5, all of the program's, also out3; did you mean outt3\?$")
    refused(good | {"out5": good["out0"]}, "another number of outputs; got 6")
    refused(good | {"out1": good["out2"], "out2": good["out1"]}, r"out1: does not fit; got int32 \[256\]")
    refused(good | {"out1": good["out1"][:-1]}, "out1: does not fit")
    refused(good | {"out0": good["out0"].astype(np.float64)}, "out0: does not fit; got float64")
    refused({}, "another number of outputs; got 0")


def test_raw_files_that_do_not_fit(linear: Run, tmp_path: Path) -> None:
    base = as_runner(linear, tmp_path)
    third = tmp_path / "base-3.bin"
    data = third.read_bytes()

    def refused(match: str, paths: list[Path] = base) -> None:
        with pytest.raises(RefsimError, match=match):
            read([(linear.file, paths)])

    third.write_bytes(data[:-4])
    refused(r"base-3.bin: not the size of this output; got 1020 bytes, need 1024: int32 \[256\]")
    third.unlink()
    refused("an output is missing; got no number 3")
    third.write_bytes(data)
    (tmp_path / "other-0.bin").write_bytes(b"")
    refused("holds files of several runs; got base-.bin, other-.bin", [tmp_path])
    refused("no outputs there; got no such file or folder", [tmp_path / "nothing"])
    (tmp_path / "empty").mkdir()
    refused("a folder without outputs", [tmp_path / "empty"])
    refused("another number of outputs; got 1: base-0.bin", [tmp_path / "base-0.bin"])
    (tmp_path / "base-03.bin").write_bytes(data)
    refused("the same output twice")


def test_files_that_are_not_exposed(tmp_path: Path) -> None:
    for name in ("linear_head.pte", "linear_head.io.npz"):
        copy = tmp_path / name
        shutil.copyfile(DATA / "models" / name, copy)
        with pytest.raises(FormatError, match=r"not an exposed file|identifier|neither a"):
            read([(copy, [copy])])
    with pytest.raises(FormatError, match="cannot be read"):
        read([(tmp_path / "nothing.pte", [tmp_path])])


def test_a_manifest_of_another_file(linear: Run, tmp_path: Path) -> None:
    (other,) = run_of("linear_head", tmp_path, ExposeOptions(fill=None, share=True))
    shutil.copyfile(m.path_of(linear.file), m.path_of(other.file))
    with pytest.raises(FormatError, match="belongs to another file") as raised:
        read([(other.file, as_npz(other, tmp_path))])
    short = [sha256(Path(one.file).read_bytes())[:12] for one in (other, linear)]
    assert raised.value.got == f"{other.file}, SHA-256 {short[0]}..."
    need = f"the {Path(linear.file).name} that it was written with, SHA-256 {short[1]}..."
    assert raised.value.need == need


def test_parts_of_other_runs(tmp_path: Path) -> None:
    first, second, *_ = run_of("mixed_ops", tmp_path, ExposeOptions(), chunk=7)
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    good = (first.file, as_npz(first, tmp_path / "a"))
    second.outputs[0] = second.outputs[0] + 1
    with pytest.raises(FormatError, match="another run: the program's own outputs differ; got another out0"):
        read([good, (second.file, as_npz(second, tmp_path / "b"))])
    with pytest.raises(FormatError, match=r"outputs of another program; got .*, need mixed_ops.pte"):
        read([good, (DEVICE / "linear_head.raw.pte", [DEVICE / "linear_head.raw.npz"])])


def test_floats_that_are_no_int8_values(tmp_path: Path) -> None:
    (run,) = run_of("linear_head", tmp_path, MODES["values"])
    for value in (0.5, 128.0, -129.0, np.nan, np.inf):
        run.outputs[1].reshape(-1)[7] = value
        match = r"out1: not the values of an int8 tensor; got .* at 7, and 0 more"
        with pytest.raises(FormatError, match=match):
            collect(read([(run.file, as_npz(run, tmp_path))]))


def test_nothing_is_overwritten(linear: Run, tmp_path: Path) -> None:
    collected = collect(read([(linear.file, as_npz(linear, tmp_path))]))
    (tmp_path / "dump").mkdir()
    with pytest.raises(FormatError, match="already exists"):
        write(tmp_path / "dump", collected)
    assert not list((tmp_path / "dump").iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"own": 7}, "more than there are"),
        ({"source_digest": "x"}, "source_digest: does not fit"),  # nobody could read the dump that carries it
        ({"value": None, "way": None, "held": None}, "holds no value"),
        ({"outputs": "value", "to": "delegate" + "9" * 5000 + "_v1"}, "not the name of a value"),
        ({"outputs": "value", "to": "delegate1_v\u0663"}, "not the name of a value"),
    ],
)
def test_manifests_that_do_not_fit(change: dict[str, Any], message: str, linear: Run, tmp_path: Path) -> None:
    copy = tmp_path / "m.pte"
    shutil.copyfile(linear.file, copy)
    content = json.loads(Path(m.path_of(linear.file)).read_text())
    if "to" in change:
        content["outputs"][-1]["value"] = change["to"]
    elif "value" in change:
        content["outputs"][-1] |= change
    else:
        content |= change
    Path(m.path_of(copy)).write_text(json.dumps(content))
    with pytest.raises(FormatError, match=message):
        m.read(copy)
