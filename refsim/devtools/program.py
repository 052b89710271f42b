"""The JSON of a torch.export program, in a .pt2 file or in an ETRecord: as much of it as says what made each value.

The schema is torch's (torch/_export/serde/schema.py). Only names, shapes, plain numbers and metadata are read: nothing
of the file is evaluated, looked up or run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from refsim.core.errors import FormatError
from refsim.formats.reading import parsed, reading
from refsim.graph.origin import ExportedNode, Frame

NEED = "the JSON of a torch.export program"
_MOST_FRAMES = 256
#: Most bytes of a program: ExecuTorch stores some 3 KB for each operator.
MOST_BYTES = 1 << 25


@dataclass(frozen=True)
class ExportedProgram:
    """The operators in order; the inputs that a user gives; the shapes of tensors, None for a dynamic one."""

    where: str
    nodes: tuple[ExportedNode, ...]
    inputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...] | None]

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """The number of the node that makes a tensor."""
        return {name: number for number, node in enumerate(self.nodes) for name in node.outputs}

    @cached_property
    def computed(self) -> frozenset[str]:
        """The tensors that depend on an input."""
        found = set(self.inputs)
        for node in self.nodes:
            if not found.isdisjoint(node.inputs):
                found.update(node.outputs)
        return frozenset(found)


def parse(data: bytes | memoryview, where: str) -> ExportedProgram:
    """A program from its JSON. FormatError or LimitError."""
    content = parsed(data, where, NEED, MOST_BYTES)
    with reading(where, "not a torch.export program", NEED):
        module = content["graph_module"]
        graph = module["graph"]
        specs = module["signature"]["input_specs"]
        inputs = [_name(spec["user_input"]["arg"]["as_tensor"]) for spec in specs if _is_tensor_input(spec)]
        nodes = tuple(_node(row) for row in _rows(graph["nodes"], where))
        shapes = {_text(name): _shape(row) for name, row in graph["tensor_values"].items()}
        return ExportedProgram(where, nodes, tuple(inputs), shapes)


def _rows(nodes: Any, where: str) -> list[Any]:
    if not isinstance(nodes, list):
        raise FormatError(where, "nodes are not a list", got=type(nodes).__name__, need=NEED)
    return nodes


def _is_tensor_input(spec: Any) -> bool:
    return "user_input" in spec and "as_tensor" in spec["user_input"]["arg"]


def _node(row: Any) -> ExportedNode:
    inputs: list[str] = []
    numbers: dict[str, float] = {}
    for given in row["inputs"]:
        ((kind, value),) = given["arg"].items()
        if kind in ("as_int", "as_float") and type(value) in (int, float):
            numbers[_text(given["name"])] = value
        inputs += _tensors(kind, value)
    outputs = [
        name for given in row["outputs"] for kind, value in given.items() for name in _tensors(kind, value)
    ]
    metadata = row["metadata"]
    module, kind = _module(_text(metadata.get("nn_module_stack", "")))
    frames = tuple(_frames(_text(metadata.get("stack_trace", ""))))
    handle = _text(metadata.get("debug_handle", ""))
    number = int(handle) if handle.isascii() and handle.isdigit() and len(handle) < 10 else None
    return ExportedNode(
        _target(_text(row["target"])), tuple(inputs), tuple(outputs), numbers, frames, module, kind, number
    )


def _tensors(kind: str, value: Any) -> list[str]:
    """The names of the tensors in an argument or a result."""
    if kind == "as_tensor":
        return [_name(value)]
    if kind == "as_tensors":
        return [_name(item) for item in value]
    if kind == "as_optional_tensors":
        return [_name(item["as_tensor"]) for item in value if "as_tensor" in item]
    if kind == "as_optional_tensor":
        return [_name(value["as_tensor"])] if "as_tensor" in value else []
    return []


def _name(value: Any) -> str:
    return _text(value["name"])


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} where text should be")
    return value


def _target(target: str) -> str:
    """``aten.conv2d.default`` of ``torch.ops.aten.conv2d.default``, or of the edge dialect's longer name."""
    _, marked, name = target.rpartition("ops.")
    return name if marked else target


def _shape(row: Any) -> tuple[int, ...] | None:
    sizes = [size.get("as_int") for size in row["sizes"]]
    return tuple(sizes) if all(type(size) is int for size in sizes) else None


def _module(stack: str) -> tuple[str, str]:
    """Path and class of the innermost module: entries ``key,path,class`` of the stack are separated by semicolons."""
    for entry in reversed(stack.split(";")):
        path, _, kind = entry.partition(",")[2].rpartition(",")
        if path:
            return path.removeprefix("L['self']."), kind.rpartition(".")[2]
    return "", ""


def _frames(trace: str) -> Iterator[Frame]:
    """The lines of a stack trace as Python prints it, outermost first."""
    lines = trace.splitlines()
    found = 0
    for at, line in enumerate(lines):
        head = line.strip()
        if not head.startswith('File "') or found == _MOST_FRAMES:
            continue
        file, _, rest = head.removeprefix('File "').rpartition('", line ')
        number, _, function = rest.partition(", in ")
        if file and number.isascii() and number.isdigit() and len(number) < 10:
            found += 1
            after = lines[at + 1].strip() if at + 1 < len(lines) else ""
            yield Frame(file, int(number), function, "" if after.startswith('File "') else after)
