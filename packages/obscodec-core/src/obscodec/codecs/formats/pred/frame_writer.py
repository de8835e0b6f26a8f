"""Items of ``pred`` to streams."""

from typing import Final

from obscodec.codecs.formats.pred.geometry import (
    GROUP_NBYTES,
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    Geometry,
    clear_margins,
    put_frame,
)
from obscodec.codecs.formats.pred.groups import encode_groups
from obscodec.codecs.formats.pred.heads import AS_IS, head_nbytes, n_vectors_of, size_bound, write_head, write_sizes
from obscodec.codecs.formats.pred.room import Room
from obscodec.codecs.formats.pred.tiles import apply_tiles, find_vectors
from obscodec.codecs.formats.pred.widths import (
    ALL_WIDTHS,
    FEW_WIDTHS,
    MAX_WIDTH,
    bits_of_mode,
    group_width,
    pack_group,
    write_bits,
)
from obscodec.kernels import address, compiled, copy, inlined, load_u8, signed, store_u8, store_u64, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints
from obscodec.statuses import OK

PREDICTED: Final = -1


@compiled
def encode_items(
    rows: Rows,
    n_frames: int,
    of_frame: tuple[int, ...],
    n_streams: int,
    classes: int,
    codes: int,
    out: Bytes,
    lengths: Ints,
    places: tuple[int, ...],
) -> int:
    """Encode some items.

    Args:
        rows: ``u8[n, nbytes]``.
        n_frames: the frames of an item, at least 1.
        of_frame: its geometry.
        n_streams: bit streams of a frame; 0 for the fast form; :data:`PREDICTED` for the residuals of each frame, in
            groups, and behind them the mode of each tile.
        classes: see ``encode_groups``, as the next one.
        codes: the address of ``u32[N_SYMBOLS]``.
        out: filled with the streams, one behind the other.
        lengths: ``i64[n]``, filled with their bytes.
        places: the addresses of a room that no other call uses meanwhile.

    Returns:
        A status.
    """
    geometry, room = Geometry(*of_frame), Room(*places)
    frame_nbytes = rows.shape[1] // n_frames
    work_nbytes = geometry.n_channels * geometry.plane_nbytes
    n_tiles = geometry.tiles_down * geometry.tiles_across
    tiles_nbytes = GROUP_STRIDE * GROUPS_OF_TILE * geometry.n_channels * n_tiles
    work, here = room.work, address(out)
    before = work + work_nbytes
    clear_margins(work, geometry)
    clear_margins(before, geometry)
    sizes_nbytes = 0 if n_streams == PREDICTED else size_bound(frame_nbytes) * (n_frames - 1)
    for i in range(len(rows)):
        begin, body, source = here, here + sizes_nbytes, address(rows) + i * rows.shape[1]
        at = body
        for k in range(n_frames):
            residuals, modes = room.residuals, room.modes
            if n_streams == PREDICTED:
                residuals, modes = at, at + tiles_nbytes
            largest = predict_frame(work, before, source, k > 0, geometry, modes, residuals, room)
            if n_streams == PREDICTED:
                nbytes = tiles_nbytes + n_tiles
            else:
                nbytes = _encode_frame(at, frame_nbytes, largest, geometry, n_streams, classes, codes, room)
                if nbytes > frame_nbytes:
                    store_u8(at, unsigned(AS_IS))
                    copy(at + 1, source, frame_nbytes)
                    nbytes = 1 + frame_nbytes
                    put_frame(work, source, geometry)
            store_u64(room.sizes + 8 * k, unsigned(nbytes))
            at += nbytes
            source += frame_nbytes
            work, before = before, work
        here = at if n_streams == PREDICTED else write_sizes(here, body, at, n_frames, room.sizes)
        if n_streams != PREDICTED and here - begin > rows.shape[1]:
            store_u8(begin, unsigned(AS_IS))
            copy(begin + 1, address(rows) + i * rows.shape[1], rows.shape[1])
            here = begin + 1 + rows.shape[1]
        lengths[i] = here - begin
    return OK


@inlined
def predict_frame(
    work: int,
    before: int,
    source: int,
    has_before: bool,
    geometry: Geometry,
    modes: int,
    residuals: int,
    room: Room,
) -> int:
    """Put a frame into planes, choose its vectors and modes, and compute its residuals; returns the largest kind."""
    put_frame(work, source, geometry)
    n_vectors = find_vectors(work, before, room.vectors, room.saved, geometry) if has_before else 0
    return apply_tiles(work, before, room.vectors, n_vectors, modes, residuals, geometry)


@inlined
def _encode_frame(
    out: int,
    frame_nbytes: int,
    largest: int,
    geometry: Geometry,
    n_streams: int,
    classes: int,
    codes: int,
    room: Room,
) -> int:
    """Write a frame, whose tiles are in ``room``, and return its bytes: more than it has if it is not written."""
    n_tiles, groups_of_tile = geometry.tiles_down * geometry.tiles_across, GROUPS_OF_TILE * geometry.n_channels
    n_groups, bits = n_tiles * groups_of_tile, room.bits
    residuals, modes, labels = room.residuals, room.modes, room.labels
    n_vectors = n_vectors_of(largest)
    body = out + head_nbytes(n_vectors)
    most = out + frame_nbytes + 1 - body
    if most <= 1:
        return frame_nbytes + 1
    form = 0
    if n_streams:
        while 4 << form < n_streams:
            form += 1
        nbytes = encode_groups(
            residuals,
            n_groups,
            modes,
            n_tiles,
            n_streams,
            classes,
            codes,
            labels,
            room.order,
            bits,
            most,
            body,
            room.marks,
        )
    else:
        n_sevens, end = 0, bits
        for g in range(n_groups):
            width = group_width(residuals + GROUP_STRIDE * g)
            n_sevens += width == MAX_WIDTH - 1
            store_u8(labels + g, unsigned(width))
        form = GROUP_NBYTES * n_sevens < n_groups
        for g in range(n_groups):
            width = signed(load_u8(labels + g))
            if form and width == MAX_WIDTH - 1:
                width = MAX_WIDTH
            end = pack_group(end, width, residuals + GROUP_STRIDE * g)
            store_u8(labels + g, unsigned(width - 1 if form and width == MAX_WIDTH else width))
        mode_bits, width_bits = bits_of_mode(n_vectors, geometry.n_channels), FEW_WIDTHS if form else ALL_WIDTHS
        modes_nbytes, widths_nbytes = n_tiles * mode_bits + 7 >> 3, n_groups * width_bits + 7 >> 3
        nbytes = modes_nbytes + widths_nbytes + end - bits
        if nbytes < most:
            at = write_bits(body, modes, n_tiles, mode_bits)
            at = write_bits(at, labels, n_groups, width_bits)
            copy(at, bits, end - bits)
    if nbytes < most:
        write_head(out, n_vectors, form, room.vectors)
    return body - out + nbytes
