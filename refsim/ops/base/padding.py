"""What an operator leaves in the bytes of an int8 buffer that hold no value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OnDevice(Enum):
    """What upstream's kernel does with a kind of padding byte."""

    WRITTEN = "defined"
    UNTOUCHED = "untouched"
    UNSPECIFIED = "unspecified"


@dataclass(frozen=True)
class Pad:
    """One kind of padding: the byte that refsim's executors write there, and what upstream's kernel does."""

    value: int
    on_device: OnDevice = OnDevice.WRITTEN


@dataclass(frozen=True)
class Padding:
    """What an operator leaves in lane padding and in word padding. ``copied``: the input's bytes instead."""

    lane: Pad
    word: Pad
    copied: bool = False


def no_padding(call: object) -> Padding:
    """Of a dense buffer, or of one whose sizes fill its blocks: there is none."""
    return Padding(Pad(0), Pad(0))
