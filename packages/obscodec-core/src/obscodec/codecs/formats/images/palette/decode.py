"""Items of ``palette`` from their streams."""

from typing import Final

from obscodec.codecs.formats.images.geometry import GROUP_STRIDE, GROUPS_OF_TILE, SIDE, Geometry, Scratch, clear_margins
from obscodec.codecs.formats.images.palette.colours import get_colours, prepare_colours
from obscodec.codecs.formats.images.palette.orders import Orders
from obscodec.codecs.formats.images.palette.undo import ABOVE, ABOVE_LEFT, undo_tile
from obscodec.codecs.formats.images.scratch import N_COLOURS
from obscodec.codecs.formats.images.sections import read_frame, read_size, skip_sizes
from obscodec.codecs.formats.images.tiles import MAX_VECTORS, N_SPATIAL, is_half, unfold_tile, vector_offset
from obscodec.kernels import address, compiled, copy, inlined, load_u8, signed, store_u64, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints
from obscodec.statuses import MANY_COLOURS, NO_SUCH_FRAME, NO_SUCH_MODE, OK
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
    """Decode the items that have a palette; otherwise as ``decode_items`` of ``pred``.

    ``others``, ``u8[n]``, is filled with 0, or with the bytes before the stream of another codec. Colours and orders
    are as in ``encode_items``.
    """
    geometry, plane, orders, scratch = Geometry(*of_frame), Geometry(*of_plane), Orders(*of_orders), Scratch(*places)
    work, before = scratch.work, scratch.work + plane.plane_nbytes
    clear_margins(work, plane)
    for i in range(len(addresses)):
        target, end = address(rows) + i * rows.shape[1], addresses[i] + lengths[i]
        n_colours, at = read_varint(addresses[i], end)
        if at < 0:
            return -at
        others[i] = len(PRED) if n_colours == 0 else len(PLAIN) * (n_colours == N_COLOURS + 2 and n_known > 0)
        if others[i]:
            continue
        at = _read_colours(at, end, known, n_known, n_colours + n_known - 1, geometry, scratch)
        if at < 0:
            return -at
        body = skip_sizes(at, end, n_frames)
        if body < 0:
            return -body
        for k in range(wanted[i]):
            nbytes, at = read_size(at, body, end, k == n_frames - 1)
            if nbytes < 1 or nbytes > geometry.frame_nbytes:
                return NO_SUCH_FRAME
            status = _decode_frame(body, nbytes, work, before, MAX_VECTORS if k else 0, plane, orders, tables, scratch)
            if status == OK:
                status = get_colours(work, target, geometry, plane, scratch)
            if status != OK:
                return status
            target += geometry.frame_nbytes
            body += nbytes
            work, before = before, work
    return OK


@inlined
def _read_colours(
    at: int, end: int, known: int, n_known: int, n_colours: int, geometry: Geometry, scratch: Scratch
) -> int:
    """Put the known colours and those at ``at`` into ``scratch``; the address behind these, or minus a status."""
    if n_colours > N_COLOURS or (n_colours - n_known) * geometry.n_channels > end - at:
        return -MANY_COLOURS
    copy(scratch.colours, known, 8 * N_COLOURS)
    for k in range(n_known, n_colours):
        key = 0
        for c in range(geometry.n_channels):
            key |= signed(load_u8(at + c)) << 8 * c
        store_u64(scratch.colours + 8 * k, unsigned(key))
        at += geometry.n_channels
    prepare_colours(n_colours, geometry, scratch)
    return at


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
    scratch: Scratch,
) -> int:
    """Decode a frame into the plane at ``work``; see ``read_frame``."""
    n_vectors, status = read_frame(body, nbytes, most_vectors, plane, tables, scratch)
    if status != OK:
        return status
    residuals, modes = scratch.residuals, scratch.modes
    for y in range(0, SIDE * plane.tiles_down, SIDE):
        for x in range(0, SIDE * plane.tiles_across, SIDE):
            mode = signed(load_u8(modes))
            if mode not in (ABOVE, ABOVE_LEFT) and mode < N_SPATIAL:
                return NO_SUCH_MODE
            offset, status = vector_offset(mode, y, x, n_vectors, plane, scratch)
            if status != OK:
                return status
            if is_half(x, plane):
                unfold_tile(residuals, 1)
            corner = (y + 1) * plane.stride + SIDE + x
            undo_tile(mode, work + corner, before + corner + offset, residuals, plane.stride, orders)
            modes += 1
            residuals += GROUP_STRIDE * GROUPS_OF_TILE
    return OK
