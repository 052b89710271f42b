"""What the Vulkan loader says about the devices here, asked directly and without Kompute.

Kompute cannot be asked first: if no driver is installed, its Manager ends the process. It also does not report a
device's driver, its memory, or the length of a timestamp tick.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from refsim.core.errors import DeviceError, MissingDependencyError
from refsim.exec.device_info import DeviceInfo

LOADER = "libvulkan.so.1"
API_VERSION = (1 << 22) | (1 << 12)  # 1.1, what Kompute asks for: the same devices in the same order

KINDS = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
VENDORS = {
    0x10DE: "NVIDIA",
    0x1002: "AMD",
    0x8086: "Intel",
    0x13B5: "ARM",
    0x5143: "Qualcomm",
    0x10005: "Mesa",
}

# VkPhysicalDeviceProperties: where its parts lie, and of the limits those that a compute executor respects.
PROPERTIES_BYTES = 824
LIMITS_AT = 296
LIMITS = {
    "maxImageDimension2D": (4, "I"),
    "maxStorageBufferRange": (28, "I"),
    "maxPushConstantsSize": (32, "I"),
    "maxMemoryAllocationCount": (36, "I"),
    "maxPerStageDescriptorStorageBuffers": (76, "I"),
    "maxComputeSharedMemorySize": (216, "I"),
    "maxComputeWorkGroupCount": (220, "3I"),
    "maxComputeWorkGroupInvocations": (232, "I"),
    "maxComputeWorkGroupSize": (236, "3I"),
    "timestampComputeAndGraphics": (420, "I"),
    "timestampPeriod": (424, "f"),
}

# Structures that are chained to a query: (sType, bytes). Each starts with sType and pNext, 16 bytes.
HEADER_BYTES = 16
DRIVER = (1000196000, 536)
DOT_FEATURES = (1000280000, 24)
DOT_PROPERTIES = (1000280001, 136)
MATRIX_FEATURES = (1000506000, 24)
MODEL_FEATURES = (1000211000, 32)
INT8_FEATURES = (1000082000, 24)
FLOAT_CONTROLS = (1000197000, 88)
FLOAT_CONTROLS_EXTENSION = "VK_KHR_shader_float_controls"
#: By the name of SPIR-V's execution mode: where FLOAT_CONTROLS says whether binary32 may have it, and its numbers as a
#: capability and as a mode. Signed zeros and NaN stay; denormals stay; halves go to even.
FLOAT_MODES = {
    "SignedZeroInfNanPreserve": (28, 4466, 4461),
    "DenormPreserve": (40, 4464, 4459),
    "RoundingModeRTE": (64, 4467, 4462),
}
FEATURES2 = (1000059000, 240)
PROPERTIES2 = (1000059001, HEADER_BYTES + PROPERTIES_BYTES)
DOT_4X8_UNSIGNED_ACCELERATED_AT, DOT_4X8_SIGNED_ACCELERATED_AT = 28, 32
MATRIX_EXTENSION = "VK_KHR_cooperative_matrix"
# VkCooperativeMatrixPropertiesKHR behind its head: sizes M, N, K; types of A, B, C and the result; saturating; scope
MATRIX_ROW = (1000506001, 56)
INT8_MATRICES = (16, 16, 32, 3, 3, 5, 5, 0, 3)  # signed bytes, int32 sums, of a subgroup
MEMORY_BYTES = 520
EXTENSION_BYTES = 260
HEAP_DEVICE_LOCAL = 1


def version_text(packed: int) -> str:
    return f"{packed >> 22 & 0x7F}.{packed >> 12 & 0x3FF}.{packed & 0xFFF}"


def devices() -> list[DeviceInfo]:
    """Every Vulkan device; empty if there is a loader but no driver.

    Raises MissingDependencyError if there is no Vulkan loader.
    """
    try:
        lib = ctypes.CDLL(LOADER)
    except OSError as error:
        raise MissingDependencyError(
            "vulkan", f"no loader ({LOADER})", got=error, need="apt-get install libvulkan1"
        ) from error
    instance = create_instance(lib)
    if instance is None:
        return []
    try:
        pointer = ctypes.sizeof(ctypes.c_void_p)
        rows = enumerated(lib, "vkEnumeratePhysicalDevices", pointer, instance)
        handles = [ctypes.c_void_p.from_buffer_copy(row) for row in rows]
        return [describe(lib, instance, handle, index) for index, handle in enumerate(handles)]
    finally:
        lib.vkDestroyInstance(instance, None)


def create_instance(lib: ctypes.CDLL) -> ctypes.c_void_p | None:
    """An instance, or None if no driver can make one."""
    application = struct.pack("=I4xQQI4xQII", 0, 0, 0, 0, 0, 0, API_VERSION)
    application_buffer = ctypes.create_string_buffer(application, len(application))
    create = struct.pack("=I4xQI4xQI4xQI4xQ", 1, 0, 0, ctypes.addressof(application_buffer), 0, 0, 0, 0)
    instance = ctypes.c_void_p()
    result = lib.vkCreateInstance(create, None, ctypes.byref(instance))
    if result == -9:  # VK_ERROR_INCOMPATIBLE_DRIVER: the loader found no driver at all
        return None
    checked(result, "vkCreateInstance")
    return instance


def checked(result: int, call: str) -> None:
    if result < 0:
        raise DeviceError("vulkan", f"{call} failed", got=f"VkResult {result}", need="0")


def chained(
    kind: tuple[int, int], following: ctypes.Array[ctypes.c_char] | None
) -> ctypes.Array[ctypes.c_char]:
    """A zeroed structure that asks for ``kind`` and then for what ``following`` asks for."""
    s_type, size = kind
    buffer = ctypes.create_string_buffer(size)
    struct.pack_into("=I4xQ", buffer, 0, s_type, ctypes.addressof(following) if following else 0)
    return buffer


def text_at(raw: bytes, at: int) -> str:
    return raw[at : at + 256].split(b"\0", 1)[0].decode("utf-8", "replace")


def enumerated(lib: ctypes.CDLL, call: str, size: int, *arguments: Any) -> list[bytes]:
    """What a call lists, each row of so many bytes: it is asked how many there are, and then for them."""
    count = ctypes.c_uint32(0)
    checked(lib[call](*arguments, ctypes.byref(count), None), call)
    rows = ctypes.create_string_buffer(size * count.value)
    checked(lib[call](*arguments, ctypes.byref(count), rows), call)
    return [rows.raw[at : at + size] for at in range(0, size * count.value, size)]


def extensions(lib: ctypes.CDLL, handle: ctypes.c_void_p) -> set[str]:
    """The names of a device's extensions."""
    rows = enumerated(lib, "vkEnumerateDeviceExtensionProperties", EXTENSION_BYTES, handle, None)
    return {text_at(row, 0) for row in rows}


def int8_matrices(lib: ctypes.CDLL, instance: ctypes.c_void_p, handle: ctypes.c_void_p) -> bool:
    """Whether a device has `INT8_MATRICES` and the features of the kernels that use them."""
    if MATRIX_EXTENSION not in extensions(lib, handle):
        return False
    matrices, model, int8 = (chained(kind, None) for kind in (MATRIX_FEATURES, MODEL_FEATURES, INT8_FEATURES))
    for features in (matrices, model, int8):
        lib.vkGetPhysicalDeviceFeatures2(handle, chained(FEATURES2, features))
    if not (
        flag_at(matrices.raw, HEADER_BYTES)
        and flag_at(model.raw, HEADER_BYTES)
        and flag_at(int8.raw, HEADER_BYTES + 4)
    ):
        return False
    lib.vkGetInstanceProcAddr.restype = ctypes.c_void_p
    address = lib.vkGetInstanceProcAddr(instance, b"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
    if not address:
        return False
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    query, count = kind(address), ctypes.c_uint32(0)
    if query(handle, ctypes.addressof(count), None) < 0:
        return False
    s_type, size = MATRIX_ROW
    rows = ctypes.create_string_buffer(size * count.value)
    for i in range(count.value):
        struct.pack_into("=I", rows, size * i, s_type)
    if query(handle, ctypes.addressof(count), ctypes.addressof(rows)) < 0:
        return False
    found = (struct.unpack_from("=9I", rows.raw, size * i + HEADER_BYTES) for i in range(count.value))
    return INT8_MATRICES in found


def describe(lib: ctypes.CDLL, instance: ctypes.c_void_p, handle: ctypes.c_void_p, index: int) -> DeviceInfo:
    driver = chained(DRIVER, None)
    controls = chained(FLOAT_CONTROLS, driver)
    dot_properties = chained(DOT_PROPERTIES, controls)
    properties = chained(PROPERTIES2, dot_properties)
    lib.vkGetPhysicalDeviceProperties2(handle, properties)
    dot_features = chained(DOT_FEATURES, None)
    lib.vkGetPhysicalDeviceFeatures2(handle, chained(FEATURES2, dot_features))
    memory = ctypes.create_string_buffer(MEMORY_BYTES)
    lib.vkGetPhysicalDeviceMemoryProperties(handle, memory)

    raw = properties.raw[HEADER_BYTES:]
    api, _, vendor, _, kind = struct.unpack_from("=5I", raw, 0)
    driver_name, driver_info = text_at(driver.raw, 20), text_at(driver.raw, 276)
    limits = {}
    for limit, (at, form) in LIMITS.items():
        found = struct.unpack_from("=" + form, raw, LIMITS_AT + at)
        limits[limit] = found if len(found) > 1 else found[0]
    heaps = heap_sizes(memory.raw)
    return DeviceInfo(
        index=index,
        name=text_at(raw, 20),
        kind=KINDS.get(kind, f"type {kind}"),
        vendor=VENDORS.get(vendor, hex(vendor)),
        api_version=version_text(api),
        driver=", ".join(part for part in (driver_name, driver_info) if part),
        limits=limits,
        device_local_bytes=max((size for size, local in heaps if local), default=0),
        host_bytes=max((size for size, local in heaps if not local), default=0),
        integer_dot_product=bool(struct.unpack_from("=I", dot_features.raw, HEADER_BYTES)[0]),
        dot_4x8_accelerated=flag_at(dot_properties.raw, DOT_4X8_SIGNED_ACCELERATED_AT),
        dot_4x8_unsigned_accelerated=flag_at(dot_properties.raw, DOT_4X8_UNSIGNED_ACCELERATED_AT),
        int8_matrices=int8_matrices(lib, instance, handle),
        float_modes=float_modes(lib, handle, controls.raw),
    )


def float_modes(lib: ctypes.CDLL, handle: ctypes.c_void_p, controls: bytes) -> tuple[str, ...]:
    """Those of `FLOAT_MODES` that a device offers."""
    if FLOAT_CONTROLS_EXTENSION not in extensions(lib, handle):
        return ()
    return tuple(name for name, (at, *_) in FLOAT_MODES.items() if flag_at(controls, at))


def flag_at(raw: bytes, at: int) -> bool:
    return bool(struct.unpack_from("=I", raw, at)[0])


def heap_sizes(memory: bytes) -> list[tuple[int, bool]]:
    """(bytes, device-local) of each heap in a VkPhysicalDeviceMemoryProperties."""
    count_at = 4 + 32 * 8  # memoryTypeCount, then 32 types of 8 bytes
    (count,) = struct.unpack_from("=I", memory, count_at)
    heaps = (struct.unpack_from("=QI", memory, count_at + 4 + 16 * i) for i in range(count))
    return [(size, bool(flags & HEAP_DEVICE_LOCAL)) for size, flags in heaps]
