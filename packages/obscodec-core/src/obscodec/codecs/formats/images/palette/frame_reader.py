"""Items of ``palette`` from their streams."""

from typing import Final

from obscodec.codecs.formats.images.geometry import GROUP_STRIDE, GROUPS_OF_TILE, SIDE, Geometry, Room, clear_margins
from obscodec.codecs.formats.images.palette.colours import get_colours, prepare_colours
from obscodec.codecs.formats.images.palette.orders import Orders
from obscodec.codecs.formats.images.palette.undo import mode_status, undo_tile
from obscodec.codecs.formats.images.room import N_COLOURS
from obscodec.codecs.formats.images.sections import read_frame, skip_sizes
from obscodec.codecs.formats.images.tiles import MAX_VECTORS, is_narrow, unfold_tile, vector_offset
from obscodec.kernels import address, compiled, copy, inlined, load_u8, signed, store_u64, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints
from obscodec.statuses import MANY_COLOURS, NO_SUCH_FRAME, OK
from obscodec.streams import read_varint
from obscodec.varint import encode_varint

PRED: Final = b"\0"  # what stands before the stream of ``pred`` of an item of more than 256 colours
PLAIN: Final = encode_varint(N_COLOURS + 2)  # and before the stream that has no use for the dictionary


@compiled
def decode_items(
    addresses: Ints,
    lengths: Ints,
    rows: Rows,
    others: Bytes,
    n_frames: int,
    wanted: Ints,
    of_frame: tuple[int, ...],
    of_plane: tuple[int, ...],
    known: int,
    n_known: int,
    of_orders: tuple[int, ...],
    tables: int,
    places: tuple[int, ...],
) -> int:
    """Decode the items that have a palette, or the first frames of each.

    Args:
        addresses: ``i64[n]``, the stream of each.
        lengths: ``i64[n]``, its bytes.
        rows: ``u8[n, nbytes]``, filled for items that have a palette.
        others: ``u8[n]``, filled: 0, or the bytes before the stream of another codec.
        n_frames: the frames of an item, at least 1.
        wanted: ``i64[n]``, how many of them to decode; the rest of the row stays as it is.
        of_frame: its geometry.
        of_plane: that of its plane.
        known: the address of ``i64[256]``, see ``palette_of``.
        n_known: how many these are.
        of_orders: the orders of the dictionary.
        tables: see ``read_frame``.
        places: the addresses of a room that no other call uses meanwhile.

    Returns:
        A status.
    """
    geometry, plane, orders, room = Geometry(*of_frame), Geometry(*of_plane), Orders(*of_orders), Room(*places)
    frame_nbytes = geometry.frame_nbytes
    work, before = room.work, room.work + plane.plane_nbytes
    clear_margins(work, plane)
    clear_margins(before, plane)
    for i in range(len(addresses)):
        target, end = address(rows) + i * rows.shape[1], addresses[i] + lengths[i]
        n_colours, at = read_varint(addresses[i], end)
        if at < 0:
            return -at
        others[i] = 0
        if n_colours == 0:
            others[i] = len(PRED)
            continue
        if n_colours == N_COLOURS + 2 and n_known > 0:
            others[i] = len(PLAIN)
            continue
        n_colours += n_known - 1
        if n_colours > N_COLOURS or (n_colours - n_known) * geometry.n_channels > end - at:
            return MANY_COLOURS
        copy(room.colours, known, 8 * N_COLOURS)
        for k in range(n_known, n_colours):
            at, key = _read_key(at, geometry.n_channels)
            store_u64(room.colours + 8 * k, unsigned(key))
        prepare_colours(n_colours, geometry, room)
        body = skip_sizes(at, end, n_frames)
        if body < 0:
            return -body
        for k in range(wanted[i]):
            nbytes = end - body
            if k < n_frames - 1:
                nbytes, at = read_varint(at, end)
            if nbytes > end - body or nbytes < 1 or nbytes > frame_nbytes:
                return NO_SUCH_FRAME
            status = _decode_frame(body, nbytes, work, before, MAX_VECTORS if k else 0, plane, orders, tables, room)
            if status == OK:
                status = get_colours(work, target, geometry, plane, room)
            if status != OK:
                return status
            target += frame_nbytes
            body += nbytes
            work, before = before, work
    return OK


@inlined
def _read_key(at: int, n_channels: int) -> tuple[int, int]:
    """The address behind a colour, and its key."""
    key = 0
    for c in range(n_channels):
        key |= signed(load_u8(at + c)) << 8 * c
    return at + n_channels, key


@inlined
def _decode_frame(
    body: int,
    nbytes: int,
    work: int,
    before: int,
    most_vectors: int,
    plane: Geometry,
    orders: Orders,
    tables: int,
    room: Room,
) -> int:
    """Decode a frame into the plane at ``work``; see ``read_frame``."""
    n_vectors, status = read_frame(body, nbytes, most_vectors, plane, tables, room)
    if status != OK:
        return status
    residuals, modes = room.residuals, room.modes
    for y in range(0, SIDE * plane.tiles_down, SIDE):
        for x in range(0, SIDE * plane.tiles_across, SIDE):
            mode = signed(load_u8(modes))
            status = mode_status(mode)
            if status != OK:
                return status
            offset, status = vector_offset(mode, y, x, n_vectors, plane, room)
            if status != OK:
                return status
            if is_narrow(x, plane):
                unfold_tile(residuals, 1)
            corner = (y + 1) * plane.stride + SIDE + x
            undo_tile(mode, work + corner, before + corner + offset, residuals, plane.stride, orders)
            modes += 1
            residuals += GROUP_STRIDE * GROUPS_OF_TILE
    return OK
