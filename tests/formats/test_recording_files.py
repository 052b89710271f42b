"""Reading recordings; that the table of differences in the documentation is the one that the data gives."""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from examples import UNARY

from refsim.core.errors import FormatError, RefsimError
from refsim.formats.recordings import RecordedDifferences, read, staged_inputs

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "golden" / "upstream"
ZIP = GOLDEN / f"{UNARY.name}.zip"


def test_differences_counts_defined_bytes_only() -> None:
    recording = next(r for r in read(ZIP) if r.mask is not None and not r.call().device_defined().all())
    call = recording.call()
    ours = call.expected(recording.inputs())
    assert not recording.differences(ours, recording.raw, call).size
    undefined = np.flatnonzero(~call.device_defined())
    value = np.flatnonzero(call.device_defined())[0]
    ours.raw[undefined] ^= 0xFF
    assert not recording.differences(ours, recording.raw, call).size
    ours.raw[value] ^= 0x80
    assert recording.differences(ours, recording.raw, call).tolist() == [value]


def test_inputs_are_fresh_every_time() -> None:
    recording = next(read(ZIP))
    first, second = recording.inputs(), recording.inputs()
    first["x"].raw[:] = 0
    assert second["x"].raw.any()


def test_not_a_zip_file_of_recordings(tmp_path: Path) -> None:
    empty = tmp_path / "empty.zip"
    zipfile.ZipFile(empty, "w").close()
    with pytest.raises(FormatError, match=r"empty\.zip: holds no case\.json"):
        list(read(empty))
    (tmp_path / "text.zip").write_text("no zip")
    for path in (tmp_path / "text.zip", tmp_path / "missing.zip"):
        with pytest.raises(RefsimError, match=path.name):
            list(read(path))
        with pytest.raises(RefsimError, match=path.name):
            list(staged_inputs(path))


def test_cut_recordings_are_refused(tmp_path: Path) -> None:
    """A missing file, a case without a part, text that is no JSON: a typed error that names the file."""
    with zipfile.ZipFile(ZIP) as archive:
        name = sorted(n for n in archive.namelist() if n.endswith("/case.json"))[0]
        folder = name.removesuffix("case.json")
        files = {n: archive.read(n) for n in archive.namelist() if n.startswith(folder)}
    case = json.loads(files[name])
    broken = {
        "no array": {n: d for n, d in files.items() if not n.endswith("x.npy")},
        "no json": {**files, name: b"{"},
        "no args": {**files, name: json.dumps({k: v for k, v in case.items() if k != "args"}).encode()},
        "no npy": {**files, folder + "x.npy": b"\x93NUMPY"},
        "a list": {**files, name: b"[]"},
    }
    for what, content in broken.items():
        path = tmp_path / f"{what}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for n, d in content.items():
                archive.writestr(n, d)
        with pytest.raises(RefsimError, match=what):
            list(read(path))


def test_differences_file() -> None:
    listed = RecordedDifferences.load(GOLDEN / "differences.json")
    assert set(listed.patterns.values()) <= set(listed.causes)
    assert all(row["kind"] in ("defect", "refused", "profile") for row in listed.causes.values())
    assert listed.cause("0469_q8ta_add_alpha2") == "alpha"
    assert listed.cause("0001_q8ta_relu_4W") is None


def tables() -> ModuleType:
    page = ROOT / "docs" / "tables.py"
    spec = importlib.util.spec_from_file_location("tables", page)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_the_tables_of_the_documentation_are_fresh() -> None:
    script = tables()
    text = "".join(page.read_text() for page in script.PAGES)
    assert set(re.findall(r"<!-- table: (\w+) -->", text)) == set(script.TABLES)
    assert script.renewed(text) == text, "fix: python docs/tables.py --write"
    assert "**" not in script.PAGE.read_text(), (
        "a recording differs that is not listed, or the other way round"
    )


def test_a_stale_table_is_noticed() -> None:
    script = tables()
    stale = "<!-- table: padding -->\n| old |\n<!-- end -->"
    assert script.renewed(stale) != stale
    assert script.renewed("no table") == "no table"
