"""What stands before the frames of an item, and before the body of a frame."""

from typing import Final

from obscodec.codecs.formats.pred.tiles import N_SPATIAL
from obscodec.kernels import copy, inlined, load_u8, load_u64, move, signed, store_u8, store_u16, unsigned
from obscodec.statuses import NO_SUCH_FRAME, NO_SUCH_STORAGE, OK
from obscodec.streams import read_varint, write_varint

AS_IS: Final = 0  # the head of a plain frame, or item; others have the number of vectors and 1, or a size
_LOW: Final = 15  # the bits of a head with that number


@inlined
def skip_sizes(at: int, end: int, n_frames: int) -> int:
    """The address behind the bytes of each frame but the last, where the first one begins; or minus a status."""
    for _ in range(n_frames - 1):
        _, at = read_varint(at, end)
        if at < 0:
            return at
    return at


@inlined
def size_bound(frame_nbytes: int) -> int:
    """The bytes of the size of a frame that is as it is: ``frame_nbytes`` and its head."""
    nbytes = 1
    while 1 + frame_nbytes >> (7 * nbytes):
        nbytes += 1
    return nbytes


@inlined
def write_sizes(here: int, body: int, end: int, n_frames: int, sizes: int) -> int:
    """Write the sizes of all frames but the last at ``here``, and move the frames behind them.

    Args:
        here: the address to write at.
        body: of the frames, far enough behind it.
        end: where the frames end.
        n_frames: how many there are.
        sizes: of ``i64[n_frames]``, the bytes of each.

    Returns:
        The address behind the frames.
    """
    for k in range(n_frames - 1):
        here = write_varint(here, signed(load_u64(sizes + 8 * k)))
    move(here, body, end - body)
    return here + end - body


@inlined
def read_head(begin: int, end: int, most_vectors: int, n_forms: int, vectors: int) -> tuple[int, int, int, int]:
    """The number of vectors, the form, the address behind the vectors, and a status.

    ``i8[MAX_VECTORS, 2]`` at ``vectors`` is filled as far as there are vectors.
    """
    head = signed(load_u8(begin))
    n_vectors, form = (head & _LOW) - 1, head >> 4
    at, status = begin + 1 + 2 * max(0, n_vectors - 1), OK
    if n_vectors < 0 or n_vectors > most_vectors or form >= n_forms:
        status = NO_SUCH_STORAGE
    elif at > end:
        status = NO_SUCH_FRAME
    else:
        store_u16(vectors, unsigned(0))
        copy(vectors + 2, begin + 1, at - begin - 1)
    return n_vectors, form, at, status


@inlined
def n_vectors_of(largest: int) -> int:
    """How many vectors a frame needs whose largest kind is ``largest``."""
    return (largest - N_SPATIAL >> 1) + 1 if largest >= N_SPATIAL else 0


@inlined
def head_nbytes(n_vectors: int) -> int:
    """The bytes of a head and its vectors."""
    return 1 + 2 * max(0, n_vectors - 1)


@inlined
def write_head(out: int, n_vectors: int, form: int, vectors: int) -> int:
    """The inverse of :func:`read_head`; returns the address behind the vectors."""
    store_u8(out, unsigned(n_vectors + 1 | form << 4))
    copy(out + 1, vectors + 2, head_nbytes(n_vectors) - 1)
    return out + head_nbytes(n_vectors)
