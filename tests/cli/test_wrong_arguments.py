"""A command line that no verb takes: one line says what is wrong and what to type instead, and nothing is written."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from saved import contents, flip

from refsim.cli import main
from refsim.core import choices
from refsim.core.errors import MOST_IN_LINE
from refsim.core.extras import GPU_FIX, NO_KP
from refsim.exec.factory import executors
from refsim.ops.base.registry import OPS

KP = any(one.name == "spv:DIR" and one.available for one in executors())

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"

#: Command lines, and what the first line of the error holds; $ is its end.
ROWS = """
nonesuch => more; refsim --help says what each does$
rnu model.pte => did you mean run?
hlep => No such command 'hlep'; did you mean help?
verify => No such command 'verify'; did you mean refsim golden verify?
help coverage => No such command 'coverage'; did you mean refsim golden coverage?
schema dif => no such verb; got dif, need bisect, check,

bisect model.pte --random 0 => ; for example: refsim bisect model.pte -i in.npz --actual dumps$
bisect model.pte -x cpu => ; for example: refsim bisect model.pte -i in.npz --actual dumps$
bisect model.pte -x cpu --actual case --random 0 => or run the file with -x EXECUTOR, not both
check other.pt2 => got text: 'words', need a .pte, which refsim lower makes of a .pt2
check model.pte --runtime 1.5.0 => unknown; got '1.5.0', need 2026-08, 1.5.1, main, webgpu, a JSON file
collect in.npz in.npz -o new => neither a .pte file nor a delegate blob; got a zip file
collect model.pte a.npy -o a.npy => is a file, and a folder is made; need the name of a new
compare model.pte --random 0 -x cpu => ; for example: refsim compare model.pte --random 0 -x cpu -x gpu$
compare model.pte -x cpu -x cpu:emulated => ; for example: refsim compare model.pte --random 0 -x cpu -x gpu$
compare model.pte --random 0 -x cpu -x cpu => cpu would be compared with itself; need another
compare model.pte -i in.npz -x cpu => two executors are compared, not 1
compare model.pte -i in.npz --runtime webgpu --runtime webgpu => two runtimes are compared
compare model.pte -i in.npz --runtime main --runtime webgpu -x cpu -x numpy => two executors or two runtimes
demo mixed_op => did you mean mixed_ops?
demo nonesuch => no such bundled model; got nonesuch, need linear_head
diff README.md README.md => ; for example: refsim diff expected.bin actual.bin -l 4W4C -s 1,64,56,56$
diff a.bin b.bin => give --layout and --shape
diff a.bin b.bin -l 4W4C => give --shape, --case
diff a.bin b.bin -s 1,6,3,5 => give --layout, --case
diff a.bin b.bin -l 4W4C -s 1,6,3,9 => a.bin: raw buffer for 1x6x3x9 4W4C: wrong size; got 192 bytes, need 288$
diff a.bin b.bin -l CONV2D -s 1,6,3,5 => no addresses before
diff a.bin b.bin -l 4W4C -s 1,6,0,5 => a size is below 1
diff a.bin b.bin -l 4W4C -s 1,6,3,5 --other nonesuch.bin => nonesuch.bin
diff a.bin b.bin -l 4W4C -s 1,6,3,5 --search -1 => -1
diff a.bin b.bin -l 4W4C -s 1,6,3,5 --profile nvidia => --profile needs --case CASE
diff a.bin b.bin -l 4W4C -s 1,6,3,5 --case q8ta_add/0105 => the call writes another tensor
diff case/out.bin README.md => README.md: raw buffer for 1x64x16x16 4C: wrong size; got 6 bytes, need 16384$
expose model.pte --value nothing -o new => --value: no such value; got 'nothing'
expose model.pte --value delegate0_v300 -o new => did you mean delegate0_v30?
expose model.pte --value [ -o new => not a regular expression
expose model.pte --share --fill 0x5A -o new => a fill writes memory that other values share
expose model.pte --fill 300 -o new => not a byte to fill with; got 300
expose model.pte --runs 7 --chunk 2 -o new =>
expose ./model.pte -o model.pte => is read as FILE, and --output would replace it; need another name
extract --random 0 => Missing FILE, --output; for example: refsim extract model.pte -n 0:7
extract model.pte --pte => -o case --pte words
extract model.pte --html x => --html; bisect, compare, diff, inspect, repeat, replay, run, shaders, triage have it
extract model.pte --random 0 -o new => give the node with --node NUMBER
extract model.pte --random 0 -n q8ta_conv2d_pw -o new => an operator and no node; got q8ta_conv2d_pw, need 0:3, 0:5
extract model.pte --random 0 -n nonesuch -o new => (refsim inspect model.pte lists all)
extract model.pte --random 0 -n delegate0_v300 -o new => did you mean delegate0_v30?
extract model.pte --random 0 -n v7 -o new => lists all); got v7
extract model.pte --random 0 -n 99 -o new => lists all); got 99
extract model.pte --random 0 -n 1 -o new => got 1, need 0:1 or 1:1
extract model.pte --random 0 -n 0:99 -o new => no such node
extract q8ta_add/1 -n 3 -o new => is a case, which takes no --node
extract q8ta_add/99999 -o new => q8ta_add/99999
extract q8ta_ad/1 -o new => no such case; got q8ta_ad/1, need OPERATOR/NUMBER as in digests/; did you mean
extract chains/16 -o new => a chain, and no case; need refsim golden verify chains/16

golden nonesuch => show, verify; refsim golden --help says what each does
golden sweep => No such command 'sweep'; did you mean refsim sweep?
golden verfy => did you mean verify?
golden export nonesuch --pte new => with packed int8 (refsim golden export --help lists all)
golden export q8ta_ad --pte new => did you mean q8ta_add?
golden export q8ta_linear --layout 4W4C --pte new => no case of q8ta_linear has such a layout; got 4W4C, need 4H4W$
golden export q8ta_linear q8ta_linear_gemv --layout 4C --pte new => has such a layout; got 4C, need 4H4W, 4W$
golden list nonesuch => golden list: no case fits; got nonesuch
golden list q8ta_conv2d_dw --where x => not NAME=VALUE
golden new nonesuch => no such operator; got nonesuch, need python -m refsim.ops new nonesuch first
golden new q8ta_ad --root small => ; did you mean q8ta_add?
golden new q8ta_relu => the operator has cases; got q8ta_relu, need refsim golden regen q8ta_relu --reason
golden regen --root small => needs a reason
golden regen nonesuch --dry-run => no rule for that operator (refsim sweep --help lists all)
golden regen q8ta_ad --dry-run => did you mean q8ta_add?
golden verify --op q8ta_add => --op: CASES stand without an option; for example: refsim golden verify
golden verify --resume => --resume needs --results
golden verify nonesuch => no such operator (refsim sweep --help lists all)
golden verify q8ta_ad => did you mean q8ta_add?
golden verify q8ta_add --root small => no cases; got q8ta_add, need refsim golden new q8ta_add
golden verify q8ta_relu/99999 --root small => no such case; got q8ta_relu/99999, need q8ta_relu/0000 to q8ta_relu/0025
golden verify q8ta_add/0001 q8ta_add/99999 => no such case; got q8ta_add/99999
golden verify -x tpu => executor: unknown; got 'tpu'

inspect q8ta_relu/1 --plan => is a case, which takes no options
inspect model.pte --verdicts in.npz => --verdicts needs --html
inspect model.pte --route q8ta_add=linear => --route needs --plan
inspect model.pte --plan --route q8ta_add => not OPERATOR=ROUTE
inspect model.pte --plan --route q8ta_add=none => route of q8ta_add: unknown
inspect model.pte --plan --route q8ta_ad=x => did you mean q8ta_add?
locate -l => Option '-l' requires an argument; for example: refsim locate
locate -l 4C -s 1,4,2,2 => ; for example: refsim locate -l 4W4C -s 1,16,8,8 --byte 5$
locate -l 4C -s 1,6,3,5 --byte 120 => no such byte; got 120, need 0 to 119
locate -l 4C -s 1,6,3,5 --byte -1 => no such byte; got -1
locate -l 4C -s 1,6,3,5 --index 0,6,0,0 => no such element
locate -l 4C -s 1,6,3,5 --index 0,-1,0,0 => no such element
locate -l 4C -s 1,6,3,5 --index 0,1 => need 4 numbers
locate -l 4C -s 1,6,3,5 => give either --byte B or --index n,c,h,w
locate -l 4C -s 1,6,3,5 --byte 1 --index 0,1,1,1 => --index n,c,h,w, not both
locate -l CONV2D -s 1,6,3,5 --byte 1 => no addresses before
locate -l 4C -s 1,6,3,5,1,1,1,1,1 --byte 1 => unsupported rank
lower README.md => README.md: not a .pt2 file
mend model.pte -o model.pte => need another name
mutate --id nothing => no such mutant
mutate --id cpu-P1-dv => need one that --list names; did you mean cpu-P1-dw?$
mutate --random 3 --area nativ => 'nativ' is not one of emulated, native, graph, shaders; did you mean native?$
mutate --bug N7 -x lowering => no mutant is all of that
mutate --bug Z9 =>  more; refsim mutate --list shows all
mutate -x lavapipe => Invalid value for '--executor': 'lavapipe' is not one of cpu, gpu, lowering$
mutate -x gpux => 'gpux' is not one of cpu, gpu, lowering; did you mean gpu?$

pack a.npy -l CONV2D -o o.bin => no addresses before the layout is resolved
pack a.npy -l 4C -o o.bin --lane 256 => '256' is not a byte: -128 to 255, or 0x00 to 0xFF
pack a.npy -l 4C -o ./a.npy => ./a.npy: is read as FILE, and --output would replace it; need
pack two.npz -l 4C -o o.bin => two.npz: holds several arrays; got out0, out1, need one of them, such as --array out0
pack two.npz --array out2 -l 4C -o o.bin => holds no such array; got out2, need out0, out1; did you mean out
pack two.npz --array out0 -l 4C -o o.bin => wrong dtype for 4C; got float32, need int8
pack a.npy --array out0 -l 4C -o o.bin => no .npz, of which an array can be chosen; got out0, need an .npz
pack none.npz -l 4C -o o.bin => none.npz: holds no array; got none
probe x => 'x' is no whole number from 0 on
probe gpu: => 'gpu:' is no whole number from 0 on, and no gpu:NUMBER
probe gpu:-1 => 'gpu:-1' is no whole number from 0 on, and no gpu:NUMBER
probe cpu:0 => 'cpu:0' is no whole number from 0 on, and no gpu:NUMBER
probe -- -1 => Invalid value
probe 0 --pte new => exclude each other
probe --pte new -o p.json => it goes with --outputs
reduce model.pte -o new -- true =>
reduce model.pte -o new -- sh -c "exit 125" =>
reduce model.pte -o new -- no-such-command-here =>
reduce model.pte -o new =>
repeat model.pte => either with -i FILE or with --random SEED
repeat model.pte -i in.npz --random 0 => either with -i FILE or with --random SEED
repeat model.pte --random 0 -x tpu => executor: unknown; got 'tpu'
repeat model.pte --random 0 -x cpu,cpu => executor: unknown; got 'cpu,cpu'
replay README.md => README.md: not a case; got a file, need a case directory
replay case/out.bin => ; did you mean case?
replay nonesuch.zip!0001 => not a zip file of cases
replay chains/16 => chains/16: a chain, and no case; need refsim golden verify chains/16
replay q8ta_relu => no such case; got q8ta_relu, need q8ta_relu/0000 to q8ta_relu/
replay q8ta_relu/99999 => no such case; got q8ta_relu/99999, need q8ta_relu/0000 to q8ta_relu/
replay q8ta_ad/0003 => as in digests/; did you mean q8ta_add/0003?
replay q8ta_add/175.bytes => case directory, ZIPFILE!NAME or OPERATOR/NUMBER; did you mean q8ta_add/0175?
replay q8ta_add/99999999.bytes => no such case
replay q8ta_add/1 -x tpu => executor: unknown
run --zzz => No such option --zzz; refsim run --help lists all
run -q => No such option -q; refsim run --help lists all
run x.pte --exec cpu => No such option --exec; did you mean --executor?
run a b => Got unexpected extra argument (b); need refsim run [OPTIONS] FILE
run m.pte --dump x => requires 2 arguments; for example: refsim run model.pte -i in.npz -o out.npz --dump REGEX DIR
run m.pte --dump q8ta --json => requires 2 arguments, got the option --json for one;
run model.pte => ; for example: refsim run model.pte -i in.npz -o out.npz$
run model.pte --random 0 -i in.npz => with -i FILE or with --random SEED, not both
run model.pte -i head.npz => does not fit; got float32 [6, 64]
run model.pte -i model.pte => not a readable array file
run model.pte -i in.npz -x tpu => executor: unknown; got 'tpu'
run model.pte -i in.npz -x cpu:emulate => did you mean cpu:emulated?
run model.pte -i in.npz -x cpu,cpu => named twice
run model.pte -i in.npz --profile nvdia => did you mean nvidia?
run model.pte -i in.npz --target apple => got 'apple', need desktop, adreno, mali, lavapipe, nvidia$
run model.pte -i in.npz --golden model.pte => not a folder or zip file
run model.pte -i in.npz --dump ( new => not a regular expression
run model.pte -i in.npz --dump delegate0_v300 new => did you mean delegate0_v30?
run model.pte -i in.npz --dump q8ta_rellu new => did you mean q8ta_relu?
run model.pte -i in.npz --dump . a.bin => a.bin: cannot be written; got a file, need a folder, or a new name
run model.pte --sequence =>
run model.pte in.npz =>
run model.pte --sequence in.npz --random 1 =>
sweep nonesuch => no such operator (refsim sweep --help lists all); got nonesuch, need choose_qparams_affine,
sweep q8ta_ad => did you mean q8ta_add?
sweep --operator=q8ta_add => OPERATORS stand without an option; for example: refsim sweep -n 1000 q8ta_add
sweep -n 0 => nothing to run
sweep --resume => --resume needs --db
sweep --resume --db nowhere.sqlite => nothing to go on with
sweep --threads 1,x => threads
sweep --workers 0 --scheduler local => needs some
sweep --models nowhere => no .pte file
sweep -x abacus --workers 0 => unknown
sweep q8ta_relu -n 3 --workers 0 --db no/x.db => cannot be written
sweep q8ta_relu -n 9 --db case --resume => no file of results; got a folder, need a file, such as case/results.sqlite
sweep q8ta_relu -n 9 --scheduler local -x nonesuch => executor: unknown; got 'nonesuch'
sweep q8ta_relu -n 1 --scheduler noen => got noen, need local, none or HOST:PORT; did you mean none?
sweep q8ta_relu -n 1 --scheduler locl => ; did you mean local?
triage --more a => Option '--more' requires 2 arguments; for example:
triage e.pte --outputs o.npz --more b.pte --limit 0 => '--more' requires 2 arguments, got the option --limit for one;
triage model.pte --random 0 --outputs in.npz => not an exposed file
unpack README.md -o new.npy => ; for example: refsim unpack buffer.bin -l 4W4C -s 1,64,56,56 -o array.npy$
unpack README.md -l 4C -s 1,4,2,2 -o new.npy => README.md: raw buffer for 1x4x2x2 4C: wrong size; got 6 bytes, need 16$
unpack case/out.bin -o case/out.bin => need another name, such as case/out-2.bin
unpack raw.bin -o new.npy => give --layout and --shape, or put raw.json beside the buffer
unpack raw.bin -l 4C -o new.npy => give --layout and --shape
unpack raw.bin -l 4C -s 1,6,3,5 -o new.npy => wrong size; got 64 bytes, need 120, or 128
unpack raw.bin -l 4C -s 1,6,3 -o new.npy => wrong size
unpack raw.bin -l 4C -s 1,-6,3,5 -o new.npy => a size is below 1
unpack raw.bin -l 4C -s 99999,99999,99999 -o new.npy => buffer too large
"""


@pytest.fixture(scope="module")
def _desk(models: Path, _small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    for name, source in {
        "model.pte": "mixed_ops.pte", "in.npz": "mixed_ops.io.npz", "head.npz": "linear_head.io.npz",
    }.items():  # fmt: skip
        shutil.copy(models / source, folder / name)
    shutil.copytree(_small, folder / "small")
    for name, size in {"a.bin": 192, "b.bin": 192, "raw.bin": 64}.items():
        (folder / name).write_bytes(bytes(size))
    for name in ("README.md", "other.pt2"):
        (folder / name).write_text("words\n")
    np.save(folder / "a.npy", ones := np.ones((1, 3, 2, 5), np.int8))
    np.savez(folder / "two.npz", out0=ones.astype(np.float32), out1=ones)
    np.savez(folder / "none.npz")
    case = ("extract", folder / "model.pte", "-n", "0:7", "--random", 0, "-o", folder / "case")
    assert main(list(map(str, case))) == 0
    return folder


@pytest.fixture
def desk(_desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that no refused command changes, to work in."""
    monkeypatch.chdir(_desk)
    return _desk


@pytest.mark.parametrize("row", [row for row in ROWS.splitlines() if row])
def test_the_line_says_what_to_type(row: str, desk: Path, refsim: Callable) -> None:
    given, _, said = row.partition(" =>")
    before = contents(desk)
    done = refsim(given)
    done.refused(said.strip().replace("$", "\n"))
    assert len(done.err.splitlines()[0]) <= MOST_IN_LINE
    assert contents(desk) == before and not Path("new").exists()


def test_a_list_of_choices_is_short(refsim: Callable) -> None:
    assert re.search(r", \.\.\. and \d+ more\n", refsim("sweep nonesuch").err)
    assert len(refsim("locate", "--" + "x" * 900).err) <= MOST_IN_LINE + 1


def test_one_module_is_no_folder_of_modules(tmp_path: Path, monkeypatch, refsim: Callable) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q8ta_relu_buffer.spv").write_bytes(b"")
    said = "is one module, need the folder that it lies in; for example: refsim shaders "
    refsim("shaders q8ta_relu_buffer.spv q8ta_relu").refused(f"q8ta_relu_buffer.spv: {said}. q8ta_relu")
    refsim(f"shaders {tmp_path}/q8ta_relu_buffer.spv").refused(f"{said}{tmp_path}")
    refsim("shaders absent.spv").refused("got no such file")
    said = "q8ta_relu_buffer.spv: is one module; need the folder that it lies in, ."
    refsim("replay q8ta_relu/1 -x spv:q8ta_relu_buffer.spv").refused(said, status=2 if KP else 3)
    if KP:
        Path("build/inside").mkdir(parents=True)
        Path("build/inside/own.spv").write_bytes(b"")
        refsim("shaders build").refused("; did you mean build/inside?")


def test_a_case_of_a_zip_file_that_is_not_there(refsim: Callable) -> None:
    path = ROOT / "golden" / "cases" / "q8ta_add.zip"
    refused = refsim("replay", f"{path}!0017")
    refused.refused(f"{path}: no such case in it; got 0017, need 0175, 0176, ")
    assert refused.err.endswith("; it is in the corpus\ntry: refsim replay q8ta_add/0017\n")
    assert refsim("replay q8ta_add/0017").status == 0
    assert "did you mean 0175?" in refsim("replay", f"{path}!0175x").err
    other = refsim("replay", f"{path}!99999")
    assert "did you mean" not in other.err and other.hints == [["replay", f"{path}!0175"]]


@pytest.mark.parametrize("option", ["--lane", "--word"])
@pytest.mark.parametrize("text", ["-38", "218", "0xDA"])
def test_padding_is_a_byte_in_any_form(option: str, text: str, desk: Path, tmp_path, refsim) -> None:
    assert refsim("pack a.npy -l 4W4C", "-o", tmp_path / "out.bin", option, text).status == 0
    assert set(np.fromfile(tmp_path / "out.bin", np.uint8)) == {0, 1, 0xDA}


def test_a_buffer_of_a_case_needs_no_layout(desk: Path, tmp_path: Path, refsim: Callable) -> None:
    case = Path(shutil.copytree("case", tmp_path / "case"))
    shutil.copy(case / "out.bin", case / "actual.bin")
    for name in ("out", "actual"):
        assert refsim(f"unpack {case}/{name}.bin -o {tmp_path}/{name}.npy").status == 0
        assert np.load(tmp_path / f"{name}.npy").shape == (1, 64, 16, 16)
    assert refsim(f"diff {case}/actual.bin {case}/out.bin").status == 0
    assert refsim("diff", flip(case / "actual.bin"), case / "out.bin").status == 1
    (case / "other.bin").write_bytes(bytes(4))
    refsim(f"unpack {case}/other.bin -o other.npy").refused("give --layout and --shape")


def test_what_a_family_shares_makes_no_two_names_alike() -> None:
    assert choices.nearest("q8ta_foo", OPS) is None
    assert choices.nearest("q8ta_ad", OPS) == "q8ta_add"
    assert choices.nearest("delegate0_v300", ["delegate0_v30", "delegate0_v87"]) == "delegate0_v30"
    parts = ["ch.1.pte", "ch.2.pte", "ch.3.pte"]
    assert choices.nearest("ch.pte", parts) == choices.nearest("ch.pte", parts[::-1]) == "ch.1.pte"


def test_the_help_of_sweep_lists_every_operator(refsim: Callable) -> None:
    assert set(OPS) <= set(re.findall(r"\w+", refsim("sweep --help").out))


def test_a_triage_with_other_inputs_says_so(refsim: Callable, models: Path, tmp_path: Path) -> None:
    """It finds inputs that people take for these, and then blames nobody; it finds no others."""
    held = np.load(models / "linear_head.io.npz")
    right = {name: held[name] for name in held.files if name.startswith("in")}
    np.savez(tmp_path / "large.npz", **{name: array * np.float32(255) for name, array in right.items()})
    np.savez(tmp_path / "turned.npz", **{name: array[..., ::-1] for name, array in right.items()})
    device = DATA / "device" / "linear_head.raw"
    for name, first in (("large", "unknown inputs"), ("turned", "wrong")):
        given = ("triage", f"{device}.pte", "--outputs", f"{device}.npz", "-i", tmp_path / f"{name}.npz")
        found = refsim(*given, "--json").json
        assert [node["verdict"] for node in found["nodes"]] == [first, *["same"] * 4] and not found["same"]
        said = "q8ta_quantize is right for other inputs: in0 divided by 255. " in refsim(*given).out
        assert said == (name == "large")


def test_a_missing_kp_has_one_wording(refsim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from refsim.cli import devices

    found = importlib.util.find_spec
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name == "kp" else found(name))
    row = dict(index=0, name="d", kind="cpu", vendor="v", api_version="1", driver="d", device_local_bytes=1)
    row |= dict(dot_4x8_accelerated=False, integer_dot_product=False, int8_matrices=False)
    monkeypatch.setattr(devices, "devices", lambda: [dataclasses.make_dataclass("Row", row)(**row)])
    done = refsim("devices")
    assert done.status == 0 and done.out.endswith(f"nothing runs on it: {NO_KP}; fix: {GPU_FIX}\n")
    monkeypatch.setattr(devices, "devices", lambda: [])
    told = refsim("devices --json").json
    assert (told["kp"], told["fix"]) == (False, GPU_FIX)
    (tmp_path / "kp.py").write_text("raise ImportError('not in this test')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kp", raising=False)
    done = refsim(f"run {DATA}/models/mixed_ops.pte --random 0 -x gpu")
    done.refused("need " + GPU_FIX if NO_KP in done.err else "vulkan", status=3)
    assert refsim("golden verify q8ta_relu/1 -x gpu").status == 3  # found out by another process


def test_the_script_of_the_pages_knows_its_runs() -> None:
    command = [sys.executable, "docs/seeded_bugs.py", "nonesuch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "no such run: nonesuch; need frame, grid, steps or phone" in done.stderr


@pytest.mark.parametrize("verb", ["diff", "golden check"])
def test_the_schema_of_one_verb(verb: str, refsim: Callable) -> None:
    done = refsim(f"schema {verb}")
    whole = json.loads(refsim("schema").out)
    assert done.status == 0
    assert json.loads(done.out) == {**whole["$defs"]["verbs"][verb], "$defs": whole["$defs"]}
