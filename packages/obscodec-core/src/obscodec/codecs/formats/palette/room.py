"""Memory that kernels of ``palette`` work in."""

from typing import NamedTuple

from obscodec.codecs.formats.palette.colours import TABLE_BITS
from obscodec.codecs.formats.palette.orders import N_COLOURS
from obscodec.codecs.formats.pred import SIDE, Geometry, divided
from obscodec.codecs.formats.pred import Room as FrameRoom
from obscodec.codecs.formats.pred import new_room as new_frame_room
from obscodec.segments import Bytes


class Room(NamedTuple):
    """Where a call of a kernel works: addresses in memory that its caller owns.

    Attributes:
        frame: where kernels of ``pred`` work.
        palette: ``i64[256]``, the key of each place.
        table: ``i64[1024]``, see ``new_table``.
        places: ``u8[n_frames * height * width]``.
        ranks: ``u8[128]``, of two tiles.
    """

    frame: FrameRoom
    palette: int
    table: int
    places: int
    ranks: int


def new_room(geometry: Geometry, n_frames: int) -> tuple[tuple[Bytes, Bytes], Room]:
    """Memory for items of ``n_frames`` frames, and the places in it."""
    of_frame, frame = new_frame_room(geometry, n_frames)
    n_pixels = n_frames * geometry.height * geometry.width
    memory, addresses = divided(8 * N_COLOURS, 8 << TABLE_BITS, n_pixels, 2 * SIDE * SIDE)
    return (of_frame, memory), Room(frame, *addresses)
