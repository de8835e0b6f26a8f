"""Items of ``palette`` from their streams."""

from typing import Final

from obscodec.codecs.formats.palette.colours import get_colours, prepare_colours
from obscodec.codecs.formats.palette.modes import mode_status
from obscodec.codecs.formats.palette.orders import N_COLOURS, OrderAddresses
from obscodec.codecs.formats.palette.room import Room, room_at
from obscodec.codecs.formats.palette.undo import undo_tile
from obscodec.codecs.formats.pred import (
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    MAX_VECTORS,
    SIDE,
    Geometry,
    clear_margins,
    decode_groups,
    is_narrow,
    read_head,
    skip_sizes,
    unfold_tile,
    vector_offset,
)
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
        of_orders: the addresses of those of the dictionary.
        tables: the address of those of its books, ``u64[16, 2048]``.
        places: the addresses of a room that no other call uses meanwhile.

    Returns:
        A status.
    """
    geometry, plane = Geometry(*of_frame), Geometry(*of_plane)
    orders, room = OrderAddresses(*of_orders), room_at(places)
    frame_nbytes = rows.shape[1] // n_frames
    work = room.frame.work
    before = work + plane.plane_nbytes
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
        copy(room.palette, known, 8 * N_COLOURS)
        for k in range(n_known, n_colours):
            at, key = _read_key(at, geometry.n_channels)
            store_u64(room.palette + 8 * k, unsigned(key))
        prepare_colours(room.palette, n_colours, geometry)
        body = skip_sizes(at, end, n_frames)
        if body < 0:
            return -body
        for k in range(wanted[i]):
            nbytes = end - body
            if k < n_frames - 1:
                nbytes, at = read_varint(at, end)
            if nbytes > end - body or nbytes < 1 or nbytes > frame_nbytes:
                return NO_SUCH_FRAME
            copy(room.frame.bits, body, nbytes)
            status = _decode_frame(nbytes, work, before, k > 0, plane, orders, tables, room)
            if status == OK:
                status = get_colours(work, target, room.palette, geometry, plane)
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
    nbytes: int,
    work: int,
    before: int,
    has_before: bool,
    plane: Geometry,
    orders: OrderAddresses,
    tables: int,
    room: Room,
) -> int:
    """Decode the frame in ``room.frame.bits`` into the plane at ``work``."""
    frame = room.frame
    begin, vectors, modes, residuals = frame.bits, frame.vectors, frame.modes, frame.residuals
    n_tiles, most_vectors = plane.tiles_down * plane.tiles_across, MAX_VECTORS if has_before else 0
    n_vectors, form, at, status = read_head(begin, begin + nbytes, most_vectors, 4, vectors)
    if status != OK:
        return status
    status = decode_groups(
        at,
        begin + nbytes,
        4 << form,
        n_tiles * GROUPS_OF_TILE,
        n_tiles,
        tables,
        frame.labels,
        frame.order,
        modes,
        residuals,
        frame.marks,
    )
    if status != OK:
        return status
    for ty in range(plane.tiles_down):
        for tx in range(plane.tiles_across):
            mode = signed(load_u8(modes))
            status = mode_status(mode)
            if status != OK:
                return status
            offset, status = vector_offset(mode, SIDE * ty, SIDE * tx, vectors, n_vectors, plane)
            if status != OK:
                return status
            corner = (SIDE * ty + 1) * plane.stride + SIDE + SIDE * tx
            if is_narrow(SIDE * tx, plane):
                unfold_tile(residuals, 1)
            undo_tile(mode, work + corner, before + corner + offset, residuals, plane.stride, orders)
            residuals += GROUPS_OF_TILE * GROUP_STRIDE
            modes += 1
    return OK
