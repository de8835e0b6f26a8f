"""Memory that kernels of ``palette`` work in."""

from typing import NamedTuple

import numpy as np

from obscodec.codecs.formats.palette.colours import TABLE_BITS
from obscodec.codecs.formats.palette.orders import N_COLOURS
from obscodec.codecs.formats.pred import SIDE, Geometry, new_room
from obscodec.codecs.formats.pred import Room as FrameRoom
from obscodec.segments import Bytes, Ints


class Room(NamedTuple):
    """Memory that a call of a kernel works in.

    Attributes:
        frame: what kernels of ``pred`` work in.
        palette: ``i64[256]``, the key of each place.
        table: ``i64[1024]``, see ``new_table``.
        places: ``u8[n_frames * height * width]``.
        ranks: ``u8[128]``, of two tiles.
    """

    frame: FrameRoom
    palette: Ints
    table: Ints
    places: Bytes
    ranks: Bytes


def room_of(geometry: Geometry, n_frames: int) -> Room:
    """Room for items of ``n_frames`` frames."""
    palette, table = (np.empty(n, np.int64) for n in (N_COLOURS, 1 << TABLE_BITS))
    n_pixels = n_frames * geometry.height * geometry.width
    places, ranks = (np.empty(n, np.uint8) for n in (n_pixels, 2 * SIDE * SIDE))
    return Room(new_room(geometry, n_frames), palette, table, places, ranks)
