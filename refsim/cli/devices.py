"""List the Vulkan devices: name, driver, memory, packed dot product, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from typing import Any

from refsim.cli._device import devices
from refsim.cli.kit.text import print_table, say
from refsim.cli.kit.verb import Result, verb
from refsim.core.counted import form
from refsim.core.gpu_fix import GPU_FIX, NO_KP

COLUMNS = (
    "executor",
    "device",
    "kind",
    "vendor",
    "vulkan",
    "driver",
    "memory bytes",
    "packed dot product",
    "int8 matrices",
)


@verb("devices")
def command() -> Result:
    """List the devices that you can name with `-x gpu:N`. The status is 3 if there is none."""
    found, built = devices(), find_spec("kp") is not None
    rows = [{"executor": f"gpu:{d.index}", **asdict(d)} for d in found]
    content = {"devices": rows, "kp": built, "fix": None if built else GPU_FIX}
    return Result(content, partial(_show, found, built))


def _show(found: Sequence[Any], built: bool) -> None:
    table = [
        (
            f"gpu:{d.index}",
            d.name,
            d.kind,
            d.vendor,
            d.api_version,
            d.driver,
            d.device_local_bytes,
            "accelerated" if d.dot_4x8_accelerated else "yes" if d.integer_dot_product else "no",
            "yes" if d.int8_matrices else "no",
        )
        for d in found
    ]
    print_table(COLUMNS, table, drop=("vulkan", "kind", "vendor", "memory bytes"))
    if not built:
        say(f"nothing runs on {form(len(found), 'it', 'them')}: {NO_KP}; fix: {GPU_FIX}")
