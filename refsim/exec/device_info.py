"""What is known of a Vulkan device: what the executors of one say of theirs, and `refsim devices` lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from refsim.core.meanings import OwnKind, OwnName, Vendor, VulkanVersion


@dataclass(frozen=True)
class DeviceInfo:
    """One physical device, in the loader's order (``index`` is what Kompute's Manager takes)."""

    index: Annotated[int, "Its number."]
    name: OwnName
    kind: OwnKind
    vendor: Vendor
    api_version: VulkanVersion
    driver: Annotated[str, "Name and version of the driver, as it spells them."]
    limits: Annotated[Mapping[str, Any], "Limits of the device, with Vulkan's names."]
    device_local_bytes: Annotated[int, "The largest heap of device memory."]
    host_bytes: Annotated[
        int, "The largest heap outside of it, for staging buffers; 0 if there is but one kind."
    ]
    integer_dot_product: Annotated[bool, "Whether it has the packed dot product (OpSDot)."]
    dot_4x8_accelerated: Annotated[bool, "Whether the driver says that this is fast for signed bytes."]
    dot_4x8_unsigned_accelerated: Annotated[bool, "The same for unsigned bytes."] = False
    int8_matrices: Annotated[
        bool, "Whether it multiplies cooperative matrices of signed bytes, 16 x 32 x 16."
    ] = False
    float_modes: Annotated[
        tuple[str, ...], "What shaders may ask of its float operations: execution modes of SPIR-V."
    ] = ()

    @property
    def keeps_denormals(self) -> bool:
        """Whether float operations give denormals and take them as they are, if a shader asks for that.

        lavapipe does, and does not say so.
        """
        return "DenormPreserve" in self.float_modes or self.driver.startswith("llvmpipe")

    @property
    def numerics(self) -> str:
        """The name of the profile that this driver is known to have (docs/numerics.md); canonical for any other."""
        known = {"llvmpipe": "lavapipe", "NVIDIA": "nvidia"}
        return next((name for start, name in known.items() if self.driver.startswith(start)), "canonical")

    @property
    def timestamp_ns(self) -> float:
        """Nanoseconds per tick of ``Sequence.get_timestamps``."""
        period = self.limits["timestampPeriod"]
        assert isinstance(period, float)
        return period
