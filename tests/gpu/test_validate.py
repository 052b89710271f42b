"""make validate: what the layer says is heard, belongs to its test, and fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refsim_gpu import system, validate
from refsim_gpu.kompute import Device

ROOT = Path(__file__).parents[2]
TESTS = """
import subprocess
import sys
import pytest

RUN = '''
from refsim import load
from refsim_gpu import run_memory
from refsim_gpu.executor import KomputeExecutor
if {unordered}:
    run_memory.Order.settle = lambda self: None
model = load("tests/data/models/mixed_ops.pte")
with KomputeExecutor() as gpu:
    model.run(model.random_inputs(1), gpu)
'''

def run(unordered):
    subprocess.run([sys.executable, "-c", RUN.format(unordered=unordered)], check=True)

def test_right():
    run(False)

def test_wrong():
    run(True)

@pytest.mark.wrong_on_purpose("SYNC-HAZARD", "to see whether that is heard")
def test_wrong_on_purpose():
    run(True)
"""


@pytest.mark.few(1)
@pytest.mark.skipif(
    not system.has_layer(validate.LAYER),
    reason="no validation layer; fix: apt-get install vulkan-validationlayers",
)
@pytest.mark.parametrize("only, status", [("wrong and not purpose", 1), ("right", 0), ("on_purpose", 0)])
def test_a_message_is_a_failure(device: Device, tmp_path: Path, only: str, status: int) -> None:
    file, log = tmp_path / "test_some.py", tmp_path / "log"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "refsim_gpu.validate", str(file), "--log", str(log), "-k", only]
    command += ["-c", str(ROOT / "setup.cfg"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VK_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    if only == "on_purpose":
        assert (
            last.startswith("validate: 0 messages")
            and not last.endswith(" 0 on purpose")
            and log.read_text() == ""
        )
    elif status:
        head, first, *_ = log.read_text().splitlines()
        assert head.endswith("::test_wrong") and first.startswith("SYNC-HAZARD")
    else:
        assert last == "validate: 0 messages of the validation layer's in 0 tests, 0 on purpose"


def test_files_that_open_a_device_are_found() -> None:
    found = {str(path.relative_to(ROOT / "tests")) for path in validate.files()}
    assert {"gpu/test_session.py", "golden/test_corpus.py", "cli/test_shader_folders.py"} <= found
    assert {
        "modules/test_seeded_bugs.py",
        "cli/test_shader_watch.py",
    } <= found and "gpu/test_validate.py" not in found
    assert {path.name for path in (ROOT / "tests" / "gpu").glob("test_*.py")} - {
        Path(f).name for f in found
    } == {"test_validate.py"}


def test_each_file_that_is_left_out_would_be_found() -> None:
    held = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    assert all(validate.OPENS.search(held[name]) for name in validate.NOT_THESE)
