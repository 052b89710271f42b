"""Why models fall short, as data: one row for each cause, with the models and the aspect that it explains.

A row whose model no longer falls short is reported by ``python -m bench.zoo --check``, and so is a model that falls
short of something without a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.zoo.results import Row, wrong


@dataclass(frozen=True)
class Reason:
    """``aspect`` is one of `results.ASPECTS`; ``models`` are names, with blanks between them."""

    aspect: str
    text: str
    models: str

    def names(self) -> list[str]:
        return self.models.split()


_ROUNDINGS = (
    "lowering leaves out roundings between float operators, as ExecuTorch's does; torch without them is within one "
    "step (column `alike`)"
)
_TIES = (
    "a value next to a tie is rounded otherwise than in torch, which sums in float, and the layers behind it make more "
    "of it; every fused operator alone is within one step of torch on the same bytes"
)
_CONV1D = (
    "ExecuTorch stops at a static int8 convolution of one dim: its pattern takes weights of four dims only"
)
_DATA = "ExecuTorch stops: its trace of the program meets a guard on data (GuardOnDataDependentSymNode)"
_SLICES = (
    "ExecuTorch computes a slice of MultiheadAttention's weight on the device; refsim does it beforehand"
)

REASONS: tuple[Reason, ...] = (
    Reason("executorch", _CONV1D, "matchboxnet m5 convtasnet conformer tcn"),
    Reason("executorch", _DATA, "llama_8w"),
    Reason("steps", _ROUNDINGS, "imdn m5 convtasnet conformer bisenet enet lcnet_050 tcn gatedcnn detr"),
    Reason("steps", _TIES, "yolov5 resnet10t resnet18 gpt_int8"),
    Reason("graph", _SLICES, "detr"),
)


def explained(reasons: tuple[Reason, ...] = REASONS) -> dict[tuple[str, str], str]:
    """(model, aspect) -> the reason."""
    return {(name, reason.aspect): reason.text for reason in reasons for name in reason.names()}


def stale(rows: Mapping[str, Row], reasons: tuple[Reason, ...] = REASONS) -> Iterator[str]:
    """A sentence on each reason that no longer applies."""
    for name, aspect in explained(reasons):
        if name in rows and aspect not in wrong(rows[name]):
            yield f"{name}: the reason for {aspect!r} no longer applies"


def unexplained(rows: Mapping[str, Row], reasons: tuple[Reason, ...] = REASONS) -> Iterator[str]:
    """A sentence on each shortfall that has no reason."""
    known = explained(reasons)
    for name, row in rows.items():
        for aspect, what in wrong(row).items():
            if (name, aspect) not in known:
                yield f"{name}: {aspect}: {what}"
