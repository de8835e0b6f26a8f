"""Memory that kernels work in."""

from typing import Final

import numpy as np

from obscodec.codecs.formats.images.geometry import GROUP_NBYTES, GROUP_STRIDE, GROUPS_OF_TILE, SIDE, Geometry
from obscodec.codecs.formats.images.groups import N_MARKS, SLACK, bits_nbytes
from obscodec.codecs.formats.images.tiles import MAX_VECTORS, N_TRIED
from obscodec.kernels import LINE_NBYTES
from obscodec.segments import Bytes

N_COLOURS: Final = 256  # of a palette: the most that a byte can name
TABLE_BITS: Final = 10  # of the number of entries of a table of colours
_MOST_OF_TILE: Final = 3 * GROUPS_OF_TILE * GROUP_NBYTES


def new_scratch(geometry: Geometry, n_frames: int) -> tuple[Bytes, tuple[int, ...]]:
    """Memory for items of ``n_frames`` frames, and the addresses of a ``Scratch`` in it, in a plain tuple.

    Each part begins a line of the cache.
    """
    n_groups, n_tiles = geometry.n_groups, geometry.n_tiles
    bits = max(geometry.frame_nbytes, bits_nbytes(n_groups, n_tiles)) + _MOST_OF_TILE + SLACK
    sizes = 2 * geometry.work_nbytes, GROUP_STRIDE * (n_groups + 1), n_groups, 4 * n_groups, n_tiles, 2 * MAX_VECTORS
    of_colours = 8 * N_COLOURS, 8 << TABLE_BITS, n_frames * geometry.height * geometry.width, 2 * SIDE * SIDE
    parts = np.array([LINE_NBYTES, *sizes, bits, 8 * N_MARKS, 8 * N_TRIED, 8 * n_frames, *of_colours])
    ends = (-(-parts // LINE_NBYTES) * LINE_NBYTES).cumsum()
    memory = np.empty(ends[-1], np.uint8)
    first = memory.ctypes.data - memory.ctypes.data % LINE_NBYTES
    return memory, tuple((first + ends[:-1]).tolist())
