"""Bytes between a layout that packs channels and one that packs columns.

Everything moves in pieces of 16 bytes. On the side that packs columns, a piece is a *pixel16* of one channel: 16
pixels of a row or, where blocks hold four rows, four pixels of each. On the side that packs channels, it is one pixel
of 16 channels (`NHWC`) or four pixels of one channel word. A vector holds such a piece in each of its 128-bit lanes.
It is read and written where pieces are neighbours in memory, a whole line if possible, and transposed within and
across lanes. Of bytes, two stages of `zipped` take four channels of a pixel16 to its four pixel4s of a channel word;
four stages take 16 channels to 16 pixels and back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.ir import I8, I16, I32, I64, Function, ModuleText, Value, vec
from refsim.exec.cpu.strides import NHWC, PLANAR, TILED
from refsim.exec.cpu.tile4x4 import concat, zipped

#: `c_*` is the side that packs channels: strides of an image, of a group (a row, or four), of a pixel4 of columns, from
#: pixel4 to pixel4 of a pixel16, of a pixel and of a word. `w_*` is the other side: strides of an image, a channel and
#: a group. `row_bytes`: bytes of one of its rows that are written. `fill` is a word for padding, `fills` points at 64
#: bytes. A task has `task_groups` groups and `task_pixel4s` pixel4s of each.
TRANSPOSE = ArgLayout(
    "c_side", "c_image", "c_group", "c_pixel4", "c_next", "c_pixel", "c_word",
    "w_side", "w_image", "w_channel", "w_group",
    "height", "width", "channels", "words", "row_bytes", "fill", "fills",
    "groups", "pixel4s", "task_groups", "task_pixel4s",
)  # fmt: skip

#: Channel words that are finished before the next ones: a line of memory of `NHWC`.
LINE_WORDS = 16
#: Rows and columns of a pixel16, by whether blocks hold four rows.
PIXEL16 = {False: (1, 16), True: (4, 4)}
#: Columns are asked for so many bytes before they are read: two lines, since rows need not begin at one. They come into
#: the second cache only: channels that are a power of two apart would push each other out of the first.
AHEAD = 128
#: Stages of `_across` that transpose as many vectors as they have lanes.
STAGES = {1: 0, 2: 1, 4: 2}
#: What a thread needs: 128 pixels of 64 channels.
SCRATCH = 8192


def transpose(
    module: ModuleText,
    name: str,
    *,
    kind: str,
    to_columns: bool,
    blocked: bool,
    pixel16s: int,
    lanes: int,
    parts: int,
) -> None:
    """Write the kernel for one kind of channel-packing layout; ``blocked``: the other side is blocks of 4 rows.

    Tasks: images x blocks of groups x blocks of pixel4s. ``lanes`` pixel16s that lie wholly inside are done at once, up
    to ``pixel16s`` together; to `NHWC`, so many ``parts`` of 16 channels are written at once. The last tile of a row or
    of the channels may begin within the one before. What is left is done in parts of a pixel16 by four words.
    """
    with TRANSPOSE.kernel(module, name) as (fn, a, scratch, tasks):
        rows, columns = PIXEL16[blocked]
        group_blocks = (a.groups + (a.task_groups - 1)) // a.task_groups
        pixel4_blocks = (a.pixel4s + (a.task_pixel4s - 1)) // a.task_pixel4s
        pixel16, least, most = (n * columns // 4 for n in (1, lanes, pixel16s))  # pixel4s
        step = {NHWC: 4 * parts, TILED: lanes, PLANAR: 1}[kind]
        whole_words = a.words if kind == PLANAR else a.channels // 4

        def task(t: Value) -> None:
            image, at = t // (group_blocks * pixel4_blocks), t % (group_blocks * pixel4_blocks)
            group0, pixel4_begin = at // pixel4_blocks * a.task_groups, at % pixel4_blocks * a.task_pixel4s
            group1, pixel4_end = (
                (group0 + a.task_groups).min(a.groups),
                (pixel4_begin + a.task_pixel4s).min(a.pixel4s),
            )
            c_side, w_side = (a.pointer(f"{s}_side") + image * getattr(a, f"{s}_image") for s in "cw")

            def line(word0: Value, group: Value) -> None:
                """A line's words of one group."""
                c_group, w_group = c_side + group * a.c_group, w_side + group * a.w_group
                tiles = _Tiles(
                    fn, a, kind, blocked, to_columns, pixel16s, lanes, parts, c_group, w_group, scratch
                )
                word1 = (word0 + LINE_WORDS).min(a.words)
                inside = (group * rows + rows <= a.height).select((a.width // 4).min(pixel4_end), 0)
                whole_end = (inside >= pixel4_begin + least).select(inside, pixel4_begin)
                words_end = (whole_words >= step).select(word1.min(whole_words), word0)

                def whole(pixel16s: int, pixel4: Value) -> None:
                    def words(word: Value) -> None:
                        tiles.whole(pixel4, pixel16s, word.min(whole_words - step))

                    fn.loop(words_end, words, start=word0, step=step)

                def last(pixel4: Value) -> None:
                    whole(lanes, pixel4.min(whole_end - least))

                def part(pixel4: Value, word: Value) -> None:
                    fn.loop(word1, lambda word: tiles.part(pixel4, word, group), start=word, step=4)

                wide_end = pixel4_begin
                if pixel16s > lanes:
                    wide_end = pixel4_begin + (whole_end - pixel4_begin) // most * most
                    fn.loop(wide_end, partial(whole, pixel16s), start=pixel4_begin, step=most)
                fn.loop(whole_end, last, start=wide_end, step=least)
                rest = words_end.max(word0)
                rest_end = (rest < word1).select(whole_end, pixel4_begin)
                fn.loop(
                    rest_end,
                    lambda q: part(q.min(whole_end - pixel16), rest),
                    start=pixel4_begin,
                    step=pixel16,
                )
                fn.loop(pixel4_end, lambda pixel4: part(pixel4, word0), start=whole_end, step=pixel16)

            def lines(word0: Value) -> None:
                fn.loop(group1, partial(line, word0), start=group0)

            # all groups before the next words: the other side's rows of a channel are neighbours
            fn.loop(a.words, lines, step=LINE_WORDS)

        tasks.each(task)


def _to_channels(pixel4s: list[Value]) -> list[Value]:
    """Four pixel4s of a channel word to its four channels of a pixel16."""
    turned = [16 * (k // 16) + 4 * (k % 4) + k % 16 // 4 for k in range(pixel4s[0].type.lanes)]
    return zipped([pixel4.shuffle(turned) for pixel4 in pixel4s], 2, size=4)


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
    pixel16s: int
    lanes: int
    parts: int
    c_group: Value
    w_group: Value
    scratch: Value

    def whole(self, pixel4: Value, pixel16s: int, word: Value) -> None:
        """Copy a tile of so many pixel16s. Only channels of the last word of `PLANAR` may lie outside."""
        if self.kind == NHWC and not self.to_columns:
            self._columns_to_nhwc(pixel4, pixel16s, word)
            return
        step = {
            (NHWC, True): self._nhwc_to_columns,
            (TILED, True): self._tiled_to_columns,
            (TILED, False): self._columns_to_tiled,
            (PLANAR, True): self._planar_to_columns,
            (PLANAR, False): self._columns_to_planar,
        }[self.kind, self.to_columns]
        if pixel16s == self.lanes:
            step(pixel4, word)
        else:
            each = PIXEL16[self.blocked][1] // 4
            self.fn.loop(
                pixel4 + pixel16s * each, lambda q: step(q, word), start=pixel4, step=self.lanes * each
            )

    # --- places --------------------------------------------------------------------------------------------

    def _later(self, pixel4: Value, pixel16s: int | Value) -> Value:
        """The first pixel4 of a pixel16 so many pixel16s later."""
        return pixel4 + (pixel16s if self.blocked else self.fn.i64(4) * pixel16s)

    def _pixel4s(self, pixel4: Value, word: Value) -> list[Value]:
        """The four pixel4s of a pixel16."""
        a = self.a
        at = [self.c_group + (pixel4 * a.c_pixel4 + word * a.c_word)]
        for _ in range(3):
            at.append(at[-1] + a.c_next)
        return at

    def _pixels(self, pixel4: Value, word: Value) -> list[Value]:
        return [at + self.a.c_pixel * i for at in self._pixel4s(pixel4, word) for i in range(4)]

    def _channels(self, pixel4: Value, channel: Value, count: int) -> list[Value]:
        """A pixel16 of so many channels."""
        at = [self.w_group + (channel * self.a.w_channel + pixel4 * (16 if self.blocked else 4))]
        for _ in range(count - 1):
            at.append(at[-1] + self.a.w_channel)
        return at

    def _load(self, at: Value, lanes: int = 1) -> Value:
        return self.fn.load(at, vec(I8, 16 * lanes))

    def _join(self, places: Iterable[Value]) -> Value:
        """The pieces at these places, one in each lane."""
        return concat([self._load(at) for at in places])

    def _load_channels(self, pixel4: Value, channel: Value, count: int) -> list[Value]:
        places = self._channels(pixel4, channel, count)
        for at in places:
            self.fn.prefetch(at + AHEAD, level=2)
        return [self._load(at, self.lanes) for at in self._or_fills(places, channel)]

    def _or_fills(self, places: list[Value], channel: Value) -> list[Value]:
        """Padding in place of channels that do not exist."""
        if self.kind != PLANAR:
            return places
        fills = self.a.pointer("fills")
        return [(channel + k < self.a.channels).select(at, fills) for k, at in enumerate(places)]

    def _store_channels(self, found: list[Value], pixel4: Value, channel: Value) -> None:
        """Those that exist."""
        places = self._channels(pixel4, channel, len(found))
        for k, (vector, at) in enumerate(zip(found, places, strict=True)):
            if self.kind == PLANAR:
                self.fn.when(channel + k < self.a.channels, partial(self.fn.store, vector, at))
            else:
                self.fn.store(vector, at)

    # --- tiles that are inside -----------------------------------------------------------------------------

    def _nhwc_to_columns(self, pixel4: Value, word: Value) -> None:
        # a line of a pixel is read by four tiles: each asks for a pixel16 of the next ones
        ahead = self._later(pixel4, word // 4 % self.lanes + self.pixel16s)
        for at in self._pixels(ahead, word // LINE_WORDS * LINE_WORDS):
            self.fn.prefetch(at, level=1)
        pixel16s = [self._pixels(self._later(pixel4, k), word) for k in range(self.lanes)]
        pixels = [self._join(places) for places in zip(*pixel16s, strict=True)]
        self._store_channels(zipped(pixels, 4, size=1), pixel4, word * 4)

    def _columns_to_nhwc(self, pixel4: Value, pixel16s: int, word: Value) -> None:
        """By way of scratch, since 64 channels do not fit the registers: pixels of 16 channels, then whole ones."""
        fn, lanes = self.fn, self.lanes

        def load(part: Value) -> None:
            def some(u: Value) -> None:
                found = zipped(
                    self._load_channels(self._later(pixel4, u), word * 4 + part * 16, 16), 4, size=1
                )
                for k, vector in enumerate(found):
                    fn.store(vector, self.scratch + ((part * pixel16s + u) * 256 + 16 * lanes * k))

            fn.loop(pixel16s, some, step=lanes)

        def store(u: Value) -> None:
            first = self.scratch + (u // lanes * (256 * lanes) + u % lanes * 16)
            for k, at in enumerate(self._pixels(self._later(pixel4, u), word)):
                pieces = (first + (256 * pixel16s * part + 16 * lanes * k) for part in range(self.parts))
                fn.store(self._join(pieces), at)

        fn.loop(self.parts, load)
        fn.loop(pixel16s, store)

    def _tiled_to_columns(self, pixel4: Value, word: Value) -> None:
        lanes = self.lanes
        pixel16s = [self._pixel4s(self._later(pixel4, k), word) for k in range(lanes)]
        for k in range(lanes):
            for at in self._pixel4s(self._later(pixel4, self.pixel16s + k), word):
                self.fn.prefetch(at, level=1)
        found = [[self._load(at, lanes) for at in places] for places in zip(*pixel16s, strict=True)]
        words = zip(*(_across(pixel4s, STAGES[lanes]) for pixel4s in found), strict=True)
        for w, pixel4s in enumerate(words):
            self._store_channels(_to_channels(list(pixel4s)), pixel4, (word + w) * 4)

    def _columns_to_tiled(self, pixel4: Value, word: Value) -> None:
        lanes = self.lanes
        words = [zipped(self._load_channels(pixel4, (word + w) * 4, 4), 2, size=1) for w in range(lanes)]
        pixel16s = [self._pixel4s(self._later(pixel4, k), word) for k in range(lanes)]
        for pixel4s, places in zip(zip(*words, strict=True), zip(*pixel16s, strict=True), strict=True):
            for vector, at in zip(_across(list(pixel4s), STAGES[lanes]), places, strict=True):
                self.fn.store(vector, at)

    def _plane(self, pixel4: Value, word: Value) -> list[Value]:
        """Four vectors' places: four pixel4s of the pixel16s, or the pixel16s one after the other."""
        places = self._pixel4s(pixel4, word)
        return places if self.blocked else [places[0] + 16 * self.lanes * k for k in range(4)]

    def _planar_to_columns(self, pixel4: Value, word: Value) -> None:
        pixel4s = [self._load(at, self.lanes) for at in self._plane(pixel4, word)]
        if self.lanes > 1 and not self.blocked:
            pixel4s = _across(pixel4s, 2)
        self._store_channels(_to_channels(pixel4s), pixel4, word * 4)

    def _columns_to_planar(self, pixel4: Value, word: Value) -> None:
        pixel4s = zipped(self._load_channels(pixel4, word * 4, 4), 2, size=1)
        if not self.blocked:
            pixel4s = _across(pixel4s, STAGES[self.lanes])
        for vector, at in zip(pixel4s, self._plane(pixel4, word), strict=True):
            self.fn.store(vector, at)

    # --- a pixel16 by four words, of which some may lie outside ----------------------------------------------

    def part(self, pixel4: Value, word: Value, group: Value) -> None:
        """Copy what there is of it, and write the padding that goes with it."""
        a, (rows, columns) = self.a, PIXEL16[self.blocked]
        height = (a.height - group * rows).min(rows)
        width = (a.width - pixel4 * 4).min(columns)
        if self.to_columns:
            self._part_to_columns(pixel4, word, height, width)
        else:
            self._part_to_channels(pixel4, word, height, width)

    def _part_to_columns(self, pixel4: Value, word: Value, height: Value, width: Value) -> None:
        fn, a = self.fn, self.a
        columns = PIXEL16[self.blocked][1]
        first = self._pixel4s(pixel4, word)[0]
        # what is read for pixels and words outside are other ones
        if self.kind == NHWC:
            last_row, last_column = height - 1, width - 1
            steps = [
                last_row.min(k // columns) * a.c_next + last_column.min(k % columns) * a.c_pixel
                for k in range(16)
            ]
            found = zipped([self._load(first + step) for step in steps], 4, size=1)
        else:
            last_pixel4, last_word = (height if self.blocked else (width + 3) // 4) - 1, a.words - 1 - word
            steps = [last_pixel4.min(j) * a.c_next for j in range(4)]
            words = [first + last_word.min(w) * a.c_word for w in range(4)]
            found = [c for at in words for c in _to_channels([self._load(at + step) for step in steps])]
        exists = fn.vector([k % columns for k in range(16)], I8) < width.trunc(I8).splat(16)
        exists = exists & (fn.vector([k // columns for k in range(16)], I8) < height.trunc(I8).splat(16))
        fill = a.fill.trunc(I8).splat(16)
        count = fn.i64(16) if self.blocked else (a.row_bytes - pixel4 * 4).min(16)

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

        for k, (piece, at) in enumerate(zip(found, self._channels(pixel4, word * 4, 16), strict=True)):
            fn.when(word * 4 + k < a.channels, partial(put, exists.select(piece, fill), at))

    def _part_to_channels(self, pixel4: Value, word: Value, height: Value, width: Value) -> None:
        fn, a = self.fn, self.a
        fills = a.pointer("fills")
        places = enumerate(self._channels(pixel4, word * 4, 16))
        pieces = [self._load((word * 4 + k < a.channels).select(at, fills)) for k, at in places]

        def put(vector: Value, at: Value, exists: Value, words: Value) -> None:
            """As many words of a piece as there are."""
            vector = vector.bits(vec(I32, 4))

            def singly() -> None:
                for k in range(4):
                    fn.when(words > k, partial(fn.store, vector.shuffle([k]), at + 4 * k))

            fn.when(exists, lambda: fn.when(words >= 4, lambda: fn.store(vector, at), singly))

        if self.kind == NHWC:
            for k, (vector, at) in enumerate(
                zip(zipped(pieces, 4, size=1), self._pixels(pixel4, word), strict=True)
            ):
                exists = (height > k // 4).select(width > k % 4, 0) if self.blocked else width > k
                put(vector, at, exists, a.words - word)
            return
        for w in range(4):
            pixel4s = zip(
                zipped(pieces[4 * w : 4 * w + 4], 2, size=1), self._pixel4s(pixel4, word + w), strict=True
            )
            for j, (vector, at) in enumerate(pixel4s):
                pixels = width if self.blocked else width - 4 * j
                exists = (word + w < a.words).select(height > j if self.blocked else pixels > 0, 0)
                if self.kind == TILED:  # all four pixels are written
                    keep = fn.vector(range(4), I32) < pixels.trunc(I32).splat(4)
                    vector = keep.select(vector.bits(vec(I32, 4)), a.i32("fill").splat(4))
                    pixels = fn.i64(4)
                put(vector, at, exists, pixels)
