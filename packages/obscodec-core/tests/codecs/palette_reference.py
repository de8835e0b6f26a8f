"""A plain decoder of ``palette``, as ``docs/formats/palette.md`` describes it: slow, and without any kernel."""

from itertools import product

import numpy as np
import numpy.typing as npt
from bits_reference import SIZES, Bits, Bytes, Reader, books, groups_of
from obscodec.codecs.formats.images.groups import books_of

Ints = npt.NDArray[np.int64]

PRED_NBYTES = 3270


class Costs:
    """Costs of places, from a dictionary or without one."""

    def __init__(self, dictionary: bytes, n_channels: int) -> None:
        self.n = 256
        distance = np.abs(np.subtract.outer(np.arange(256), np.arange(256)))
        self.alone: Ints = np.zeros(256, np.int64)
        self.tables = [64 * distance // (distance + 4)] * 3
        self.colours: list[bytes] = []
        self.books = books(books_of(b"", "").lengths)
        if dictionary:
            self._read(Reader(dictionary), n_channels)

    def _read(self, source: Reader, n_channels: int) -> None:
        assert source.take(2) == bytes([1, n_channels])
        self.n = n = source.take(1)[0] + 1
        self.colours = [source.take(n_channels) for _ in range(n)]
        self.alone[:n] = [*source.take(n)]
        self.tables = []
        for _ in range(3):
            unseen = source.take(n)
            seen = Bits(source.take((n * n + 7) // 8))
            table = np.full((n + 1, 256), 1023)
            table[n, :n], table[n, n:] = self.alone[:n], 0
            where = [(c, x) for c, x in product(range(n), repeat=2) if seen.number(1)]
            table[:n, :n] = np.add.outer([*unseen], self.alone[:n])
            for (c, x), cost in zip(where, source.take(len(where)), strict=True):
                table[c, x] = cost
            self.tables.append(table)
        nibbles = Bits(source.take(PRED_NBYTES)[1:])
        self.books = books(np.array([nibbles.number(4) for _ in range(sum(SIZES))], np.uint8))

    def order(self, kinds: tuple[int, ...], contexts: tuple[int, ...]) -> list[int]:
        """The places after one or two others; kinds are 0 for up, 1 for left, 2 for old."""
        rows = [self.tables[kind][min(context, self.n)] for kind, context in zip(kinds, contexts, strict=True)]
        after = np.argsort(rows[0], kind="stable").tolist()
        if len(rows) == 1:
            return after
        firsts = np.argsort(rows[0] + rows[1] - self.alone, kind="stable")[:16].tolist()
        order = list(firsts)
        for place in after[16:]:
            while place in firsts:
                place = after[firsts.index(place)]
            order.append(place)
        return order


def decode(stream: bytes, n_frames: int, height: int, width: int, n_channels: int, dictionary: bytes = b"") -> Bytes:
    """``u8[n_frames, height, width, n_channels]`` of an item that has a palette."""
    costs, source = Costs(dictionary, n_channels), Reader(stream)
    number = source.varint()
    assert number, "an item of pred"
    if dictionary and number == 258:
        return decode(source.rest(), n_frames, height, width, n_channels)
    colours = costs.colours + [source.take(n_channels) for _ in range(number - 1)]
    sizes = [source.varint() for _ in range(n_frames - 1)]
    frames = [*map(source.take, sizes), source.rest()]
    down, across = -(-height // 8) * 8, -(-width // 8) * 8
    old: Ints = np.zeros((down + 1, across + 1), np.int64)
    decoded = []
    for frame in frames:
        old = frame_of(Reader(frame), costs, old, width)
        places = old[1 : height + 1, 1 : width + 1]
        decoded.append(np.array([[[*colours[place]] for place in row] for row in places.tolist()], np.uint8))
    return np.stack(decoded)


def frame_of(source: Reader, costs: Costs, old: Ints, width: int) -> Ints:
    """The places of a frame of a width, behind a row and a column of zeros."""
    head = source.take(1)[0]
    n_vectors = (head & 15) - 1
    vectors = [(0, 0), *(tuple(np.frombuffer(source.take(2), np.int8).tolist()) for _ in range(n_vectors - 1))]
    plane = np.zeros_like(old)
    corners = [(y, x) for y in range(1, len(plane), 8) for x in range(1, plane.shape[1], 8)]
    modes, residuals = groups_of(source, len(corners), 2 * len(corners), costs.books)
    ranks = [[2 * r if r >= 0 else -2 * r - 1 for r in group] for group in residuals]
    for t, ((top, left), mode) in enumerate(zip(corners, modes, strict=True)):
        vector, kind = divmod(mode - 3, 2) if mode >= 3 else (0, mode)
        kinds = ((2,), (2, 0)) if mode >= 3 else ((0,), (0, 1))
        of_tile = ranks[2 * t] + ranks[2 * t + 1]
        if width - (left - 1) <= 4:  # a narrow tile
            of_tile = [of_tile[4 * y + x] if x < 4 else 0 for y, x in product(range(8), repeat=2)]
        for k, (y, x) in enumerate(product(range(top, top + 8), range(left, left + 8))):
            beside = plane[y - 1, x], plane[y, x - 1]
            if mode >= 3:
                beside = old[y + vectors[vector][0], x + vectors[vector][1]], plane[y - 1, x]
            contexts = tuple(map(int, beside))[: 1 + kind]
            plane[y, x] = costs.order(kinds[kind], contexts)[of_tile[k]]
    return plane
