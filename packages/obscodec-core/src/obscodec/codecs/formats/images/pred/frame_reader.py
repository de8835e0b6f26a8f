"""Items of ``pred`` from their streams."""

from obscodec.codecs.formats.images.geometry import (
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    SIDE,
    Geometry,
    Room,
    clear_margins,
    get_frame,
    put_frame,
)
from obscodec.codecs.formats.images.sections import AS_IS, read_frame, skip_sizes
from obscodec.codecs.formats.images.tiles import (
    MAX_VECTORS,
    is_narrow,
    transform_bits,
    undo_tile,
    undo_transform,
    unfold_tile,
    vector_offset,
)
from obscodec.kernels import address, compiled, copy, inlined, load_u8, signed
from obscodec.layout import Rows
from obscodec.segments import Ints
from obscodec.statuses import NO_SUCH_FRAME, OK
from obscodec.streams import read_varint


@compiled
def decode_items(
    addresses: Ints,
    lengths: Ints,
    rows: Rows,
    n_frames: int,
    wanted: Ints,
    of_frame: tuple[int, ...],
    tables: int,
    places: tuple[int, ...],
) -> int:
    """Decode some items, or the first frames of each.

    Args:
        addresses: ``i64[n]``, the stream of each.
        lengths: ``i64[n]``, its bytes.
        rows: ``u8[n, nbytes]``, filled.
        n_frames: the frames of an item, at least 1.
        wanted: ``i64[n]``, how many of them to decode; the rest of the row stays as it is.
        of_frame: its geometry.
        tables: see ``read_frame``.
        places: the addresses of a room that no other call uses meanwhile.

    Returns:
        A status.
    """
    geometry, room = Geometry(*of_frame), Room(*places)
    frame_nbytes = geometry.frame_nbytes
    work, before = room.work, room.work + geometry.work_nbytes
    clear_margins(work, geometry)
    clear_margins(before, geometry)
    for i in range(len(addresses)):
        at, end = addresses[i], addresses[i] + lengths[i]
        target = address(rows) + i * rows.shape[1]
        if at < end and load_u8(at) == AS_IS:
            if end - at != 1 + rows.shape[1]:
                return NO_SUCH_FRAME
            copy(target, at + 1, wanted[i] * frame_nbytes)
            continue
        body = skip_sizes(at, end, n_frames)
        if body < 0:
            return -body
        for k in range(wanted[i]):
            nbytes = end - body
            if k < n_frames - 1:
                nbytes, at = read_varint(at, end)
            if nbytes > end - body or nbytes < 1:
                return NO_SUCH_FRAME
            if load_u8(body) == AS_IS:
                if nbytes != 1 + frame_nbytes:
                    return NO_SUCH_FRAME
                copy(target, body + 1, frame_nbytes)
                if k < wanted[i] - 1:
                    put_frame(work, target, geometry)
            else:
                if nbytes > frame_nbytes:
                    return NO_SUCH_FRAME
                status = _decode_frame(body, nbytes, work, before, MAX_VECTORS if k else 0, geometry, tables, room)
                if status != OK:
                    return status
                get_frame(work, target, geometry)
            target += frame_nbytes
            body += nbytes
            work, before = before, work
    return OK


@inlined
def _decode_frame(
    body: int, nbytes: int, work: int, before: int, most_vectors: int, geometry: Geometry, tables: int, room: Room
) -> int:
    """Decode a frame into planes; see ``read_frame``."""
    n_vectors, status = read_frame(body, nbytes, most_vectors, geometry, tables, room)
    if status != OK:
        return status
    stride, plane_nbytes, n_channels = geometry.stride, geometry.plane_nbytes, geometry.n_channels
    residuals, modes, n_bits = room.residuals, room.modes, transform_bits(n_channels)
    for y in range(0, SIDE * geometry.tiles_down, SIDE):
        for x in range(0, SIDE * geometry.tiles_across, SIDE):
            mode = signed(load_u8(modes))
            kind, transform = mode >> n_bits, mode & (1 << n_bits) - 1
            offset, status = vector_offset(kind, y, x, n_vectors, geometry, room)
            if status != OK:
                return status
            if is_narrow(x, geometry):
                unfold_tile(residuals, n_channels)
            if transform:
                undo_transform(transform, residuals)
            corner = (y + 1) * stride + SIDE + x
            undo_tile(kind, work + corner, before + corner + offset, residuals, stride, plane_nbytes, n_channels)
            modes += 1
            residuals += GROUP_STRIDE * GROUPS_OF_TILE * n_channels
    return OK
