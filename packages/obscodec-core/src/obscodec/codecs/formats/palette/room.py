"""Memory that kernels of ``palette`` work in."""

from typing import Final, NamedTuple

from obscodec.codecs.formats.palette.colours import TABLE_BITS
from obscodec.codecs.formats.palette.orders import N_COLOURS
from obscodec.codecs.formats.pred import SIDE, Geometry, divided
from obscodec.codecs.formats.pred import Room as FrameRoom
from obscodec.codecs.formats.pred import new_room as new_frame_room
from obscodec.kernels import inlined
from obscodec.segments import Bytes

_N_OF_FRAME: Final = len(FrameRoom._fields)


class Room(NamedTuple):
    """Where a call of a kernel works: addresses in memory that its caller owns.

    Attributes:
        frame: where kernels of ``pred`` work.
        palette: ``i64[256]``, the key of each place, or what ``prepare_colours`` makes of it.
        table: ``i64[1024]``, see ``new_table``.
        places: ``u8[n_frames * height * width]``.
        ranks: ``u8[128]``, of two tiles.
    """

    frame: FrameRoom
    palette: int
    table: int
    places: int
    ranks: int


@inlined
def room_at(places: tuple[int, ...]) -> Room:
    """The room at the addresses that :func:`new_room` gives."""
    return Room(FrameRoom(*places[:_N_OF_FRAME]), *places[_N_OF_FRAME:])


def new_room(geometry: Geometry, n_frames: int) -> tuple[tuple[Bytes, Bytes], tuple[int, ...]]:
    """Memory for items of ``n_frames`` frames, and the addresses of a :class:`Room` in it, in a plain tuple."""
    of_frame, places = new_frame_room(geometry, n_frames)
    n_pixels = n_frames * geometry.height * geometry.width
    memory, addresses = divided(8 * N_COLOURS, 8 << TABLE_BITS, n_pixels, 2 * SIDE * SIDE)
    return (of_frame, memory), (*places, *addresses)
