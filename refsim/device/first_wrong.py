"""What a dump says of a run as a whole: the first operator that goes wrong, and what people should know beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from refsim.bytediff import Report
from refsim.core import choices
from refsim.core.qmath import Profile
from refsim.device.bisect import allowed
from refsim.device.row import Row
from refsim.exec.model import Model
from refsim.formats.dumps import value_name


@dataclass(frozen=True)
class Bisected:
    """All operators of a run. ``asked``: (delegate, node) of the one to explain, if not the first that is wrong."""

    rows: Sequence[Row]
    profile: Profile | None
    asked: tuple[int, int] | None = None

    @property
    def compared(self) -> list[Row]:
        """Those whose buffer was there to be compared."""
        return [row for row in self.rows if row.run is not None]

    @property
    def wrong(self) -> list[Row]:
        """Those that are wrong themselves."""
        return [row for row in self.rows if row.wrong]

    @property
    def first(self) -> Row | None:
        """The first whose buffer is not the right run's."""
        return next((row for row in self.rows if row.run is not None and not row.run.same), None)

    @property
    def doubted(self) -> Row | None:
        """The first that is right for other inputs than were given."""
        return next((row for row in self.rows if row.excused), None)

    @cached_property
    def legal(self) -> list[Row]:
        """What differs, if the profile allows each of these for the inputs of its operator."""
        return (allowed(self.rows) or []) if self.profile is not None else []

    @property
    def same(self) -> bool:
        return (self.first is None or bool(self.legal)) and not self.wrong

    @property
    def chosen(self) -> Row | None:
        """The one that is explained."""
        asked = next((row for row in self.rows if row.at == self.asked), None)
        return asked or (None if self.legal else next(iter(self.wrong), self.first))

    @property
    def report(self) -> Report | None:
        """What it gave, against what it should have; on its own inputs where it is wrong."""
        row = self.chosen
        if row is None:
            return None
        return row.alone if row.wrong and row.alone is not None else row.run

    def allowed_before(self, first: Row) -> list[Row]:
        """Those before the first that diverges whose bytes differ, but only as the profile allows."""
        before = self.rows[: next(number for number, row in enumerate(self.rows) if row is first)]
        return [row for row in before if row.run is not None and row.run.differing]

    def changed(self, model: Model) -> list[str]:
        """Of each operator that is right in the run, but not for its dumped inputs: that it had read others."""
        differ = {row.value for row in self.rows if row.run is not None and not row.run.same}
        notes = []
        for row in self.rows:
            if row.run is not None and row.run.same and row.alone is not None and not row.alone.same:
                node = model.graphs[row.delegate].writer(row.node)
                read = dict.fromkeys(value_name(row.delegate, value) for value in node.inputs.values())
                others = choices.listed([name for name in read if name in differ] or ["input"])
                notes.append(
                    f"node {row.node} {row.operator} is right, since it gave what the right run gives: it read another "
                    f"{others} than was dumped, which was changed later, or on the way to the file"
                )
        return notes
