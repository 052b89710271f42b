"""What may be in a .pt2 file that nobody vouches for: data that torch reads without running any of it.

torch.export.load runs code that a file carries in several ways: pickles (of example inputs, of weights, of opaque
objects), compiled libraries, text that is evaluated as Python (sizes, guards), and names of modules and functions that
are looked up. `checked` refuses these with the reason, and writes the rest into a new archive. So what was checked is
what torch reads, whatever else lay in the file.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from refsim.aten.allowed import PLACE, is_allowed
from refsim.core.errors import FormatError

TRUST = "a file without it, or --trust if you know who made this one"
#: Members by their name behind the archive's own folder; what is not among them is left behind.
_KEPT = re.compile(
    r"archive_format|archive_version|version|byteorder|\.data/(version|serialization_id)|models/[^/]+\.json"
    r"|data/(weights|constants|sample_inputs)/[^/]+|serialized_[a-z_]+\.(json|pt)"
)
_COMPILED = re.compile(r"data/aotinductor/|\.(so|dll|dylib|cubin)$")
#: Evaluated by sympy: whole numbers, symbols of sizes, operators, and these functions.
_ARITHMETIC = """
    Abs Add And CeilDiv CeilToInt CleanDiv Eq FloatPow FloatTrueDiv FloorDiv FloorToInt Ge Gt IntTrueDiv Integer
    Le LShift Lt Max Min Mod ModularIndexing Mul Ne Not Or Pow PowByNatural PythonMod RShift Rational RoundToInt
    ToFloat TruncToFloat TruncToInt Where True False true false oo int_oo floor ceiling
"""
_FUNCTIONS = frozenset(_ARITHMETIC.split())
_MADE = re.compile(r"Symbol\('(\w{1,40})'((, \w+=(True|False))*)\)")
_SYMBOL = re.compile(r"(s|u|z|zf|zuf)\d+")
_EXPRESSION = re.compile(r"[\w\s+\-*/%(),<>=!&|~.]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
#: Classes of containers in the signature of a program.
_CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)
_TARGET = re.compile(
    r"torch\.ops\.(?P<space>\w+)\.(?P<base>\w+)(\.\w+)?|_operator\.\w+|math\.\w+|torch\.sym_\w+"
)
_NAMESPACES = ("torchao", "et_vk", "dim_order_ops")
_HIGHER_ORDER = ("cond", "while_loop", "wrap_with_set_grad_enabled", "wrap_with_autocast", "map_impl", "scan")
#: What programs hold before they are decomposed, beside the functions that torch may run for any file.
_UNDECOMPOSED = """
    _assert_async _assert_scalar _assert_tensor_metadata _embedding_bag _fft_c2c _fft_c2r _fft_r2c
    _local_scalar_dense _native_batch_norm_legit _native_batch_norm_legit_functional _pdist_forward
    _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu _unsafe_index
    _unsafe_index_put _weight_norm _weight_norm_interface alpha_dropout as_strided as_strided_copy bernoulli
    dropout embedding_bag empty empty_like empty_permuted feature_dropout gcd gru gru_cell item lcm lstm
    lstm_cell native_batch_norm native_dropout rand rand_like randint randn randn_like remainder rnn_relu
    rnn_relu_cell rnn_tanh rnn_tanh_cell sym_constrain_range sym_constrain_range_for_size sym_numel sym_size
    sym_storage_offset sym_stride unsafe_chunk unsafe_split
"""
_IN_TRAINING_FORM = frozenset(_UNDECOMPOSED.split())


def checked(data: bytes | memoryview, where: str) -> bytes:
    """The archive without anything that runs; FormatError, with the reason, for one that needs more than data."""
    try:
        members = _members(data, where)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, KeyError, NotImplementedError,
            RuntimeError) as error:  # fmt: skip
        reason = str(error) or type(error).__name__
        raise FormatError(
            where, "torch cannot read it", got=reason[:200], need="what torch.export.save writes"
        ) from error
    pickled: set[str] = set()
    for name in members:
        if name.endswith(".json"):
            members[name] = _program(members[name], f"{where}: {name}", pickled)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        for name, raw in members.items():
            if name.endswith(".pt") or name.rpartition("/")[2] in pickled:
                _check_tensors(raw, f"{where}: {name}")
            out.writestr(name, raw)
    return made.getvalue()


def _members(data: bytes | memoryview, where: str) -> dict[str, bytes]:
    """What torch reads of an archive, by name."""
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            name = info.filename.partition("/")[2]
            if _COMPILED.search(name):
                _refuse(where, "compiled code", info.filename)
            if info.filename in found:
                _refuse(where, "two members of one name", info.filename)
            if info.compress_type != zipfile.ZIP_STORED:
                _refuse(where, "a compressed member", info.filename)
            if _KEPT.fullmatch(name) or _KEPT.fullmatch(info.filename):  # torch before 2.8 wrote no folder
                found[info.filename] = archive.read(info)
    return found


def _refuse(where: str, what: str, got: object) -> None:
    raise FormatError(where, f"not loaded: {what}", got=repr(got)[:120], need=TRUST)


def _program(raw: bytes, where: str, pickled: set[str]) -> bytes:
    """The JSON of a program or of its weights; adds the names of members that torch unpickles."""
    try:
        content = json.loads(raw)
        for row in _dicts(content):
            _check(row, where)
            if row.get("use_pickle"):
                pickled.add(str(row.get("path_name")).rpartition("/")[2])
    except (ValueError, RecursionError, TypeError) as error:
        raise FormatError(where, "not the JSON of a program", got=repr(error)[:120]) from error
    return json.dumps(content).encode()


def _dicts(content: Any) -> Iterator[dict[str, Any]]:
    """Every dict in JSON."""
    pending = [content]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending += item.values()
        elif isinstance(item, list):
            pending += item


def _check(row: dict[str, Any], where: str) -> None:
    """One dict of a program's JSON."""
    if row.get("guards_code"):
        row["guards_code"] = []  # Python text that repeats the shapes of the inputs
    expression = row.get("expr_str")
    if expression is not None and not _is_size(expression):
        _refuse(where, "a size is more than arithmetic", expression)
    if str(row.get("path_name")).startswith(("custom_obj", "opaque_obj")):
        _refuse(where, "a pickled object", row["path_name"])
    if "target" in row and "inputs" in row and not _is_function(row["target"]):
        _refuse(where, f"an operator is not among those of {PLACE}", row["target"])
    for key in ("in_spec", "out_spec"):
        for spec in _dicts(json.loads(row[key])) if isinstance(row.get(key), str) and row[key] else ():
            if spec.get("type") not in _CONTAINERS or "__enum__" in str(spec.get("context")):
                _refuse(where, "the signature names a class", spec.get("type"))


def _is_size(text: Any) -> bool:
    text = _MADE.sub(r"\1", text) if isinstance(text, str) else text
    if not isinstance(text, str) or "__" in text or not _EXPRESSION.fullmatch(text):
        return False
    if re.search(r"\.\s*[^\W\d]|\d[A-Za-z_]", text):  # an attribute, or something like 1if
        return False
    return all(name in _FUNCTIONS or _SYMBOL.fullmatch(name) for name in _NAME.findall(text))


def _is_function(target: Any) -> bool:
    match = _TARGET.fullmatch(target) if isinstance(target, str) else None
    if match is None:
        return False
    space, base = match["space"], match["base"]
    if space is None or space in _NAMESPACES:
        return True
    if space == "higher_order":
        return base in _HIGHER_ORDER
    base = base.removesuffix("_") if not base.startswith("__") else base
    return is_allowed(space, base) or (space == "aten" and base in _IN_TRAINING_FORM)


def _check_tensors(raw: bytes, where: str) -> None:
    """FormatError unless torch reads it as tensors and plain containers."""
    import torch

    try:
        torch.load(io.BytesIO(raw), weights_only=True, map_location="cpu")
    except Exception as error:  # whatever it holds, it is not data alone
        told = re.search(r"Unsupported \w+: .*?(?= was )", str(error))
        reason = told[0] if told else " ".join(str(error).split())[:160]
        raise FormatError(
            where, "not loaded: a pickle of more than tensors", got=reason, need=TRUST
        ) from error


@contextmanager
def tensors_only() -> Iterator[None]:
    """Let torch.load read tensors and nothing else, whatever its callers ask for."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
