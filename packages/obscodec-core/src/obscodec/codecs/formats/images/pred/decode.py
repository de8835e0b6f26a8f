"""Items of ``pred`` from their streams."""

from obscodec.codecs.formats.images.geometry import (
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    SIDE,
    Geometry,
    Scratch,
    clear_margins,
    get_frame,
    put_frame,
)
from obscodec.codecs.formats.images.sections import AS_IS, read_frame, read_size, skip_sizes
from obscodec.codecs.formats.images.tiles import (
    MAX_VECTORS,
    is_half,
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
    """Decode some items, or the first frames of each; returns a status.

    The stream of an item has ``lengths[i]`` bytes at ``addresses[i]``, ``i64[n]`` both. It fills the row ``rows[i]``,
    ``u8[n, nbytes]``, with the first ``wanted[i]`` of its ``n_frames`` frames, one or more, of the geometry
    ``of_frame``. ``tables`` is as in ``read_frame``; ``places`` are those of a ``Scratch``, which no other call
    uses meanwhile.
    """
    geometry, scratch = Geometry(*of_frame), Scratch(*places)
    frame_nbytes = geometry.frame_nbytes
    work, before = scratch.work, scratch.work + geometry.work_nbytes
    clear_margins(work, geometry)
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
            nbytes, at = read_size(at, body, end, k == n_frames - 1)
            is_plain = nbytes > 0 and load_u8(body) == AS_IS
            if nbytes < 1 or (nbytes != 1 + frame_nbytes if is_plain else nbytes > frame_nbytes):
                return NO_SUCH_FRAME
            if is_plain:
                copy(target, body + 1, frame_nbytes)
                if k < wanted[i] - 1:
                    put_frame(work, target, geometry)
            else:
                status = _decode_frame(body, nbytes, work, before, MAX_VECTORS if k else 0, geometry, tables, scratch)
                if status != OK:
                    return status
                get_frame(work, target, geometry)
            target += frame_nbytes
            body += nbytes
            work, before = before, work
    return OK


@inlined
def _decode_frame(
    body: int, nbytes: int, work: int, before: int, most_vectors: int, geometry: Geometry, tables: int, scratch: Scratch
) -> int:
    """Decode a frame into planes; see ``read_frame``."""
    n_vectors, status = read_frame(body, nbytes, most_vectors, geometry, tables, scratch)
    if status != OK:
        return status
    residuals, modes, n_bits = scratch.residuals, scratch.modes, transform_bits(geometry.n_channels)
    for y in range(0, SIDE * geometry.tiles_down, SIDE):
        for x in range(0, SIDE * geometry.tiles_across, SIDE):
            mode = signed(load_u8(modes))
            kind, transform = mode >> n_bits, mode & (1 << n_bits) - 1
            offset, status = vector_offset(kind, y, x, n_vectors, geometry, scratch)
            if status != OK:
                return status
            if is_half(x, geometry):
                unfold_tile(residuals, geometry.n_channels)
            if transform:
                undo_transform(transform, residuals)
            corner = (y + 1) * geometry.stride + SIDE + x
            undo_tile(kind, work + corner, before + corner + offset, residuals, geometry)
            modes += 1
            residuals += GROUP_STRIDE * GROUPS_OF_TILE * geometry.n_channels
    return OK
