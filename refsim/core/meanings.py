"""Keys that stand in several results: each type with what it means, said once (see `refsim.core.plain`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

# --- what a result is about ------------------------------------------------------------------------------

FileName: TypeAlias = Annotated[str, "The file."]
FileRead: TypeAlias = Annotated[str, "The file that was read."]
FolderName: TypeAlias = Annotated[str, "The folder."]
ProgramName: TypeAlias = Annotated[str, "The program."]
DeviceFamily: TypeAlias = Annotated[str, "The family of devices whose layouts and kernels were taken."]
OwnName: TypeAlias = Annotated[str, "Its name."]
OwnFile: TypeAlias = Annotated[str, "Its file."]
OwnKind: TypeAlias = Annotated[str, "Its kind."]
OwnText: TypeAlias = Annotated[str, "Its text."]
OwnNumber: TypeAlias = Annotated[int, "Its number."]
OwnId: TypeAlias = Annotated[str, "Its id."]
Detail: TypeAlias = Annotated[str, "More about it, in words."]
Happened: TypeAlias = Annotated[str, "What happened, in words."]
Seconds: TypeAlias = Annotated[float, "How long it took."]

# --- what ran it -----------------------------------------------------------------------------------------

ExecutorName: TypeAlias = Annotated[str, "The executor."]
CpuThreads: TypeAlias = Annotated[int, "Threads of the executor cpu."]
RuntimeName: TypeAlias = Annotated[str, "The runtime: its name, or the file that describes it."]
BestProfile: TypeAlias = Annotated[str, "The profile that explains most."]
Vendor: TypeAlias = Annotated[str, "Who made it."]
VulkanVersion: TypeAlias = Annotated[str, "Version of Vulkan."]

# --- a call, and its place in a program ------------------------------------------------------------------

DelegateNumber: TypeAlias = Annotated[int, "Number of the delegate."]
NodeNumber: TypeAlias = Annotated[int, "Number of the node."]
NodeName: TypeAlias = Annotated[str, "The node."]
OperatorName: TypeAlias = Annotated[str, "Name of the operator."]
ArgumentName: TypeAlias = Annotated[str, "Name of the argument."]
ModuleName: TypeAlias = Annotated[str, "Name of the module."]
CaseName: TypeAlias = Annotated[str, "The name of the case."]
Configuration: TypeAlias = Annotated[str, "Shapes, layouts and parameters in one line."]
CaseCount: TypeAlias = Annotated[int, "How many cases."]
Seed: TypeAlias = Annotated[int, "The seed."]

# --- a tensor, and its bytes -----------------------------------------------------------------------------

ValueName: TypeAlias = Annotated[str, "The value's name."]
OutputName: TypeAlias = Annotated[str, "out0, out1, ..."]
Dims: TypeAlias = Annotated[Sequence[int], "The sizes, outermost dim first."]
DtypeName: TypeAlias = Annotated[str, "Its dtype."]
LayoutName: TypeAlias = Annotated[str, "The layout."]
LayoutOrNone: TypeAlias = Annotated[str | None, "The layout; null for a tensor that has none."]
SizeInBytes: TypeAlias = Annotated[int, "Size in bytes."]
Elements: TypeAlias = Annotated[int, "How many elements there are."]
CellKind: TypeAlias = Annotated[str, "value, lane padding or word padding."]
ComparedBytes: TypeAlias = Annotated[int, "Bytes compared."]
DifferentBytes: TypeAlias = Annotated[int, "Bytes that differ."]
DifferentElements: TypeAlias = Annotated[int, "Elements that differ."]
