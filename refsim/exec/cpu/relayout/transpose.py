"""Bytes between a layout that packs channels and one that packs columns.

Where columns are packed, a *unit* is the 16 pixels whose bytes of one channel lie side by side: four quads of a row, or
where blocks hold four rows, one quad of each. Units of a channel lie side by side, too. Where channels are packed, 16
bytes are a pixel of 16 channels (`ROWS`) or a quad of one channel word. Vectors have such a piece of 16 bytes in each
lane, are read and written where the pieces are contiguous, a line of memory if it can be, and are transposed within
and across lanes. Of bytes, two stages of `zipped` take four channels of a unit to its four quads of a channel word, and
four stages take 16 channels to 16 pixels and back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from refsim.exec.cpu.args import KERNEL_PARAMS, ArgLayout, LoadedArgs
from refsim.exec.cpu.ir import I8, I16, I32, I64, Function, Module, Value, vec
from refsim.exec.cpu.strides import BLOCKS, PLANES, ROWS
from refsim.exec.cpu.tile4x4 import join, zipped

#: `c_*` is the side that packs channels: strides of an image, of a group (a row, or four), of a quad of columns, from
#: quad to quad of a unit, of a pixel and of a word. `w_*` is the other: strides of an image, a channel and a group.
#: `row_bytes`: bytes of one of its rows that are written. `fill` is a word for padding, `fills` points at 64 bytes. A
#: task has `task_groups` groups and `task_quads` quads of each.
CROSS = ArgLayout(
    "c_side", "c_image", "c_group", "c_quad", "c_next", "c_pixel", "c_word",
    "w_side", "w_image", "w_channel", "w_group",
    "height", "width", "channels", "words", "row_bytes", "fill", "fills",
    "groups", "quads", "task_groups", "task_quads",
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
#: What a thread needs: 128 pixels of 64 channels.
SCRATCH = 8192


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

    Tasks: images x blocks of groups x blocks of quads. ``lanes`` units that lie wholly inside are done at once, up to
    ``units`` together; to `ROWS`, so many ``parts`` of 16 channels are written at once. The last tile of a row or of
    the channels may begin within the one before. What is left is done in parts of a unit by four words.
    """
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, scratch = fn.params
        a = CROSS.read(fn, block)
        rows, columns = UNIT[blocked]
        group_blocks = (a.groups + (a.task_groups - 1)) // a.task_groups
        quad_blocks = (a.quads + (a.task_quads - 1)) // a.task_quads
        unit, least, most = (n * columns // 4 for n in (1, lanes, units))  # quads
        step = {ROWS: 4 * parts, BLOCKS: lanes, PLANES: 1}[kind]
        whole_words = a.words if kind == PLANES else a.channels // 4

        def task(t: Value) -> None:
            image, at = t // (group_blocks * quad_blocks), t % (group_blocks * quad_blocks)
            group0, quad0 = at // quad_blocks * a.task_groups, at % quad_blocks * a.task_quads
            group1, quad1 = (group0 + a.task_groups).min(a.groups), (quad0 + a.task_quads).min(a.quads)
            c_side, w_side = (a.pointer(f"{s}_side") + image * getattr(a, f"{s}_image") for s in "cw")

            def line(word0: Value, group: Value) -> None:
                """A line's words of one group."""
                c_group, w_group = c_side + group * a.c_group, w_side + group * a.w_group
                tiles = _Tiles(
                    fn, a, kind, blocked, to_columns, units, lanes, parts, c_group, w_group, scratch
                )
                word1 = (word0 + LINE_WORDS).min(a.words)
                inside = (group * rows + rows <= a.height).select((a.width // 4).min(quad1), 0)
                whole_end = (inside >= quad0 + least).select(inside, quad0)
                words_end = (whole_words >= step).select(word1.min(whole_words), word0)

                def whole(units: int, quad: Value) -> None:
                    def words(word: Value) -> None:
                        tiles.whole(quad, units, word.min(whole_words - step))

                    fn.loop(words_end, words, start=word0, step=step)

                def last(quad: Value) -> None:
                    whole(lanes, quad.min(whole_end - least))

                def part(quad: Value, word: Value) -> None:
                    fn.loop(word1, lambda word: tiles.part(quad, word, group), start=word, step=4)

                wide_end = quad0
                if units > lanes:
                    wide_end = quad0 + (whole_end - quad0) // most * most
                    fn.loop(wide_end, partial(whole, units), start=quad0, step=most)
                fn.loop(whole_end, last, start=wide_end, step=least)
                rest = words_end.max(word0)
                rest_end = (rest < word1).select(whole_end, quad0)
                fn.loop(rest_end, lambda q: part(q.min(whole_end - unit), rest), start=quad0, step=unit)
                fn.loop(quad1, lambda quad: part(quad, word0), start=whole_end, step=unit)

            def lines(word0: Value) -> None:
                fn.loop(group1, partial(line, word0), start=group0)

            # all groups before the next words: the other side's rows of a channel are neighbours
            fn.loop(a.words, lines, step=LINE_WORDS)

        fn.loop(end, task, start=begin)


def _to_channels(quads: list[Value]) -> list[Value]:
    """Four quads of a channel word to its four channels of a unit."""
    turned = [16 * (k // 16) + 4 * (k % 4) + k % 16 // 4 for k in range(quads[0].type.lanes)]
    return zipped([quad.shuffle(turned) for quad in quads], 2, size=4)


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
    a: LoadedArgs
    kind: str
    blocked: bool
    to_columns: bool
    units: int
    lanes: int
    parts: int
    c_group: Value
    w_group: Value
    scratch: Value

    def whole(self, quad: Value, units: int, word: Value) -> None:
        """Copy a tile of so many units. All is inside, but for channels of the last word where pixels are `PLANES`."""
        if self.kind == ROWS and not self.to_columns:
            self._columns_to_rows(quad, units, word)
            return
        step = {
            (ROWS, True): self._rows_to_columns,
            (BLOCKS, True): self._blocks_to_columns,
            (BLOCKS, False): self._columns_to_blocks,
            (PLANES, True): self._planes_to_columns,
            (PLANES, False): self._columns_to_planes,
        }[self.kind, self.to_columns]
        if units == self.lanes:
            step(quad, word)
        else:
            each = UNIT[self.blocked][1] // 4
            self.fn.loop(quad + units * each, lambda q: step(q, word), start=quad, step=self.lanes * each)

    # --- places --------------------------------------------------------------------------------------------

    def _later(self, quad: Value, units: int | Value) -> Value:
        """The first quad of a unit so many units later."""
        return quad + (units if self.blocked else self.fn.i64(4) * units)

    def _quads(self, quad: Value, word: Value) -> list[Value]:
        """The four quads of a unit."""
        a = self.a
        at = [self.c_group + (quad * a.c_quad + word * a.c_word)]
        for _ in range(3):
            at.append(at[-1] + a.c_next)
        return at

    def _pixels(self, quad: Value, word: Value) -> list[Value]:
        return [at + self.a.c_pixel * i for at in self._quads(quad, word) for i in range(4)]

    def _channels(self, quad: Value, channel: Value, count: int) -> list[Value]:
        """A unit of so many channels."""
        at = [self.w_group + (channel * self.a.w_channel + quad * (16 if self.blocked else 4))]
        for _ in range(count - 1):
            at.append(at[-1] + self.a.w_channel)
        return at

    def _load(self, at: Value, lanes: int = 1) -> Value:
        return self.fn.load(at, vec(I8, 16 * lanes))

    def _join(self, places: Iterable[Value]) -> Value:
        """The pieces at these places, one in each lane."""
        return join([self._load(at) for at in places])

    def _load_channels(self, quad: Value, channel: Value, count: int) -> list[Value]:
        places = self._channels(quad, channel, count)
        for at in places:
            self.fn.prefetch(at + AHEAD, level=2)
        return [self._load(at, self.lanes) for at in self._or_fills(places, channel)]

    def _or_fills(self, places: list[Value], channel: Value) -> list[Value]:
        """Padding in place of channels that do not exist."""
        if self.kind != PLANES:
            return places
        fills = self.a.pointer("fills")
        return [(channel + k < self.a.channels).select(at, fills) for k, at in enumerate(places)]

    def _store_channels(self, found: list[Value], quad: Value, channel: Value) -> None:
        """Those that exist."""
        places = self._channels(quad, channel, len(found))
        for k, (vector, at) in enumerate(zip(found, places, strict=True)):
            if self.kind == PLANES:
                self.fn.when(channel + k < self.a.channels, partial(self.fn.store, vector, at))
            else:
                self.fn.store(vector, at)

    # --- tiles that are inside -----------------------------------------------------------------------------

    def _rows_to_columns(self, quad: Value, word: Value) -> None:
        # a line of a pixel is read by four tiles: each asks for a unit of the next ones
        ahead = self._later(quad, word // 4 % self.lanes + self.units)
        for at in self._pixels(ahead, word // LINE_WORDS * LINE_WORDS):
            self.fn.prefetch(at, level=1)
        units = [self._pixels(self._later(quad, k), word) for k in range(self.lanes)]
        pixels = [self._join(places) for places in zip(*units, strict=True)]
        self._store_channels(zipped(pixels, 4, size=1), quad, word * 4)

    def _columns_to_rows(self, quad: Value, units: int, word: Value) -> None:
        """By way of scratch, since 64 channels do not fit the registers: pixels of 16 channels, then whole ones."""
        fn, lanes = self.fn, self.lanes

        def load(part: Value) -> None:
            def some(u: Value) -> None:
                found = zipped(self._load_channels(self._later(quad, u), word * 4 + part * 16, 16), 4, size=1)
                for k, vector in enumerate(found):
                    fn.store(vector, self.scratch + ((part * units + u) * 256 + 16 * lanes * k))

            fn.loop(units, some, step=lanes)

        def store(u: Value) -> None:
            first = self.scratch + (u // lanes * (256 * lanes) + u % lanes * 16)
            for k, at in enumerate(self._pixels(self._later(quad, u), word)):
                pieces = (first + (256 * units * part + 16 * lanes * k) for part in range(self.parts))
                fn.store(self._join(pieces), at)

        fn.loop(self.parts, load)
        fn.loop(units, store)

    def _blocks_to_columns(self, quad: Value, word: Value) -> None:
        lanes = self.lanes
        units = [self._quads(self._later(quad, k), word) for k in range(lanes)]
        for k in range(lanes):
            for at in self._quads(self._later(quad, self.units + k), word):
                self.fn.prefetch(at, level=1)
        found = [[self._load(at, lanes) for at in places] for places in zip(*units, strict=True)]
        words = zip(*(_across(quads, STAGES[lanes]) for quads in found), strict=True)
        for w, quads in enumerate(words):
            self._store_channels(_to_channels(list(quads)), quad, (word + w) * 4)

    def _columns_to_blocks(self, quad: Value, word: Value) -> None:
        lanes = self.lanes
        words = [zipped(self._load_channels(quad, (word + w) * 4, 4), 2, size=1) for w in range(lanes)]
        units = [self._quads(self._later(quad, k), word) for k in range(lanes)]
        for quads, places in zip(zip(*words, strict=True), zip(*units, strict=True), strict=True):
            for vector, at in zip(_across(list(quads), STAGES[lanes]), places, strict=True):
                self.fn.store(vector, at)

    def _plane(self, quad: Value, word: Value) -> list[Value]:
        """Four vectors' places: four quads of the units, or the units one after the other."""
        places = self._quads(quad, word)
        return places if self.blocked else [places[0] + 16 * self.lanes * k for k in range(4)]

    def _planes_to_columns(self, quad: Value, word: Value) -> None:
        quads = [self._load(at, self.lanes) for at in self._plane(quad, word)]
        if self.lanes > 1 and not self.blocked:
            quads = _across(quads, 2)
        self._store_channels(_to_channels(quads), quad, word * 4)

    def _columns_to_planes(self, quad: Value, word: Value) -> None:
        quads = zipped(self._load_channels(quad, word * 4, 4), 2, size=1)
        if not self.blocked:
            quads = _across(quads, STAGES[self.lanes])
        for vector, at in zip(quads, self._plane(quad, word), strict=True):
            self.fn.store(vector, at)

    # --- a unit by four words, of which some may lie outside ----------------------------------------------

    def part(self, quad: Value, word: Value, group: Value) -> None:
        """Copy what there is of it, and write the padding that goes with it."""
        a, (rows, columns) = self.a, UNIT[self.blocked]
        height = (a.height - group * rows).min(rows)
        width = (a.width - quad * 4).min(columns)
        if self.to_columns:
            self._part_to_columns(quad, word, height, width)
        else:
            self._part_to_channels(quad, word, height, width)

    def _part_to_columns(self, quad: Value, word: Value, height: Value, width: Value) -> None:
        fn, a = self.fn, self.a
        columns = UNIT[self.blocked][1]
        first = self._quads(quad, word)[0]
        # what is read for pixels and words outside are other ones
        if self.kind == ROWS:
            last_row, last_column = height - 1, width - 1
            steps = [
                last_row.min(k // columns) * a.c_next + last_column.min(k % columns) * a.c_pixel
                for k in range(16)
            ]
            found = zipped([self._load(first + step) for step in steps], 4, size=1)
        else:
            last_quad, last_word = (height if self.blocked else (width + 3) // 4) - 1, a.words - 1 - word
            steps = [last_quad.min(j) * a.c_next for j in range(4)]
            words = [first + last_word.min(w) * a.c_word for w in range(4)]
            found = [c for at in words for c in _to_channels([self._load(at + step) for step in steps])]
        exists = fn.vector([k % columns for k in range(16)], I8) < width.trunc(I8).splat(16)
        exists = exists & (fn.vector([k // columns for k in range(16)], I8) < height.trunc(I8).splat(16))
        fill = a.fill.trunc(I8).splat(16)
        count = fn.i64(16) if self.blocked else (a.row_bytes - quad * 4).min(16)

        def put(vector: Value, to: Value) -> None:
            def exactly() -> None:
                fn.store(vector, self.scratch)
                for size in (I64, I32, I16, I8):  # as the bits of count say
                    at = count & -2 * size.nbytes
                    copy = partial(
                        lambda size, at: fn.store(fn.load(self.scratch + at, size), to + at), size, at
                    )
                    fn.when((count & size.nbytes) > 0, copy)

            fn.when(count.eq(16), lambda: fn.store(vector, to), exactly)

        for k, (piece, at) in enumerate(zip(found, self._channels(quad, word * 4, 16), strict=True)):
            fn.when(word * 4 + k < a.channels, partial(put, exists.select(piece, fill), at))

    def _part_to_channels(self, quad: Value, word: Value, height: Value, width: Value) -> None:
        fn, a = self.fn, self.a
        fills = a.pointer("fills")
        places = enumerate(self._channels(quad, word * 4, 16))
        pieces = [self._load((word * 4 + k < a.channels).select(at, fills)) for k, at in places]

        def put(vector: Value, at: Value, exists: Value, words: Value) -> None:
            """As many words of a piece as there are."""
            vector = vector.bits(vec(I32, 4))

            def singly() -> None:
                for k in range(4):
                    fn.when(words > k, partial(fn.store, vector.shuffle([k]), at + 4 * k))

            fn.when(exists, lambda: fn.when(words >= 4, lambda: fn.store(vector, at), singly))

        if self.kind == ROWS:
            for k, (vector, at) in enumerate(
                zip(zipped(pieces, 4, size=1), self._pixels(quad, word), strict=True)
            ):
                exists = (height > k // 4).select(width > k % 4, 0) if self.blocked else width > k
                put(vector, at, exists, a.words - word)
            return
        for w in range(4):
            quads = zip(
                zipped(pieces[4 * w : 4 * w + 4], 2, size=1), self._quads(quad, word + w), strict=True
            )
            for j, (vector, at) in enumerate(quads):
                pixels = width if self.blocked else width - 4 * j
                exists = (word + w < a.words).select(height > j if self.blocked else pixels > 0, 0)
                if self.kind == BLOCKS:  # all four pixels are written
                    keep = fn.vector(range(4), I32) < pixels.trunc(I32).splat(4)
                    vector = keep.select(vector.bits(vec(I32, 4)), a.i32("fill").splat(4))
                    pixels = fn.i64(4)
                put(vector, at, exists, pixels)
