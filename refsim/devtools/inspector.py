"""A comparator for the Inspector of ExecuTorch's developer tools: recorded delegate calls against the right bytes.

ExecuTorch and torch are imported when a comparator is made, not before.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np

from refsim.core.errors import MissingDependencyError, ParameterError
from refsim.devtools.gaps import Gap, delegate_calls, gaps_of
from refsim.exec.factory import executor_named
from refsim.exec.model import Model, load

#: What the comparator gives as the gap of an output.
METRICS = ("differing", "steps", "largest")
#: What the Inspector calls the event of a whole delegate call.
_CALL = "DELEGATE_CALL"


def inspector_comparator(
    model: Model | str | os.PathLike[str], metric: str = "differing", executor: str = "cpu"
) -> Any:
    """A comparator for ``Inspector.calculate_numeric_gap``, of the program that was run.

    The table that the Inspector returns then has a row for each output of each Vulkan delegate call in the ETDump. The
    reference of a row is what the delegate gives on the inputs that were recorded, bit for bit. ``gap`` is, by
    ``metric``: how many elements have other bits (``differing``), the largest difference in quantization steps
    (``steps``) or in real units (``largest``); nan where that is not known. The comparator's attribute ``gaps`` has
    all of it afterwards, as `Gap` rows. The Inspector needs an ETDump with its debug buffer, and an ETRecord with
    representative inputs. Raises MissingDependencyError without ExecuTorch.
    """
    if metric not in METRICS:
        raise ParameterError("metric", "unknown", got=repr(metric), need=", ".join(METRICS))
    if find_spec("executorch") is None:
        raise MissingDependencyError(
            "inspector_comparator", "ExecuTorch is not installed", need="pip install executorch"
        )
    import torch
    from executorch.devtools.inspector.numerical_comparator import NumericalComparatorBase

    program = model if isinstance(model, Model) else load(model)
    calls, runner = delegate_calls(program), executor_named(executor)

    class DelegateComparator(NumericalComparatorBase):  # type: ignore[misc, unused-ignore]
        """Compares what delegates gave with refsim's bytes."""

        def __init__(self) -> None:
            super().__init__()
            self.gaps: list[Gap] = []
            self._by_tensor: dict[int, Gap] = {}

        def preprocessing(self, mapping: dict[Any, Any]) -> dict[Any, Any]:
            """The outputs of delegate calls; what the Inspector paired is left aside."""
            self.gaps, self._by_tensor = [], {}
            found: dict[Any, Any] = {}
            blocks = [] if self.inspector is None else self.inspector.event_blocks
            for number, block in enumerate(blocks):
                for event in block.events:
                    at = event._instruction_id
                    if event.name == _CALL and at in calls and event.debug_data:
                        found |= self._paired(event, number, at)
            return found

        def _paired(self, event: Any, run: int, at: int) -> dict[Any, Any]:
            handles = event.debug_handles
            handle = (handles,) if isinstance(handles, int) else tuple(handles or ())
            arrays = [item.numpy() if isinstance(item, torch.Tensor) else None for item in event.debug_data]
            place = f"instruction {at} of the ETDump"
            rows = gaps_of(program, calls[at].delegate_index, arrays, runner, place, run, at)
            outputs = event.debug_data[len(arrays) - len(rows) :]
            found = {}
            for (gap, right), actual in zip(rows, outputs, strict=True):
                reference = torch.from_numpy(np.array(right))
                self.gaps.append(gap)
                self._by_tensor[id(reference)] = gap
                found[handle, reference] = (handle, actual)
            return found

        def element_compare(self, a: Any, b: Any) -> float:
            value = getattr(self._by_tensor[id(a)], metric)
            return float("nan") if value is None else float(value)

    return DelegateComparator()
