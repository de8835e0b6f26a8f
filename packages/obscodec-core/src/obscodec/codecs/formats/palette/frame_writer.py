"""Items of ``palette`` to streams."""

from typing import Final

import numpy as np

from obscodec.codecs.formats.palette.apply import apply_tiles
from obscodec.codecs.formats.palette.colours import TABLE_BITS, find_places
from obscodec.codecs.formats.palette.dictionary import Tables
from obscodec.codecs.formats.palette.orders import N_COLOURS, OrderAddresses
from obscodec.codecs.formats.palette.room import Room, new_room, room_at
from obscodec.codecs.formats.pred import (
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    PREDICTED,
    Geometry,
    clear_margins,
    encode_groups,
    find_vectors,
    head_nbytes,
    n_vectors_of,
    plane_geometry,
    put_frame,
    size_bound,
    write_head,
    write_sizes,
)
from obscodec.kernels import address, compiled, copy, inlined, load_u8, store_u8, store_u64, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints
from obscodec.statuses import OK
from obscodec.streams import write_varint

_STRANGE: Final = 4  # as many times fewer pixels of new colours make the orders of a dictionary useless


def encode_with(tables: Tables, rows: Rows, n_frames: int, geometry: Geometry, n_streams: int, out: Bytes) -> Ints:
    """Encode some items by the tables of a dictionary, and return their bytes: see :func:`encode_items`."""
    lengths, (memory, room) = np.zeros(len(rows), np.int64), new_room(geometry, n_frames)
    encode_items(
        rows,
        n_frames,
        tuple(geometry),
        tuple(plane_geometry(geometry)),
        tables.known.ctypes.data,
        tables.places.ctypes.data,
        len(tables.keys),
        tables.at,
        n_streams,
        tables.books.classes.ctypes.data,
        tables.books.codes.ctypes.data,
        out,
        lengths,
        room,
    )
    del memory  # not before
    return lengths


@compiled
def encode_items(
    rows: Rows,
    n_frames: int,
    of_frame: tuple[int, ...],
    of_plane: tuple[int, ...],
    known: int,
    table: int,
    n_known: int,
    of_orders: tuple[int, ...],
    n_streams: int,
    classes: int,
    codes: int,
    out: Bytes,
    lengths: Ints,
    places: tuple[int, ...],
) -> int:
    """Encode the items that a palette suits.

    Args:
        rows: ``u8[n, nbytes]``.
        n_frames: the frames of an item, at least 1.
        of_frame: its geometry.
        of_plane: that of its plane.
        known: the address of ``i64[256]``, see ``palette_of``.
        table: of the places of its colours, see ``new_table``.
        n_known: how many these are.
        of_orders: the addresses of those of the dictionary.
        n_streams: bit streams of a frame; :data:`PREDICTED` for the residuals of each frame, in groups, and behind them
            the mode of each tile.
        classes: see ``encode_groups``, as the next one.
        codes: the address of ``u32[N_SYMBOLS]``.
        out: filled with the streams, one behind the other.
        lengths: ``i64[n]``, filled with their bytes: 0 for an item of too many colours, or that grows.
        places: the addresses of a room that no other call uses meanwhile.

    Returns:
        A status.
    """
    geometry, plane = Geometry(*of_frame), Geometry(*of_plane)
    orders, room = OrderAddresses(*of_orders), room_at(places)
    work, here = room.frame.work, address(out)
    before = work + plane.plane_nbytes
    clear_margins(work, plane)
    clear_margins(before, plane)
    copy(room.palette, known, 8 * N_COLOURS)
    for i in range(len(rows)):
        copy(room.table, table, 8 << TABLE_BITS)
        source = address(rows) + i * rows.shape[1]
        n_colours, n_new = find_places(source, n_frames, n_known, room.places, room.table, room.palette, geometry)
        lengths[i] = 0
        is_strange = n_known > 0 and _STRANGE * n_new > n_frames * geometry.height * geometry.width
        if n_colours <= N_COLOURS and (n_streams == PREDICTED or not is_strange):
            lengths[i] = _encode_item(
                here,
                rows.shape[1],
                n_frames,
                geometry,
                plane,
                n_known,
                n_colours,
                orders,
                n_streams,
                classes,
                codes,
                work,
                before,
                room,
            )
        here += lengths[i]
    return OK


@inlined
def _encode_item(
    out: int,
    most: int,
    n_frames: int,
    geometry: Geometry,
    plane: Geometry,
    n_known: int,
    n_colours: int,
    orders: OrderAddresses,
    n_streams: int,
    classes: int,
    codes: int,
    work: int,
    before: int,
    room: Room,
) -> int:
    """Write the item whose places are in the room, and return its bytes; 0 if they are more than ``most``."""
    n_pixels, n_tiles = plane.height * plane.width, plane.tiles_down * plane.tiles_across
    tiles_nbytes = GROUP_STRIDE * GROUPS_OF_TILE * n_tiles
    frame_nbytes, source, here, sizes_nbytes = geometry.n_channels * n_pixels, room.places, out, 0
    if n_streams != PREDICTED:
        sizes_nbytes = size_bound(frame_nbytes) * (n_frames - 1)
        if 9 + (n_colours - n_known) * geometry.n_channels + size_bound(frame_nbytes) * n_frames >= most:
            return 0
        here = write_varint(out, n_colours - n_known + 1)
        for k in range(n_known, n_colours):
            for c in range(geometry.n_channels):
                store_u8(here + c, load_u8(room.palette + 8 * k + c))
            here += geometry.n_channels
    body = here + sizes_nbytes
    at = body
    for k in range(n_frames):
        residuals, modes = room.frame.residuals, room.frame.modes
        if n_streams == PREDICTED:
            residuals, modes = at, at + tiles_nbytes
        largest = _predict_frame(work, before, source, k > 0, plane, orders, modes, residuals, room)
        if n_streams == PREDICTED:
            nbytes = tiles_nbytes + n_tiles
        else:
            left = min(frame_nbytes, out + most - at)
            nbytes = _encode_frame(at, left, largest, plane, n_streams, classes, codes, room)
            if nbytes > left:
                return 0
        store_u64(room.frame.sizes + 8 * k, unsigned(nbytes))
        at += nbytes
        source += n_pixels
        work, before = before, work
    return (at if n_streams == PREDICTED else write_sizes(here, body, at, n_frames, room.frame.sizes)) - out


@inlined
def _predict_frame(
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
    vectors = room.frame.vectors
    n_vectors = find_vectors(work, before, vectors, room.frame.saved, plane) if has_before else 0
    return apply_tiles(work, before, vectors, n_vectors, modes, residuals, room.ranks, plane, orders)


@inlined
def _encode_frame(
    out: int, most: int, largest: int, plane: Geometry, n_streams: int, classes: int, codes: int, room: Room
) -> int:
    """Write a frame, whose tiles are in the room, and return its bytes; more than ``most`` if it is not written."""
    frame, n_tiles = room.frame, plane.tiles_down * plane.tiles_across
    n_vectors = n_vectors_of(largest)
    body = out + head_nbytes(n_vectors)
    left = out + most + 1 - body
    if left <= 1:
        return most + 1
    nbytes = encode_groups(
        frame.residuals,
        n_tiles * GROUPS_OF_TILE,
        frame.modes,
        n_tiles,
        n_streams,
        classes,
        codes,
        frame.labels,
        frame.order,
        frame.bits,
        left,
        body,
        frame.marks,
    )
    if nbytes < left:
        write_head(out, n_vectors, 0, frame.vectors)
    return body - out + nbytes
