"""Keys that stand in several results: each type with what it means, said once (see `refsim.core.plain`)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

# --- what a result is about ------------------------------------------------------------------------------

FileName: TypeAlias = Annotated[str, "The file."]
FolderName: TypeAlias = Annotated[str, "The folder."]
DeviceFamily: TypeAlias = Annotated[str, "The family of devices whose layouts and kernels were taken."]
OwnName: TypeAlias = Annotated[str, "Its name."]
OwnKind: TypeAlias = Annotated[str, "Its kind."]
OwnId: TypeAlias = Annotated[str, "Its id."]
Detail: TypeAlias = Annotated[str, "More about it, in words."]
Seconds: TypeAlias = Annotated[float, "How long it took."]

# --- what ran it -----------------------------------------------------------------------------------------

BestProfile: TypeAlias = Annotated[str, "The profile that explains most."]
Vendor: TypeAlias = Annotated[str, "Who made it."]
VulkanVersion: TypeAlias = Annotated[str, "Version of Vulkan."]

# --- a call, and its place in a program ------------------------------------------------------------------

DelegateNumber: TypeAlias = Annotated[int, "Number of the delegate."]
NodeNumber: TypeAlias = Annotated[int, "Number of the node."]
NodeName: TypeAlias = Annotated[str, "The node."]
OperatorName: TypeAlias = Annotated[str, "Name of the operator."]
ModuleName: TypeAlias = Annotated[str, "Name of the module."]
CaseName: TypeAlias = Annotated[str, "The name of the case."]

# --- a tensor, and its bytes -----------------------------------------------------------------------------

DtypeName: TypeAlias = Annotated[str, "Its dtype."]
SizeInBytes: TypeAlias = Annotated[int, "Size in bytes."]
Elements: TypeAlias = Annotated[int, "How many elements there are."]
CellKind: TypeAlias = Annotated[str, "value, lane padding or word padding."]
ComparedBytes: TypeAlias = Annotated[int, "Bytes compared."]
DifferentBytes: TypeAlias = Annotated[int, "Bytes that differ."]
