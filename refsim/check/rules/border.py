"""Where a delegate meets the program around it: the tensors that go in and come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.shader_names import dtype_name, dtype_part, storage_part
from refsim.check.subject import BUFFER, Delegate, Method, Operand
from refsim.core.dtypes import BY_DELEGATE_CODE, BY_PROGRAM_CODE
from refsim.formats.pte.schema import SHAPE_DYNAMISM, DelegateCall, Tensor
from refsim.formats.vkgraph.schema import DATATYPES, UNSET_DATATYPE

STATIC = next(code for code, name in SHAPE_DYNAMISM.items() if name == "STATIC")
IN, OUT = "input", "output"


class Border(NamedTuple):
    """A tensor of a delegate that goes in or comes out."""

    delegate: Delegate
    way: str
    operand: Operand

    def hit(self, **facts: object) -> Hit:
        return Hit(self.delegate.place(self.operand.value), {"way": self.way, **facts})

    @property
    def staged(self) -> int:
        """The code of the dtype in which it waits on the host's side."""
        code = self.operand.tensor.staging_datatype
        return self.operand.tensor.datatype if code == UNSET_DATATYPE else code


def borders(method: Method) -> Iterator[Border]:
    """Every tensor at a border of a delegate."""
    for delegate in method.delegates:
        for way, ids in ((IN, delegate.graph.input_ids), (OUT, delegate.graph.output_ids)):
            for number in ids:
                if (operand := delegate.operand(number)) is not None:
                    yield Border(delegate, way, operand)


def calls(method: Method) -> Iterator[tuple[Delegate, DelegateCall]]:
    """Every call of a Vulkan delegate."""
    by_number = {delegate.number: delegate for delegate in method.delegates}
    for _, instruction in method.instructions:
        if isinstance(instruction, DelegateCall) and instruction.delegate_index in by_number:
            yield by_number[instruction.delegate_index], instruction


def passed(method: Method) -> Iterator[tuple[Border, Tensor]]:
    """Every tensor at a border that is no constant, and the program's tensor for it."""
    for delegate, call in calls(method):
        graph = delegate.graph
        ways = (*((IN, i) for i in graph.input_ids), *((OUT, i) for i in graph.output_ids))
        # a call with too many or too few arguments is a finding of its own
        for (way, number), argument in zip(ways, call.args, strict=False):
            operand = delegate.operand(number)
            value = method.plan.values[argument] if method.plan is not None else None
            if operand is not None and not operand.is_constant and isinstance(value, Tensor):
                yield Border(delegate, way, operand), value


def packed(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for border in borders(method):
        if border.operand.is_packed_int8 and not border.operand.is_constant:
            yield border.hit(layout=border.operand.layout)


def constant_output(method: Method, runtime: Runtime) -> Iterator[Hit]:
    return (border.hit() for border in borders(method) if border.way == OUT and border.operand.is_constant)


def constant_input(method: Method, runtime: Runtime) -> Iterator[Hit]:
    return (border.hit() for border in borders(method) if border.way == IN and border.operand.is_constant)


def arguments(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, call in calls(method):
        inputs, outputs = len(delegate.graph.input_ids), len(delegate.graph.output_ids)
        if len(call.args) != inputs + outputs:
            facts = {"given": len(call.args), "inputs": inputs, "outputs": outputs}
            yield Hit(delegate.place(), facts)


def dtypes(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for border, tensor in passed(method):
        given, staged = BY_PROGRAM_CODE[tensor.scalar_type].name, BY_DELEGATE_CODE[border.staged].name
        if given != staged and given not in runtime.staging.get(staged, ()):
            yield border.hit(given=given, staged=staged)


def input_sizes(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for border, tensor in passed(method):
        given, held = tensor.sizes, border.operand.dims
        fits = len(given) == len(held) and all(
            mine <= theirs for mine, theirs in zip(given, held, strict=True)
        )
        if border.way == IN and not fits:
            yield border.hit(given=list(given), dims=list(held))


def output_sizes(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for border, tensor in passed(method):
        static = tensor.shape_dynamism == STATIC
        if border.way == OUT and static and tensor.sizes != border.operand.dims:
            yield border.hit(given=list(tensor.sizes), dims=list(border.operand.dims))


def staging_shader(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for border in borders(method):
        operand = border.operand
        if operand.is_packed_int8 or operand.is_constant:
            continue
        if operand.storage == BUFFER:
            stem = "nchw_to_buffer" if border.way == IN else "buffer_to_nchw"
        else:
            image = "nchw_to_image" if border.way == IN else "image_to_nchw"
            stem = f"{image}_{storage_part(operand)}"
        name = "_".join((stem, dtype_part(operand), dtype_name(DATATYPES[border.staged][0])))
        if name not in runtime.shaders:
            yield border.hit(shader=name)


RULES = (
    Rule(
        "packed-border",
        Level.ERROR,
        "an {way} of the delegate is a packed int8 tensor in {layout}",
        "the staging buffer has a quarter of the bytes that the tensor has: the copy writes past it, or throws",
        "quantize after the input and dequantize before the output, inside the delegate",
        packed,
    ),
    Rule(
        "border-arguments",
        Level.ERROR,
        "a call passes {given} arguments; the delegate has {inputs} inputs and {outputs} outputs",
        "execution throws: the runtime wants as many arguments as inputs and outputs together",
        "write the call with the inputs, then the outputs, in the delegate's order",
        arguments,
    ),
    Rule(
        "border-dtype",
        Level.ERROR,
        "the program passes {given} for an {way} that the delegate stages as {staged}",
        "execution throws: Unsupported type conversion. Only 64 to 32 bits and half to float are converted",
        "give both sides the same dtype",
        dtypes,
    ),
    Rule(
        "border-shader",
        Level.ERROR,
        "an {way} of the delegate needs the staging shader {shader}, which the runtime does not have",
        "loading stops with: Could not find ShaderInfo with name {shader}",
        "convert the tensor outside of the delegate to a dtype that can be staged",
        staging_shader,
    ),
    Rule(
        "input-size",
        Level.ERROR,
        "the program passes a tensor of {given} for an input of {dims}",
        "execution stops: a tensor keeps its number of dims, and cannot grow beyond its memory",
        "export with inputs of the largest shape",
        input_sizes,
    ),
    Rule(
        "output-size",
        Level.ERROR,
        "the delegate's output is {dims}, the program's tensor for it is {given} and static",
        "execution stops with: Attempted to resize a static tensor",
        "keep the operator that gives the output out of the delegate, or pad its width to a multiple of 4 at export",
        output_sizes,
    ),
    Rule(
        "constant-input",
        Level.ERROR,
        "an input of the delegate is a constant",
        "execution throws: the runtime stages only tensors, and a constant does not count as one",
        "leave the constant out of the inputs",
        constant_input,
    ),
    Rule(
        "constant-output",
        Level.WARNING,
        "an output of the delegate is a constant",
        "nothing is copied: the caller's tensor keeps what it held before",
        "return the constant from the program, not from the delegate",
        constant_output,
    ),
)
