"""Items of ``pred`` from their streams."""

from obscodec.codecs.formats.pred.geometry import (
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    SIDE,
    Geometry,
    clear_margins,
    get_frame,
    put_frame,
)
from obscodec.codecs.formats.pred.groups import decode_groups
from obscodec.codecs.formats.pred.heads import AS_IS, read_head, skip_sizes
from obscodec.codecs.formats.pred.room import Room
from obscodec.codecs.formats.pred.tiles import (
    MAX_VECTORS,
    is_narrow,
    transform_bits,
    undo_tile,
    undo_transform,
    unfold_tile,
    vector_offset,
)
from obscodec.codecs.formats.pred.widths import (
    ALL_WIDTHS,
    FEW_WIDTHS,
    MAX_WIDTH,
    bits_of_mode,
    read_bits,
    unpack_group,
)
from obscodec.kernels import address, compiled, copy, inlined, load_u8, signed
from obscodec.layout import Rows
from obscodec.segments import Ints
from obscodec.statuses import NO_SUCH_FRAME, OK, WIDE_GROUP
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
        tables: the address of ``u64[16, 2048]`` of the dense form; 0 for the fast one.
        places: the addresses of a room that no other call uses meanwhile.

    Returns:
        A status.
    """
    geometry, room = Geometry(*of_frame), Room(*places)
    frame_nbytes = rows.shape[1] // n_frames
    work_nbytes = geometry.n_channels * geometry.plane_nbytes
    work, before = room.work, room.work + work_nbytes
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
                copy(room.bits, body, nbytes)
                status = _decode_frame(nbytes, work, before, k > 0, geometry, tables, room)
                if status != OK:
                    return status
                get_frame(work, target, geometry)
            target += frame_nbytes
            body += nbytes
            work, before = before, work
    return OK


@inlined
def _decode_frame(
    nbytes: int, work: int, before: int, has_before: bool, geometry: Geometry, tables: int, room: Room
) -> int:
    """Decode the frame in ``room.bits`` into planes; ``tables`` as in :func:`decode_items`."""
    begin, residuals, modes = room.bits, room.residuals, room.modes
    n_tiles, groups_of_tile = geometry.tiles_down * geometry.tiles_across, GROUPS_OF_TILE * geometry.n_channels
    n_groups, end = n_tiles * groups_of_tile, begin + nbytes
    vectors, most_vectors = room.vectors, MAX_VECTORS if has_before else 0
    n_vectors, form, at, status = read_head(begin, end, most_vectors, 4 if tables else 2, vectors)
    if status != OK:
        return status
    mode_bits, width_bits, modes_at, widths_at = 0, 0, at, at
    if tables:
        status = decode_groups(
            at,
            end,
            4 << form,
            n_groups,
            n_tiles,
            tables,
            room.labels,
            room.order,
            modes,
            residuals,
            room.marks,
        )
        if status != OK:
            return status
    else:
        mode_bits, width_bits = bits_of_mode(n_vectors, geometry.n_channels), FEW_WIDTHS if form else ALL_WIDTHS
        widths_at = modes_at + (n_tiles * mode_bits + 7 >> 3)
        at = widths_at + (n_groups * width_bits + 7 >> 3)
    tile, n_bits = 0, transform_bits(geometry.n_channels)
    n_transforms = 1 << n_bits
    for ty in range(geometry.tiles_down):
        for tx in range(geometry.tiles_across):
            y, x = SIDE * ty, SIDE * tx
            if tables:
                mode = signed(load_u8(modes + tile))
            else:
                if at > end:
                    return NO_SUCH_FRAME
                mode = read_bits(modes_at, tile * mode_bits, mode_bits)
                bit = tile * groups_of_tile * width_bits
                for g in range(groups_of_tile):
                    width = read_bits(widths_at, bit, width_bits)
                    bit += width_bits
                    if width_bits == FEW_WIDTHS:
                        width += width == MAX_WIDTH - 1
                    if width > MAX_WIDTH:
                        return WIDE_GROUP
                    at = unpack_group(at, width, residuals + GROUP_STRIDE * g)
            kind = mode >> n_bits
            offset, status = vector_offset(kind, y, x, vectors, n_vectors, geometry)
            if status != OK:
                return status
            corner = (y + 1) * geometry.stride + SIDE + x
            if is_narrow(x, geometry):
                unfold_tile(residuals, geometry.n_channels)
            if mode & n_transforms - 1:
                undo_transform(mode & n_transforms - 1, residuals)
            undo_tile(
                kind,
                work + corner,
                before + corner + offset,
                residuals,
                geometry.stride,
                geometry.plane_nbytes,
                geometry.n_channels,
            )
            if tables:
                residuals += GROUP_STRIDE * groups_of_tile
            tile += 1
    return OK if tables or at == end else NO_SUCH_FRAME
