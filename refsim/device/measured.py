"""What a probe found out about a device that refsim reaches (`refsim_gpu.probe`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from refsim.core.meanings import OwnName, Vendor, VulkanVersion

if TYPE_CHECKING:
    from refsim.core.qmath import Profile

MIXED = "mixed"


@dataclass(frozen=True)
class MeasuredDevice:
    """What one device does: a word for each question, ``mixed`` where not all numbers agree."""

    device: OwnName
    vendor: Vendor
    driver: Annotated[str, "Driver and its version."]
    api_version: VulkanVersion
    round: Annotated[str, "Where round() takes halves: even, away (from zero) or up."]
    round_even: Annotated[str, "Where roundEven() takes halves."]
    fma: Annotated[str, "Whether fma() rounds once: fused or separate."]
    expression: Annotated[str, "The same of a * b + c."]
    precise: Annotated[str, "The same of a * b + c where it is marked as precise."]
    denormal_inputs: Annotated[
        Mapping[str, str], "Whether denormal inputs are kept or flushed, by operation."
    ]
    denormal_outputs: Annotated[Mapping[str, str], "Whether denormal results are, by operation."]
    convert: Annotated[str, "What float to int gives out of range: int_min or saturate."]
    converted: Annotated[Mapping[str, int], "What it gives, by float."]
    wrong_quotients: Annotated[int, "Quotients that are not IEEE's."]
    quotients: Annotated[int, "How many were tried."]
    quotient_ulps: Annotated[int, "By how many units in the last place they are off at most."]
    dot: Annotated[str, "The packed dot product: exact, wrong or absent."]
    dot_spelled_out: Annotated[str, "The same without the extension."]
    subgroup_size: Annotated[int, "Invocations of a subgroup."]

    @property
    def remarks(self) -> Annotated[list[str], "What no profile expresses."]:
        """Empty if a profile covers everything that kernels can see."""
        denormals = {*self.denormal_inputs.values(), *self.denormal_outputs.values()}
        rows = (
            (self.round not in ("even", "away"), f"round() takes halves {self.round}, not even or away"),
            (self.round_even != "even", f"roundEven() takes halves {self.round_even}, not even"),
            (self.fma == MIXED, "fma() is fused for some numbers only"),
            (self.expression != self.fma, f"fma() is {self.fma}, a*b+c {self.expression}"),
            (self.precise != "separate", f"a precise a*b+c is {self.precise}, not separate"),
            (len(denormals) > 1 or MIXED in denormals, "denormals are flushed in some places only"),
            (self.convert == MIXED, "float to int out of range neither saturates nor gives -2**31"),
            ("wrong" in (self.dot, self.dot_spelled_out), "the packed dot product is not exact"),
        )
        return [text for holds, text in rows if holds]

    def to_profile(self) -> Profile | None:
        """The known profile with these findings, else a new one named after the device; None if there are `remarks`."""
        from refsim.core.qmath import Profile, known  # a compiler comes with it

        if self.remarks:
            return None
        name, flushes = f"{self.device}, {self.driver}", "flushed" in self.denormal_inputs.values()
        return known(Profile(name, self.fma == "fused", self.round, flushes, self.convert))

    def rows(self) -> list[tuple[str, str]]:
        """(question, answer) as text."""

        def each(found: Mapping[str, str]) -> str:
            words = set(found.values())
            return words.pop() if len(words) == 1 else ", ".join(f"{k} {v}" for k, v in found.items())

        share = f"{self.wrong_quotients} of {self.quotients} quotients differ"
        ulps = f", by at most {self.quotient_ulps} ulp" if self.wrong_quotients else ""
        return [
            ("halves in round()", self.round),
            ("halves in roundEven()", self.round_even),
            ("fma(a, b, c)", self.fma),
            ("a * b + c", self.expression),
            ("precise a * b + c", self.precise),
            ("denormal inputs", each(self.denormal_inputs)),
            ("denormal results", each(self.denormal_outputs)),
            ("float to int out of range", self.convert),
            ("int(NaN)", str(self.converted["nan"])),
            ("division", share + ulps if self.wrong_quotients else "IEEE: " + share),
            ("packed dot product", self.dot),
            ("dot product spelled out", self.dot_spelled_out),
            ("subgroup size", str(self.subgroup_size)),
        ]
