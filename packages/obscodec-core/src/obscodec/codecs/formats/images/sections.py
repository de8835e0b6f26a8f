"""The sections of an item and of a frame."""

from typing import Final

from obscodec.codecs.formats.images.geometry import GROUP_STRIDE, Geometry, Scratch
from obscodec.codecs.formats.images.groups import decode_groups, encode_groups
from obscodec.codecs.formats.images.tiles import N_SPATIAL
from obscodec.kernels import compiled, copy, inlined, load_u8, load_u64, move, signed, store_u8, store_u16, unsigned
from obscodec.statuses import NO_SUCH_FRAME, NO_SUCH_STORAGE
from obscodec.streams import read_varint, write_varint

AS_IS: Final = 0  # the head of a plain frame, or item; others have the number of vectors and 1, or a size
PREDICTED: Final = -1  # in place of code words: residuals and modes are written as they are


@inlined
def skip_sizes(at: int, end: int, n_frames: int) -> int:
    """The address behind the bytes of each frame but the last, where the first one begins; or minus a status."""
    for _ in range(n_frames - 1):
        _, at = read_varint(at, end)
        if at < 0:
            return at
    return at


@inlined
def read_size(at: int, body: int, end: int, is_last: bool) -> tuple[int, int]:
    """The bytes of the frame at ``body``, 0 if there are not so many up to ``end``; and the address behind its size."""
    nbytes = end - body
    if not is_last:
        nbytes, at = read_varint(at, end)
    return (nbytes if nbytes <= end - body else 0), at


@inlined
def size_bound(frame_nbytes: int) -> int:
    """The bytes of the size of a frame that is as it is: ``frame_nbytes`` and its head."""
    nbytes = 1
    while 1 + frame_nbytes >> (7 * nbytes):
        nbytes += 1
    return nbytes


@inlined
def write_sizes(here: int, body: int, end: int, n_frames: int, scratch: Scratch) -> int:
    """Write the sizes of all frames but the last at ``here``, and move the frames behind them, to where these end.

    The frames are at ``body``, far enough behind ``here``, up to ``end``.
    """
    for k in range(n_frames - 1):
        here = write_varint(here, signed(load_u64(scratch.sizes + 8 * k)))
    move(here, body, end - body)
    return here + end - body


@compiled
def read_frame(
    body: int, nbytes: int, most_vectors: int, geometry: Geometry, tables: int, scratch: Scratch
) -> tuple[int, int]:
    """Read the vectors, the modes and the residuals of a frame into ``scratch``.

    The frame has ``nbytes`` bytes at ``body``, not more than its pixels have. ``tables`` is the address of those of
    books, ``u64[16, 2048]``. Returns how many vectors there are, and a status.
    """
    begin, end = scratch.bits, scratch.bits + nbytes
    copy(begin, body, nbytes)
    n_vectors = signed(load_u8(begin)) - 1
    at = begin + 1 + 2 * max(0, n_vectors - 1)
    if n_vectors < 0 or n_vectors > most_vectors:
        return 0, NO_SUCH_STORAGE
    if at > end:
        return 0, NO_SUCH_FRAME
    store_u16(scratch.vectors, unsigned(0))
    copy(scratch.vectors + 2, begin + 1, at - begin - 1)
    return n_vectors, decode_groups(at, end, geometry, tables, scratch)


@compiled
def write_frame(
    out: int, most: int, largest: int, geometry: Geometry, classes: int, codes: int, scratch: Scratch
) -> int:
    """Write a frame whose vectors, modes and residuals are in ``scratch``, unless it has more than ``most`` bytes.

    ``largest`` is its largest kind of prediction. ``classes`` and ``codes`` are addresses, see ``encode_groups``,
    or ``codes`` is :data:`PREDICTED`. Returns its bytes.
    """
    if codes == PREDICTED:
        nbytes = GROUP_STRIDE * geometry.n_groups
        copy(out, scratch.residuals, nbytes)
        copy(out + nbytes, scratch.modes, geometry.n_tiles)
        return nbytes + geometry.n_tiles
    n_vectors = (largest - N_SPATIAL >> 1) + 1 if largest >= N_SPATIAL else 0
    body = out + 1 + 2 * max(0, n_vectors - 1)
    left = out + most + 1 - body
    if left <= 1:
        return most + 1
    nbytes = encode_groups(body, left, geometry, classes, codes, scratch)
    if nbytes < left:
        store_u8(out, unsigned(n_vectors + 1))
        copy(out + 1, scratch.vectors + 2, body - out - 1)
    return body - out + nbytes
