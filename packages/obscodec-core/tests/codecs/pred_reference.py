"""A plain decoder of ``pred``, and a writer of frames, as ``docs/formats/pred.md`` describes them."""

from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
from bits_reference import LIMITS, N_STREAMS, OF_CODE, Book, Group, Reader, books, groups_of
from obscodec import Layout
from obscodec.codecs.formats.images.groups import books_of
from obscodec.codecs.formats.images.groups.books import built_in
from obscodec.varint import encode_varint

Ints = npt.NDArray[np.int64]

# How many quarters of green red has less, how many blue has less, and whether these are of red.
TRANSFORMS = [(0, 0, 0), (4, 2, 0), (4, 4, 0), (2, 2, 0), (4, 4, 1), (1, 0, 0), (5, 3, 0), (3, 4, 1)]


def frames_of(layout: Layout) -> tuple[int, int, int, int, bool]:
    """How many frames an item has, their height, width and planes, and whether channels are behind."""
    shape = layout.shape
    if layout.dtype == np.uint16:
        *in_front, height, width = shape[:-1] if len(shape) > 2 and shape[-1] == 1 else shape
        return prod(in_front), height, width, 2, True
    if len(shape) >= 3 and shape[-1] in (1, 3):
        return prod(shape[:-3]), shape[-3], shape[-2], shape[-1], True
    if len(shape) >= 4 and shape[-3] == 3:
        return prod(shape[:-3]), shape[-2], shape[-1], 3, False
    return prod(shape[:-2]), shape[-2], shape[-1], 1, True


def decode(stream: bytes, layout: Layout, *, dictionary: bytes = b"") -> bytes:
    """The bytes of an item."""
    n_frames, height, width, n_planes, is_behind = frames_of(layout)
    if not layout.nbytes:
        assert not stream
        return b""
    source = Reader(stream)
    if stream[0] == 0:
        assert len(stream) == 1 + layout.nbytes
        return stream[1:]
    tables = books(books_of(dictionary, "pred").lengths)
    sizes = [source.varint() for _ in range(n_frames - 1)]
    frames = [*map(source.take, sizes), source.rest()]
    planes: Ints = np.zeros((n_planes, 1 + height + -height % 8, 1 + width + -width % 8), np.int64)
    order = [1, 0, 2] if n_planes == 3 else [*range(n_planes)]  # its own inverse
    decoded = b""
    for frame in frames:
        if frame[0] == 0:
            shape = (height, width, n_planes) if is_behind else (n_planes, height, width)
            pixels = np.frombuffer(frame, np.uint8, offset=1).reshape(shape)
            planes = np.zeros_like(planes)
            planes[:, 1 : height + 1, 1 : width + 1] = (np.moveaxis(pixels, -1, 0) if is_behind else pixels)[order]
            decoded += frame[1:]
        else:
            planes = frame_of(Reader(frame), tables, planes, width)
            pixels = planes[order, 1 : height + 1, 1 : width + 1].astype(np.uint8)
            decoded += (np.moveaxis(pixels, 0, -1) if is_behind else pixels).tobytes()
    return decoded


def frame_of(source: Reader, tables: list[Book], old: Ints, width: int) -> Ints:
    """The planes of a frame of a width, each behind a row and a column of zeros."""
    n_vectors = source.take(1)[0] - 1
    vectors = [(0, 0), *(tuple(np.frombuffer(source.take(2), np.int8).tolist()) for _ in range(n_vectors - 1))]
    planes = np.zeros_like(old)
    n_planes, down, across = planes.shape
    corners = [*product(range(1, down, 8), range(1, across, 8))]
    modes, groups = groups_of(source, len(corners), 2 * n_planes * len(corners), tables)
    for t, ((top, left), mode) in enumerate(zip(corners, modes, strict=True)):
        kind, transform = divmod(mode, 8) if n_planes == 3 else (mode, 0)
        of_tile = groups[2 * n_planes * t : 2 * n_planes * (t + 1)]
        residuals = np.array(of_tile).reshape(n_planes, 8, 8).astype(np.int8)
        if width - (left - 1) <= 4:
            residuals = unfolded(residuals)
        if n_planes == 3:
            residuals = with_shares(residuals, *TRANSFORMS[transform])
        for c, y, x in product(range(n_planes), range(8), range(8)):
            planes[c, top + y, left + x] = (
                prediction(kind, planes[c], old[c], vectors, top + y, left + x) + int(residuals[c, y, x])
            ) % 256
    return planes


def prediction(kind: int, plane: Ints, old: Ints, vectors: list[tuple[int, ...]], y: int, x: int) -> int:
    """What a pixel is expected to be."""
    up, left, upleft = int(plane[y - 1, x]), int(plane[y, x - 1]), int(plane[y - 1, x - 1])
    if kind < 3:
        return (up, left, left + up - upleft)[kind]
    down, right = vectors[(kind - 3) // 2]
    before = int(old[y + down, x + right])
    return before if kind % 2 else before + up - int(old[y + down - 1, x + right])


def unfolded(groups: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """The residuals of a narrow tile: the upper group of each plane has four of each row, and the others are 0."""
    residuals = np.zeros_like(groups)
    residuals[:, :, :4] = groups[:, :4].reshape(-1, 8, 4)
    return residuals


def with_shares(stored: npt.NDArray[np.int8], red: int, blue: int, of_red: int) -> npt.NDArray[np.int8]:
    """The residuals of green, red and blue, with what was subtracted."""
    residuals = stored.copy()
    residuals[1] += share(residuals[0], red)
    residuals[2] += share(residuals[of_red], blue)
    return residuals


def share(residuals: npt.NDArray[np.int8], quarters: int) -> npt.NDArray[np.int8]:
    """So many quarters: a whole, a half and a quarter, each rounded down."""
    parts = [residuals // part for bit, part in ((4, 1), (2, 2), (1, 4)) if quarters & bit]
    return sum(parts, np.zeros_like(residuals))


def frame(modes: list[int], groups: list[Group], head: bytes = b"\1") -> bytes:
    """A frame with the built-in books, behind its head and vectors; classes are 0, 1, 8 or 15, the first that fits."""
    words = [{symbol: f"{word:0{n}b}" for (n, word), symbol in book.items()} for book in books(built_in().lengths)]
    classes = [next(k for k in (0, 1, 8, 15) if max(map(abs, group)) <= (*LIMITS, 128)[k]) for group in groups]
    pairs = zip(classes[::2], classes[1::2], strict=True)
    streams = [
        "".join([words[0][16 * x + y] for x, y in pairs] + [words[15][mode] for mode in modes]),
        *[""] * N_STREAMS,
    ]
    for k in (1, 8):
        base = 2 * LIMITS[k] + 1
        for j, g in enumerate(g for g, of in enumerate(classes) if of == k):
            codes = np.reshape(groups[g], (-1, OF_CODE[k])) + LIMITS[k]
            streams[1 + j % N_STREAMS] += "".join(words[k][s] for s in (codes @ base ** np.arange(OF_CODE[k])).tolist())
    for j, g in enumerate(g for g, of in enumerate(classes) if of == 15):
        streams[1 + j % N_STREAMS] += "".join(f"{residual & 255:08b}"[::-1] for residual in groups[g])
    parts = [np.packbits(np.array([bit == "1" for bit in bits], bool), bitorder="little").tobytes() for bits in streams]
    return head + b"".join(encode_varint(len(part)) for part in parts[:-1]) + b"".join(parts)
