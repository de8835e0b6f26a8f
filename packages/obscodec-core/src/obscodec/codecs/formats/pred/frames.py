"""Frames and items of ``pred``, from their bytes and to them."""

from typing import Final, NamedTuple

import numpy as np

from obscodec.codecs.formats.pred.geometry import (
    GROUP_NBYTES,
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    SIDE,
    Geometry,
    clear_margins,
    get_frame,
    put_frame,
)
from obscodec.codecs.formats.pred.groups import (
    N_MARKS,
    SLACK,
    Codes,
    Words,
    bits_nbytes,
    decode_groups,
    encode_groups,
)
from obscodec.codecs.formats.pred.tiles import MAX_VECTORS, N_SPATIAL, apply_tiles, undo_tile, vector_offset
from obscodec.codecs.formats.pred.vectors import N_TRIED, find_vectors
from obscodec.codecs.formats.pred.widths import (
    ALL_WIDTHS,
    FEW_WIDTHS,
    MAX_WIDTH,
    group_width,
    pack_group,
    read_bits,
    unpack_group,
    write_bits,
)
from obscodec.codecs.statuses import NO_SUCH_FRAME, NO_SUCH_STORAGE, OK, WIDE_GROUP
from obscodec.codecs.varint_kernels import read_varint, write_varint
from obscodec.kernels import address, compiled, copy, inlined, load_u8, move, signed, store_u8, store_u16, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints

AS_IS: Final = 0  # the head of a frame of plain pixels; others have the number of their vectors and 1
_LOW: Final = 15  # the bits of a head with that number
_MOST_OF_TILE: Final = 3 * GROUPS_OF_TILE * GROUP_NBYTES


class Room(NamedTuple):
    """Memory that a call of a kernel works in.

    Attributes:
        work: two frames in planes.
        residuals: of a frame.
        labels: ``u8[n_groups]``, the class or the width of each group.
        order: ``u32[n_groups]`` as bytes.
        modes: ``u8[n_tiles]``.
        vectors: ``i8[MAX_VECTORS, 2]``.
        bits: a frame as it is stored.
        marks: ``i64[N_MARKS]``.
        saved: ``i64[N_TRIED]``.
        sizes: ``i64[n_frames]``, the bytes of each frame.
    """

    work: Bytes
    residuals: Bytes
    labels: Bytes
    order: Bytes
    modes: Bytes
    vectors: Bytes
    bits: Bytes
    marks: Ints
    saved: Ints
    sizes: Ints


def new_room(geometry: Geometry, n_frames: int) -> Room:
    """Room for items of ``n_frames`` frames."""
    n_groups, n_tiles = geometry.n_groups, geometry.n_tiles
    bits = max(geometry.frame_nbytes, bits_nbytes(n_groups, n_tiles)) + _MOST_OF_TILE + SLACK
    sizes = 2 * geometry.work_nbytes, GROUP_STRIDE * (n_groups + 1), n_groups, 4 * n_groups, n_tiles, 2 * MAX_VECTORS
    work, residuals, labels, order, modes, vectors, frame = (np.empty(nbytes, np.uint8) for nbytes in (*sizes, bits))
    marks, saved, frame_sizes = (np.empty(n, np.int64) for n in (N_MARKS, N_TRIED, n_frames))
    return Room(work, residuals, labels, order, modes, vectors, frame, marks, saved, frame_sizes)


def residuals_of(rows: Rows, n_frames: int, geometry: Geometry) -> tuple[Bytes, Bytes]:
    """The residuals of all frames of some items, in groups, and their modes ``u8[n]``: see ``books.trained``."""
    modes = np.empty((len(rows) * n_frames, geometry.n_tiles), np.uint8)
    residuals = np.empty((len(modes), GROUP_STRIDE * geometry.n_groups), np.uint8)
    predict_items(rows, n_frames, geometry, residuals, modes, new_room(geometry, n_frames))
    return residuals.reshape(-1), modes.reshape(-1)


@compiled
def predict_items(rows: Rows, n_frames: int, geometry: Geometry, residuals: Rows, modes: Rows, room: Room) -> int:
    """Compute the residuals and modes of each frame of some items, and encode nothing."""
    frame_nbytes = rows.shape[1] // n_frames
    work, source = address(room.work), address(rows)
    before = work + geometry.n_channels * geometry.plane_nbytes
    clear_margins(work, geometry)
    clear_margins(before, geometry)
    for i in range(len(modes)):
        predict_frame(
            work,
            before,
            source,
            i % n_frames > 0,
            geometry,
            address(modes) + i * modes.shape[1],
            address(residuals) + i * residuals.shape[1],
            room,
        )
        source += frame_nbytes
        work, before = before, work
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
    """Put a frame into planes, choose its vectors and modes, and compute its residuals; returns the largest mode."""
    put_frame(work, source, geometry)
    vectors, n_vectors = address(room.vectors), 0
    if has_before:
        n_vectors = find_vectors(work, before, vectors, room.saved, geometry)
    return apply_tiles(work, before, vectors, n_vectors, modes, residuals, geometry)


@compiled
def decode_items(
    addresses: Ints, lengths: Ints, rows: Rows, n_frames: int, geometry: Geometry, tables: Words, room: Room
) -> int:
    """Decode some items.

    Args:
        addresses: ``i64[n]``, the stream of each.
        lengths: ``i64[n]``, its bytes.
        rows: ``u8[n, nbytes]``, filled.
        n_frames: the frames of an item, at least 1.
        geometry: of a frame.
        tables: ``u64[16, 2048]`` of the dense form; ``u64[0, 2048]`` for the fast one.
        room: which no other call uses meanwhile.

    Returns:
        A status.
    """
    frame_nbytes = rows.shape[1] // n_frames
    work_nbytes = geometry.n_channels * geometry.plane_nbytes
    first, target = address(room.work), address(rows)
    work, before = first, first + work_nbytes
    clear_margins(work, geometry)
    clear_margins(before, geometry)
    dense = address(tables) if len(tables) else 0
    for i in range(len(addresses)):
        at, end = addresses[i], addresses[i] + lengths[i]
        body = at
        for _ in range(n_frames - 1):
            nbytes, body = read_varint(body, end)
            if body < 0:
                return -body
        for k in range(n_frames):
            nbytes = end - body
            if k < n_frames - 1:
                nbytes, at = read_varint(at, end)
            if nbytes > end - body or nbytes < 1:
                return NO_SUCH_FRAME
            if load_u8(body) == AS_IS:
                if nbytes != 1 + frame_nbytes:
                    return NO_SUCH_FRAME
                copy(target, body + 1, frame_nbytes)
                if k < n_frames - 1:
                    put_frame(work, target, geometry)
            else:
                if nbytes > frame_nbytes:
                    return NO_SUCH_FRAME
                copy(address(room.bits), body, nbytes)
                status = _decode_frame(nbytes, work, before, k > 0, geometry, dense, room)
                if status != OK:
                    return status
                get_frame(work, target, geometry)
            target += frame_nbytes
            body += nbytes
            work, before = before, work
    return OK


@compiled
def _decode_frame(
    nbytes: int, work: int, before: int, has_before: bool, geometry: Geometry, dense: int, room: Room
) -> int:
    """Decode the frame in ``room.bits`` into planes; ``dense`` is the address of the tables, or 0."""
    begin, residuals, modes = address(room.bits), address(room.residuals), address(room.modes)
    n_tiles, groups_of_tile = geometry.tiles_down * geometry.tiles_across, GROUPS_OF_TILE * geometry.n_channels
    n_groups, end = n_tiles * groups_of_tile, begin + nbytes
    head = signed(load_u8(begin))
    n_vectors, form = (head & _LOW) - 1, head >> 4
    if n_vectors < 0 or n_vectors > MAX_VECTORS or form > (3 if dense else 1) or (n_vectors > 0 and not has_before):
        return NO_SUCH_STORAGE
    at = begin + 1 + 2 * max(0, n_vectors - 1)
    if at > end:
        return NO_SUCH_FRAME
    vectors = address(room.vectors)
    store_u16(vectors, unsigned(0))
    copy(vectors + 2, begin + 1, at - begin - 1)
    mode_bits, width_bits, modes_at, widths_at = 0, 0, at, at
    if dense:
        status = decode_groups(
            at,
            end,
            4 << form,
            n_groups,
            n_tiles,
            dense,
            address(room.labels),
            address(room.order),
            modes,
            residuals,
            room.marks,
        )
        if status != OK:
            return status
    else:
        mode_bits, width_bits = _bits_of_mode(n_vectors), FEW_WIDTHS if form else ALL_WIDTHS
        widths_at = modes_at + (n_tiles * mode_bits + 7 >> 3)
        at = widths_at + (n_groups * width_bits + 7 >> 3)
    tile = 0
    for ty in range(geometry.tiles_down):
        for tx in range(geometry.tiles_across):
            y, x = SIDE * ty, SIDE * tx
            if dense:
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
            offset, status = vector_offset(mode, y, x, vectors, n_vectors, geometry)
            if status != OK:
                return status
            corner = (y + 1) * geometry.stride + SIDE + x
            undo_tile(
                mode,
                work + corner,
                before + corner + offset,
                residuals,
                geometry.stride,
                geometry.plane_nbytes,
                geometry.n_channels,
            )
            if dense:
                residuals += GROUP_STRIDE * groups_of_tile
            tile += 1
    return OK if dense or at == end else NO_SUCH_FRAME


@inlined
def _bits_of_mode(n_vectors: int) -> int:
    """The bits of a mode in a frame with so many vectors."""
    bits = 3
    while (1 << bits) < N_SPATIAL + 4 * n_vectors:
        bits += 1
    return bits


@compiled
def encode_items(
    rows: Rows,
    n_frames: int,
    geometry: Geometry,
    n_streams: int,
    classes: Bytes,
    codes: Codes,
    starts: Ints,
    out: Bytes,
    lengths: Ints,
    room: Room,
) -> int:
    """Encode some items.

    Args:
        rows: ``u8[n, nbytes]``.
        n_frames: the frames of an item, at least 1.
        geometry: of a frame.
        n_streams: bit streams of a frame; 0 for the fast form.
        classes: see ``encode_groups``, as the next two.
        codes: ``u32[:]``.
        starts: ``i64[17]``.
        out: filled with the streams, one behind the other.
        lengths: ``i64[n]``, filled with their bytes.
        room: which no other call uses meanwhile.

    Returns:
        A status.
    """
    frame_nbytes = rows.shape[1] // n_frames
    work_nbytes = geometry.n_channels * geometry.plane_nbytes
    first, source, here = address(room.work), address(rows), address(out)
    work, before = first, first + work_nbytes
    clear_margins(work, geometry)
    clear_margins(before, geometry)
    size_nbytes = 1
    while 1 + frame_nbytes >> (7 * size_nbytes):
        size_nbytes += 1
    for i in range(len(rows)):
        body = here + size_nbytes * (n_frames - 1)
        at = body
        for k in range(n_frames):
            largest = predict_frame(
                work, before, source, k > 0, geometry, address(room.modes), address(room.residuals), room
            )
            nbytes = _encode_frame(at, frame_nbytes, largest, geometry, n_streams, classes, codes, starts, room)
            if nbytes > frame_nbytes:
                store_u8(at, unsigned(AS_IS))
                copy(at + 1, source, frame_nbytes)
                nbytes = 1 + frame_nbytes
                put_frame(work, source, geometry)
            room.sizes[k] = nbytes
            at += nbytes
            source += frame_nbytes
            work, before = before, work
        begin = here
        for k in range(n_frames - 1):
            here = write_varint(here, room.sizes[k])
        move(here, body, at - body)
        here += at - body
        lengths[i] = here - begin
    return OK


@inlined
def _encode_frame(
    out: int,
    frame_nbytes: int,
    largest: int,
    geometry: Geometry,
    n_streams: int,
    classes: Bytes,
    codes: Codes,
    starts: Ints,
    room: Room,
) -> int:
    """Write a frame, whose tiles are in ``room``, and return its bytes: more than it has if it is not written."""
    n_tiles, groups_of_tile = geometry.tiles_down * geometry.tiles_across, GROUPS_OF_TILE * geometry.n_channels
    n_groups, bits = n_tiles * groups_of_tile, address(room.bits)
    residuals, modes, labels = address(room.residuals), address(room.modes), address(room.labels)
    n_vectors = (largest - N_SPATIAL >> 2) + 1 if largest >= N_SPATIAL else 0
    head_nbytes = 1 + 2 * max(0, n_vectors - 1)
    if head_nbytes >= frame_nbytes:
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
            starts,
            labels,
            address(room.order),
            bits,
            frame_nbytes + 1 - head_nbytes,
            out + head_nbytes,
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
        mode_bits, width_bits = _bits_of_mode(n_vectors), FEW_WIDTHS if form else ALL_WIDTHS
        modes_nbytes, widths_nbytes = n_tiles * mode_bits + 7 >> 3, n_groups * width_bits + 7 >> 3
        nbytes = modes_nbytes + widths_nbytes + end - bits
        if nbytes < frame_nbytes + 1 - head_nbytes:
            at = write_bits(out + head_nbytes, modes, n_tiles, mode_bits)
            at = write_bits(at, labels, n_groups, width_bits)
            copy(at, bits, end - bits)
    if nbytes < frame_nbytes + 1 - head_nbytes:
        store_u8(out, unsigned(n_vectors + 1 | form << 4))
        copy(out + 1, address(room.vectors) + 2, head_nbytes - 1)
    return head_nbytes + nbytes
