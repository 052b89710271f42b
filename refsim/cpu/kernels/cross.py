"""Bytes between a layout that packs channels and one that packs columns.

Where columns are packed, a *unit* is the 16 pixels whose bytes of one channel lie side by side: four quads of a row, or
where blocks hold four rows, one quad of each. Units of a channel lie side by side, too. Where channels are packed, 16
bytes are a pixel of 16 channels (`ROWS`) or a quad of one channel word. Vectors have such a piece of 16 bytes in each
lane, are read and written where the pieces are contiguous, a line of memory if it can be, and are transposed within
and across lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from refsim.cpu.ir import I8, I32, Function, Module, Value, vec
from refsim.cpu.kernels.args import KERNEL_PARAMS, Fields, Loaded
from refsim.cpu.view import BLOCKS, PLANES, ROWS

#: `c_*` is the side that packs channels: strides of an image, of a group (a row, or four), of a unit, of a quad of a
#: unit, of a pixel and of a word. `w_*` is the other: strides of an image, a channel and a group. `row_bytes`: bytes of
#: one of its rows that are written. `fill` is a word for padding, `fills` points at 64 such bytes. A task has
#: `task_groups` groups and `task_units` units of each.
CROSS = Fields(
    "c_side", "c_image", "c_group", "c_unit", "c_quad", "c_pixel", "c_word",
    "w_side", "w_image", "w_channel", "w_group",
    "height", "width", "channels", "words", "row_bytes", "fill", "fills",
    "groups", "units", "task_groups", "task_units",
)  # fmt: skip

#: Channel words that are finished before the next ones: a line of memory of `ROWS`.
LINE_WORDS = 16
#: Rows and columns of a unit, by whether blocks hold four rows.
UNIT = {False: (1, 16), True: (4, 4)}
#: Columns are asked for so many bytes before they are read: two lines, since rows need not begin at one. They come into
#: the second cache only: channels that are a power of two apart would push each other out of the first.
AHEAD = 128
#: Stages of `_across` that transpose as many vectors as they have lanes.
STAGES = {1: 0, 2: 1, 4: 2}
#: What a thread needs: 64 pixels of 64 channels.
SCRATCH = 4096


def cross(
    module: Module,
    name: str,
    *,
    kind: str,
    to_columns: bool,
    blocked: bool,
    units: int,
    lanes: int,
    parts: int,
) -> None:
    """Write the kernel for one kind of channel-packing layout; ``blocked``: the other side is blocks of 4 rows.

    Tasks: images x blocks of groups x blocks of units. ``units`` that lie wholly inside are done together, ``lanes`` of
    them at once; the last ones of a row may begin within those before. What is left is done unit by unit. To `ROWS`,
    so many ``parts`` of 16 channels are written at once.
    """
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, scratch = fn.params
        a = CROSS.read(fn, block)
        rows, columns = UNIT[blocked]
        group_blocks = (a.groups + (a.task_groups - 1)) // a.task_groups
        unit_blocks = (a.units + (a.task_units - 1)) // a.task_units

        def task(t: Value) -> None:
            image, at = t // (group_blocks * unit_blocks), t % (group_blocks * unit_blocks)
            group0, unit0 = at // unit_blocks * a.task_groups, at % unit_blocks * a.task_units
            group1, unit1 = (group0 + a.task_groups).min(a.groups), (unit0 + a.task_units).min(a.units)
            c_side, w_side = (a.pointer(f"{s}_side") + image * getattr(a, f"{s}_image") for s in "cw")

            def line(word0: Value, group: Value) -> None:
                """A line's words of one group."""
                c_group, w_group = c_side + group * a.c_group, w_side + group * a.w_group
                tiles = _Tiles(fn, a, kind, blocked, to_columns, c_group, w_group, scratch)
                word1 = (word0 + LINE_WORDS).min(a.words)
                inside = (group * rows + rows <= a.height).select(a.width // columns, 0).min(unit1)
                wide1 = (inside >= unit0 + units).select(inside, unit0)
                step = {ROWS: 4 * parts, BLOCKS: lanes, PLANES: 1}[kind]
                whole = a.words if kind == PLANES else a.channels // 4
                whole1 = (word1.min(whole) - word0).max(0) // step * step + word0

                def narrow(unit: Value, word: Value) -> None:
                    def exactly() -> None:
                        for k in range(0, 4, 4 if kind == ROWS else 1):
                            tiles.whole(1, 1, 1, unit, word + k)

                    fits = (word * 4 + 16 <= a.channels).select(unit < inside, 0)
                    fn.when(fits, exactly, lambda: tiles.part(unit, word, group))

                def wide(unit: Value) -> None:
                    unit = unit.min(wide1 - units)

                    fn.loop(
                        whole1,
                        lambda word: tiles.whole(units, lanes, parts, unit, word),
                        start=word0,
                        step=step,
                    )
                    fn.loop(unit + units, lambda u: words(u, whole1), start=unit)

                def words(unit: Value, start: Value) -> None:
                    fn.loop(word1, lambda word: narrow(unit, word), start=start, step=4)

                fn.loop(wide1, wide, start=unit0, step=units)
                fn.loop(unit1, lambda unit: words(unit, word0), start=wide1)

            def lines(word0: Value) -> None:
                fn.loop(group1, partial(line, word0), start=group0)

            # all groups before the next words: the other side's rows of a channel are neighbours
            fn.loop(a.words, lines, step=LINE_WORDS)

        fn.loop(end, task, start=begin)


def _zip(vectors: list[Value], stages: int, size: int = 1) -> list[Value]:
    """In each stage vectors k and n/2 + k are interleaved within lanes, which gives vectors 2k and 2k + 1.

    Of bytes, two stages take four channels of a unit to its four quads of a channel word, and four stages take 16
    channels to 16 pixels and back.
    """
    n = len(vectors) // 2
    for _ in range(stages):
        pairs = zip(vectors[:n], vectors[n:], strict=True)
        vectors = [_interleaved(a, b, size, half) for a, b in pairs for half in (0, 8)]
    return vectors


def _interleaved(a: Value, b: Value, size: int, half: int) -> Value:
    starts = [lane + half + k for lane in range(0, a.type.lanes, 16) for k in range(0, 8, size)]
    return a.shuffle(
        [at + k for start in starts for at in (start, start + a.type.lanes) for k in range(size)], b
    )


def _channels(quads: list[Value]) -> list[Value]:
    """Four quads of a channel word to its four channels of a unit."""
    turned = [16 * (k // 16) + 4 * (k % 4) + k % 16 // 4 for k in range(quads[0].type.lanes)]
    return _zip([quad.shuffle(turned) for quad in quads], 2, size=4)


def _across(vectors: list[Value], stages: int) -> list[Value]:
    """In each stage even lanes of neighbouring vectors, then odd ones; log2(n) transpose n vectors of n lanes."""
    lanes = vectors[0].type.lanes // 16
    for _ in range(stages):
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        orders = [[16 * k + i for k in range(odd, 2 * lanes, 2) for i in range(16)] for odd in (0, 1)]
        vectors = [a.shuffle(order, b) for order in orders for a, b in pairs]
    return vectors


@dataclass(frozen=True)
class _Tiles:
    """Tiles of one group; its two addresses are where the group begins."""

    fn: Function
    a: Loaded
    kind: str
    blocked: bool
    to_columns: bool
    c_group: Value
    w_group: Value
    scratch: Value

    def whole(self, units: int, lanes: int, parts: int, unit: Value, word: Value) -> None:
        """Copy a tile; all of it is inside, but for channels of the last word where pixels are `PLANES`."""
        if self.kind == ROWS and not self.to_columns:
            self._columns_to_rows(units, lanes, parts, unit, word)
            return
        step = {
            (ROWS, True): self._rows_to_columns,
            (BLOCKS, True): self._blocks_to_columns,
            (BLOCKS, False): self._columns_to_blocks,
            (PLANES, True): self._planes_to_columns,
            (PLANES, False): self._columns_to_planes,
        }[self.kind, self.to_columns]
        self.fn.loop(unit + units, lambda u: step(lanes, u, word), start=unit, step=lanes)

    # --- places --------------------------------------------------------------------------------------------

    def _quad(self, unit: Value, quad: Value | int, word: Value) -> Value:
        a = self.a
        return self.c_group + (unit * a.c_unit + a.c_quad * quad + word * a.c_word)

    def _pixels(self, unit: Value, word: Value) -> list[Value]:
        return [self._quad(unit, j, word) + self.a.c_pixel * i for j in range(4) for i in range(4)]

    def _channels(self, channel: Value, unit: Value, count: int) -> list[Value]:
        at = [self.w_group + (channel * self.a.w_channel + unit * 16)]
        for _ in range(count - 1):
            at.append(at[-1] + self.a.w_channel)
        return at

    def _load(self, at: Value, lanes: int = 1) -> Value:
        return self.fn.load(at, vec(I8, 16 * lanes))

    def _join(self, places: Iterable[Value]) -> Value:
        """The pieces at these places, one in each lane."""
        parts = [self._load(at) for at in places]
        while len(parts) > 1:
            parts = [a.concat(b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def _load_channels(
        self, lanes: int, unit: Value, channel: Value, count: int, guarded: bool = False
    ) -> list[Value]:
        """Padding for channels that do not exist."""
        places = self._channels(channel, unit, count)
        if lanes > 1:
            for at in places:
                self.fn.prefetch(at + AHEAD, level=2)
        if guarded:
            fills = self.a.pointer("fills")
            places = [(channel + k < self.a.channels).select(at, fills) for k, at in enumerate(places)]
        return [self._load(at, lanes) for at in places]

    def _store_channels(self, found: list[Value], unit: Value, channel: Value) -> None:
        for vector, at in zip(found, self._channels(channel, unit, len(found)), strict=True):
            self.fn.store(vector, at)

    # --- tiles that are inside -----------------------------------------------------------------------------

    def _rows_to_columns(self, lanes: int, unit: Value, word: Value) -> None:
        if lanes > 1:  # a line of a pixel has four tiles: each asks for one of the next units
            ahead = unit + lanes + word // 4 % lanes
            for at in self._pixels(ahead, word // LINE_WORDS * LINE_WORDS):
                self.fn.prefetch(at, level=1)
        units = [self._pixels(unit + k, word) for k in range(lanes)]
        self._store_channels(
            _zip([self._join(places) for places in zip(*units, strict=True)], 4), unit, word * 4
        )

    def _columns_to_rows(self, units: int, lanes: int, parts: int, unit: Value, word: Value) -> None:
        """By way of scratch, since 64 channels do not fit the registers: pixels of 16 channels, then whole ones."""
        fn = self.fn

        def load(part: Value) -> None:
            def some(u: Value) -> None:
                place = self.scratch + (part * units + u) * 256
                found = self._load_channels(lanes, unit + u, word * 4 + part * 16, 16)
                for k, vector in enumerate(_zip(found, 4)):
                    fn.store(vector, place + 16 * lanes * k)

            fn.loop(units, some, step=lanes)

        def store(u: Value) -> None:
            place = self.scratch + (u // lanes * (256 * lanes) + u % lanes * 16)
            for k, at in enumerate(self._pixels(unit + u, word)):
                pieces = (place + (256 * units * part + 16 * lanes * k) for part in range(parts))
                fn.store(self._join(pieces), at)

        fn.loop(parts, load)
        fn.loop(units, store)

    def _blocks_to_columns(self, lanes: int, unit: Value, word: Value) -> None:
        quads = []
        for j in range(4):
            if lanes > 1:
                for k in range(lanes):
                    self.fn.prefetch(self._quad(unit + (lanes + k), j, word), level=1)
            found = [self._load(self._quad(unit + k, j, word), lanes) for k in range(lanes)]
            quads.append(_across(found, STAGES[lanes]))
        for w, of_word in enumerate(zip(*quads, strict=True)):
            self._store_channels(_channels(list(of_word)), unit, (word + w) * 4)

    def _columns_to_blocks(self, lanes: int, unit: Value, word: Value) -> None:
        words = [_zip(self._load_channels(lanes, unit, (word + w) * 4, 4), 2) for w in range(lanes)]
        for j, quads in enumerate(zip(*words, strict=True)):
            for k, vector in enumerate(_across(list(quads), STAGES[lanes])):
                self.fn.store(vector, self._quad(unit + k, j, word))

    def _plane(self, lanes: int, unit: Value, word: Value) -> list[Value]:
        """Four vectors' places: four quads of the units, or the units one after the other."""
        if self.blocked:
            return [self._quad(unit, j, word) for j in range(4)]
        return [self._quad(unit, 0, word) + 16 * lanes * k for k in range(4)]

    def _planes_to_columns(self, lanes: int, unit: Value, word: Value) -> None:
        quads = [self._load(at, lanes) for at in self._plane(lanes, unit, word)]
        if lanes > 1 and not self.blocked:
            quads = _across(quads, 2)
        for k, (vector, at) in enumerate(
            zip(_channels(quads), self._channels(word * 4, unit, 4), strict=True)
        ):
            self.fn.when(word * 4 + k < self.a.channels, partial(self.fn.store, vector, at))

    def _columns_to_planes(self, lanes: int, unit: Value, word: Value) -> None:
        quads = _zip(self._load_channels(lanes, unit, word * 4, 4, guarded=True), 2)
        if not self.blocked:
            quads = _across(quads, STAGES[lanes])
        for vector, at in zip(quads, self._plane(lanes, unit, word), strict=True):
            self.fn.store(vector, at)

    # --- a unit by four words, of which some may lie outside ----------------------------------------------

    def part(self, unit: Value, word: Value, group: Value) -> None:
        """Copy what there is of it, and write the padding that goes with it."""
        a, (rows, columns) = self.a, UNIT[self.blocked]
        height = (a.height - group * rows).min(rows)
        width = (a.width - unit * columns).min(columns)
        if self.to_columns:
            self._part_to_columns(unit, word, height, width)
        else:
            self._part_to_channels(unit, word, height, width)

    def _part_to_columns(self, unit: Value, word: Value, height: Value, width: Value) -> None:
        fn, a = self.fn, self.a
        place = self._quad(unit, 0, word)
        if self.kind == ROWS:
            # what is read for a pixel outside is another one
            steps = [
                (height - 1).min(k // 4) * a.c_quad + (width - 1).min(k % 4) * a.c_pixel
                if self.blocked
                else (width - 1).min(k) * a.c_pixel
                for k in range(16)
            ]
            found = _zip([self._load(place + step) for step in steps], 4)
        else:
            found = []
            quads = [((height if self.blocked else (width + 3) // 4) - 1).min(j) * a.c_quad for j in range(4)]
            for w in range(4):
                at = place + (a.words - 1 - word).min(w) * a.c_word
                found += _channels([self._load(at + quad) for quad in quads])
        columns = UNIT[self.blocked][1]
        inside = fn.vector([k % columns for k in range(16)], I8) < width.trunc(I8).splat(16)
        inside = inside & (fn.vector([k // columns for k in range(16)], I8) < height.trunc(I8).splat(16))
        count = fn.i64(16) if self.blocked else (a.row_bytes - unit * 16).min(16)
        fill = a.fill.trunc(I8).splat(16)

        def put(vector: Value, at: Value) -> None:
            def exactly() -> None:
                fn.store(vector, self.scratch)
                fn.loop(count, lambda i: fn.store(fn.load(self.scratch + i, I8), at + i))

            fn.when(count.eq(16), lambda: fn.store(vector, at), exactly)

        for k, (piece, at) in enumerate(zip(found, self._channels(word * 4, unit, 16), strict=True)):
            fn.when(word * 4 + k < a.channels, partial(put, inside.select(piece, fill), at))

    def _part_to_channels(self, unit: Value, word: Value, height: Value, width: Value) -> None:
        fn, a = self.fn, self.a
        pieces = self._load_channels(1, unit, word * 4, 16, guarded=True)

        def put(vector: Value, at: Value, inside: Value, words: Value) -> None:
            """As many words of a piece as there are."""
            vector = vector.bits(vec(I32, 4))

            def singly() -> None:
                for k in range(4):
                    fn.when(words > k, partial(fn.store, vector.shuffle([k]), at + 4 * k))

            fn.when(inside, lambda: fn.when(words >= 4, lambda: fn.store(vector, at), singly))

        if self.kind == ROWS:
            for k, (vector, at) in enumerate(zip(_zip(pieces, 4), self._pixels(unit, word), strict=True)):
                inside = (height > k // 4).select(width > k % 4, 0) if self.blocked else width > k
                put(vector, at, inside, a.words - word)
            return
        for w in range(4):
            for j, vector in enumerate(_zip(pieces[4 * w : 4 * w + 4], 2)):
                pixels = width if self.blocked else width - 4 * j
                inside = (word + w < a.words).select(height > j if self.blocked else pixels > 0, 0)
                if self.kind == BLOCKS:  # all four pixels are written
                    exists = fn.vector(range(4), I32) < pixels.trunc(I32).splat(4)
                    vector = exists.select(vector.bits(vec(I32, 4)), a.i32("fill").splat(4))
                    pixels = fn.i64(4)
                put(vector, self._quad(unit, j, word + w), inside, pixels)
