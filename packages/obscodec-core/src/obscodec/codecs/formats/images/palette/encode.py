"""Items of ``palette`` to streams."""

from typing import Final

import numpy as np

from obscodec.codecs.formats.images.geometry import Geometry, Scratch, clear_margins, plane_geometry, put_frame
from obscodec.codecs.formats.images.palette.apply import apply_tiles
from obscodec.codecs.formats.images.palette.colours import find_places
from obscodec.codecs.formats.images.palette.dictionary import Tables
from obscodec.codecs.formats.images.palette.orders import Orders
from obscodec.codecs.formats.images.scratch import N_COLOURS, TABLE_BITS, new_scratch
from obscodec.codecs.formats.images.sections import PREDICTED, size_bound, write_frame, write_sizes
from obscodec.codecs.formats.images.tiles import find_vectors
from obscodec.kernels import address, compiled, copy, inlined, load_u8, store_u8, store_u64, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints
from obscodec.streams import write_varint

_STRANGE: Final = 4  # as many times fewer pixels of new colours make the orders of a dictionary useless


def encode_with(tables: Tables, rows: Rows, n_frames: int, geometry: Geometry, out: Bytes, codes: int) -> Ints:
    """Encode some items by the tables of a dictionary, and return their bytes: see :func:`encode_items`."""
    lengths, (memory, scratch) = np.zeros(len(rows), np.int64), new_scratch(geometry, n_frames)
    encode_items(
        rows,
        n_frames,
        tuple(geometry),
        tuple(plane_geometry(geometry)),
        tables.known.ctypes.data,
        tables.places.ctypes.data,
        len(tables.keys),
        tuple(tables.orders),
        tables.books.classes.ctypes.data,
        codes,
        out,
        lengths,
        scratch,
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
    classes: int,
    codes: int,
    out: Bytes,
    lengths: Ints,
    places: tuple[int, ...],
) -> None:
    """Encode the items that a palette suits; otherwise as ``encode_items`` of ``pred``.

    Their frames have the geometry ``of_frame``, and planes of places that ``of_plane``. ``known`` is the address of
    ``i64[256]``, see ``palette_of``, and ``table`` of ``i64[1024]``, see ``new_table``, for ``n_known`` colours, whose
    orders are ``of_orders``. The length is 0 for an item of too many colours, or that grows.
    """
    geometry, plane, orders, scratch = Geometry(*of_frame), Geometry(*of_plane), Orders(*of_orders), Scratch(*places)
    here, most = address(out), rows.shape[1]
    clear_margins(scratch.work, plane)
    copy(scratch.colours, known, 8 * N_COLOURS)
    for i in range(len(rows)):
        copy(scratch.table, table, 8 << TABLE_BITS)
        n_colours, n_new = find_places(address(rows) + i * most, n_frames, n_known, geometry, scratch)
        is_strange, at = n_known > 0 and _STRANGE * n_new > n_frames * plane.frame_nbytes, here
        if n_colours > N_COLOURS or (is_strange and codes != PREDICTED):
            at = 0
        elif codes != PREDICTED:
            at = _write_colours(here, most, n_frames, n_known, n_colours, geometry, scratch)
        if at:
            at = _write_frames(at, here + most, n_frames, geometry, plane, orders, classes, codes, scratch)
        lengths[i] = at - here if at else 0
        here += lengths[i]


@inlined
def _write_colours(
    out: int, most: int, n_frames: int, n_known: int, n_colours: int, geometry: Geometry, scratch: Scratch
) -> int:
    """Write the new colours of an item, and return the address behind them; 0 if the item may take ``most`` bytes."""
    n_new = n_colours - n_known
    if 9 + n_new * geometry.n_channels + size_bound(geometry.frame_nbytes) * n_frames >= most:
        return 0
    out = write_varint(out, n_new + 1)
    for k in range(n_known, n_colours):
        for c in range(geometry.n_channels):
            store_u8(out + c, load_u8(scratch.colours + 8 * k + c))
        out += geometry.n_channels
    return out


@inlined
def _write_frames(
    out: int,
    end: int,
    n_frames: int,
    geometry: Geometry,
    plane: Geometry,
    orders: Orders,
    classes: int,
    codes: int,
    scratch: Scratch,
) -> int:
    """Write the frames of an item whose places are in ``scratch``; the address behind them, 0 if beyond ``end``."""
    work, before, source = scratch.work, scratch.work + plane.plane_nbytes, scratch.places
    body = out + (0 if codes == PREDICTED else size_bound(geometry.frame_nbytes) * (n_frames - 1))
    at = body
    for k in range(n_frames):
        put_frame(work, source, plane)
        n_vectors = find_vectors(work, before, plane, scratch) if k else 0
        largest = apply_tiles(work, before, n_vectors, plane, orders, scratch)
        left = min(geometry.frame_nbytes, end - at)
        nbytes = write_frame(at, left, largest, plane, classes, codes, scratch)
        if nbytes > left and codes != PREDICTED:
            return 0
        store_u64(scratch.sizes + 8 * k, unsigned(nbytes))
        at += nbytes
        source += plane.frame_nbytes
        work, before = before, work
    return at if codes == PREDICTED else write_sizes(out, body, at, n_frames, scratch)
