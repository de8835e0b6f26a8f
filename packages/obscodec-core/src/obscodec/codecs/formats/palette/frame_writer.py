"""Items of ``palette`` to streams."""

from typing import Final

from obscodec.codecs.formats.palette.apply import apply_tiles
from obscodec.codecs.formats.palette.colours import TABLE_BITS, find_places
from obscodec.codecs.formats.palette.orders import N_COLOURS, OrderAddresses
from obscodec.codecs.formats.palette.room import Room
from obscodec.codecs.formats.pred import (
    GROUPS_OF_TILE,
    N_STREAMS,
    Codes,
    Geometry,
    clear_margins,
    encode_groups,
    find_vectors,
    head_nbytes,
    n_vectors_of,
    put_frame,
    size_bound,
    write_head,
    write_sizes,
)
from obscodec.codecs.statuses import OK
from obscodec.codecs.varint_kernels import write_varint
from obscodec.kernels import address, compiled, copy, inlined, store_u8, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints

_STRANGE: Final = 4  # as many times fewer pixels of new colours make the orders of a dictionary useless


@compiled
def encode_items(
    rows: Rows,
    n_frames: int,
    geometry: Geometry,
    plane: Geometry,
    known: Ints,
    table: Ints,
    n_known: int,
    orders: OrderAddresses,
    classes: Bytes,
    codes: Codes,
    starts: Ints,
    out: Bytes,
    lengths: Ints,
    room: Room,
) -> int:
    """Encode the items that a palette suits.

    Args:
        rows: ``u8[n, nbytes]``.
        n_frames: the frames of an item, at least 1.
        geometry: of a frame.
        plane: of its plane.
        known: ``i64[256]``, see ``palette_of``.
        table: of the places of its colours, see ``new_table``.
        n_known: how many these are.
        orders: of the dictionary.
        classes: see ``encode_groups``, as the next two.
        codes: ``u32[:]``.
        starts: ``i64[17]``.
        out: filled with the streams, one behind the other.
        lengths: ``i64[n]``, filled with their bytes: 0 for an item of too many colours, or that grows.
        room: which no other call uses meanwhile.

    Returns:
        A status.
    """
    work, here = address(room.frame.work), address(out)
    before = work + plane.plane_nbytes
    clear_margins(work, plane)
    clear_margins(before, plane)
    copy(address(room.palette), address(known), 8 * N_COLOURS)
    for i in range(len(rows)):
        copy(address(room.table), address(table), 8 << TABLE_BITS)
        source = address(rows) + i * rows.shape[1]
        n_colours, n_new = find_places(
            source, n_frames, n_known, address(room.places), room.table, room.palette, geometry
        )
        lengths[i] = 0
        is_strange = n_known > 0 and _STRANGE * n_new > n_frames * geometry.height * geometry.width
        if n_colours <= N_COLOURS and not is_strange:
            lengths[i] = _encode_item(
                here,
                rows.shape[1],
                n_frames,
                geometry,
                plane,
                n_known,
                n_colours,
                orders,
                classes,
                codes,
                starts,
                work,
                before,
                room,
            )
        here += lengths[i]
    return OK


@compiled
def _encode_item(
    out: int,
    most: int,
    n_frames: int,
    geometry: Geometry,
    plane: Geometry,
    n_known: int,
    n_colours: int,
    orders: OrderAddresses,
    classes: Bytes,
    codes: Codes,
    starts: Ints,
    work: int,
    before: int,
    room: Room,
) -> int:
    """Write the item whose places are in the room, and return its bytes; 0 if they are more than ``most``."""
    n_pixels = plane.height * plane.width
    frame_nbytes, source = geometry.n_channels * n_pixels, address(room.places)
    if 9 + (n_colours - n_known) * geometry.n_channels + size_bound(frame_nbytes) * n_frames >= most:
        return 0
    here = write_varint(out, n_colours - n_known + 1)
    for k in range(n_known, n_colours):
        for c in range(geometry.n_channels):
            store_u8(here + c, unsigned(room.palette[k] >> 8 * c))
        here += geometry.n_channels
    body = here + size_bound(frame_nbytes) * (n_frames - 1)
    at = body
    for k in range(n_frames):
        largest = predict_frame(
            work, before, source, k > 0, plane, orders, address(room.frame.modes), address(room.frame.residuals), room
        )
        left = min(frame_nbytes, out + most - at)
        nbytes = _encode_frame(at, left, largest, plane, classes, codes, starts, room)
        if nbytes > left:
            return 0
        room.frame.sizes[k] = nbytes
        at += nbytes
        source += n_pixels
        work, before = before, work
    return write_sizes(here, body, at, n_frames, room.frame.sizes) - out


@inlined
def predict_frame(
    work: int,
    before: int,
    source: int,
    has_before: bool,
    plane: Geometry,
    orders: OrderAddresses,
    modes: int,
    residuals: int,
    room: Room,
) -> int:
    """Put places into a plane, choose its vectors and modes, and compute its residuals; returns the largest mode."""
    put_frame(work, source, plane)
    vectors, n_vectors = address(room.frame.vectors), 0
    if has_before:
        n_vectors = find_vectors(work, before, vectors, room.frame.saved, plane)
    ranks = address(room.ranks)
    return apply_tiles(work, before, vectors, n_vectors, modes, residuals, ranks, plane, orders)


@inlined
def _encode_frame(
    out: int, most: int, largest: int, plane: Geometry, classes: Bytes, codes: Codes, starts: Ints, room: Room
) -> int:
    """Write a frame, whose tiles are in the room, and return its bytes; more than ``most`` if it is not written."""
    frame, n_tiles = room.frame, plane.tiles_down * plane.tiles_across
    n_vectors = n_vectors_of(largest)
    body = out + head_nbytes(n_vectors)
    left = out + most + 1 - body
    if left <= 1:
        return most + 1
    nbytes = encode_groups(
        address(frame.residuals),
        n_tiles * GROUPS_OF_TILE,
        address(frame.modes),
        n_tiles,
        N_STREAMS,
        classes,
        codes,
        starts,
        address(frame.labels),
        address(frame.order),
        address(frame.bits),
        left,
        body,
        frame.marks,
    )
    if nbytes < left:
        write_head(out, n_vectors, 0, address(frame.vectors))
    return body - out + nbytes


@compiled
def predict_items(
    places: Rows, n_frames: int, plane: Geometry, orders: OrderAddresses, residuals: Rows, modes: Rows, room: Room
) -> int:
    """Compute the residuals and modes of all frames of some items, and encode nothing.

    Args:
        places: ``u8[n, height * width]``, a frame a row.
        n_frames: the frames of an item.
        plane: the geometry of a plane.
        orders: by which ranks are found.
        residuals: ``u8[n, GROUP_STRIDE * n_groups]``, filled.
        modes: ``u8[n, n_tiles]``, filled.
        room: which no other call uses meanwhile.
    """
    work = address(room.frame.work)
    before = work + plane.plane_nbytes
    clear_margins(work, plane)
    clear_margins(before, plane)
    for k in range(len(places)):
        predict_frame(
            work,
            before,
            address(places) + k * places.shape[1],
            k % n_frames > 0,
            plane,
            orders,
            address(modes) + k * modes.shape[1],
            address(residuals) + k * residuals.shape[1],
            room,
        )
        work, before = before, work
    return OK
