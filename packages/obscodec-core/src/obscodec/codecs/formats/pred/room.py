"""Memory that kernels work in."""

from typing import Final, NamedTuple

import numpy as np

from obscodec.codecs.formats.pred.geometry import (
    GROUP_NBYTES,
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    Geometry,
)
from obscodec.codecs.formats.pred.groups import N_MARKS, SLACK, bits_nbytes
from obscodec.codecs.formats.pred.tiles import MAX_VECTORS, N_TRIED
from obscodec.kernels import LINE_NBYTES
from obscodec.segments import Bytes

_MOST_OF_TILE: Final = 3 * GROUPS_OF_TILE * GROUP_NBYTES


class Room(NamedTuple):
    """Where a call of a kernel works: addresses in memory that its caller owns.

    Kernels take addresses, since an array is seven arguments, each of which numba looks at for each kernel anew. Those
    that Python calls take a plain tuple of them: numba asks for memory to tell the type of a named one, and crashes if
    there is none.

    Attributes:
        work: two frames in planes.
        residuals: of a frame.
        labels: ``u8[n_groups]``, the class or the width of each group.
        order: ``u32[n_groups]``.
        modes: ``u8[n_tiles]``.
        vectors: ``i8[MAX_VECTORS, 2]``.
        bits: a frame as it is stored.
        marks: ``i64[N_MARKS]``.
        saved: ``i64[N_TRIED]``.
        sizes: ``i64[n_frames]``, the bytes of each frame.
    """

    work: int
    residuals: int
    labels: int
    order: int
    modes: int
    vectors: int
    bits: int
    marks: int
    saved: int
    sizes: int


def new_room(geometry: Geometry, n_frames: int) -> tuple[Bytes, tuple[int, ...]]:
    """Memory for items of ``n_frames`` frames, and the addresses of a :class:`Room` in it."""
    n_groups, n_tiles = geometry.n_groups, geometry.n_tiles
    bits = max(geometry.frame_nbytes, bits_nbytes(n_groups, n_tiles)) + _MOST_OF_TILE + SLACK
    sizes = 2 * geometry.work_nbytes, GROUP_STRIDE * (n_groups + 1), n_groups, 4 * n_groups, n_tiles, 2 * MAX_VECTORS
    memory, addresses = divided(*sizes, bits, 8 * N_MARKS, 8 * N_TRIED, 8 * n_frames)
    return memory, tuple(addresses)


def divided(*sizes: int) -> tuple[Bytes, list[int]]:
    """Memory, and the addresses of parts of so many bytes in it, each at the begin of a line of the cache."""
    ends = np.cumsum([-(-nbytes // LINE_NBYTES) * LINE_NBYTES for nbytes in (LINE_NBYTES, *sizes)])
    memory = np.empty(ends[-1], np.uint8)
    first = memory.ctypes.data - memory.ctypes.data % LINE_NBYTES
    return memory, (first + ends[:-1]).tolist()
