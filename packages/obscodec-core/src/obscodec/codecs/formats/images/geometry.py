"""How an item is made of frames, and a frame of planes and tiles."""

from math import prod
from typing import Final, NamedTuple

import numpy as np

from obscodec.errors import SpecError
from obscodec.kernels import bytes_at, compiled, copy, fill_zeros, inlined, store_u64, unsigned
from obscodec.layout import Layout

SIDE: Final = 8  # of a tile: its rows are words
GROUP_NBYTES: Final = 32  # residuals in a group: four rows of a tile in one plane
GROUP_STRIDE: Final = 40  # from group to group in memory: decoders write up to three bytes behind a group
GROUPS_OF_TILE: Final = 2  # in each plane


class Geometry(NamedTuple):
    """Sizes in bytes of what kernels work on.

    A frame is worked on in planes, one behind the other: green, red and blue, if it has these; the low and the high
    bytes of pixels of two bytes. Each has a row of zeros above it, and eight zeros on the left of each row; its sides
    are rounded up to whole tiles.

    Attributes:
        n_channels: bytes of a pixel: 1, 2 or 3.
        pixel_step: from a pixel of a frame to the next one in its row.
        row_step: from row to row of a frame.
        channel_step: from a channel of a pixel of a frame to the next one.
        stride: from row to row of a plane.
        tiles_down: how many rows of tiles there are.
        tiles_across: how many tiles a row has.
        n_groups: groups of residuals of a frame.
        work_nbytes: of the planes of a frame.
    """

    n_channels: int
    height: int
    width: int
    pixel_step: int
    row_step: int
    channel_step: int
    stride: int
    plane_nbytes: int
    tiles_down: int
    tiles_across: int
    n_tiles: int
    n_groups: int
    frame_nbytes: int
    work_nbytes: int


class Scratch(NamedTuple):
    """Where a call of a kernel works: addresses in memory that its caller owns.

    Kernels take addresses, since an array is seven arguments, each of which numba looks at for each kernel anew. Those
    that Python calls take a plain tuple of them: numba asks for memory to tell the type of a named one, and crashes if
    there is none.

    Attributes:
        work: two frames in planes.
        labels: ``u8[n_groups]``, the class of each group.
        order: ``u32[n_groups]``.
        modes: ``u8[n_tiles]``.
        vectors: ``i8[MAX_VECTORS, 2]``.
        bits: a frame as it is stored.
        marks: ``i64[N_MARKS]``.
        saved: ``i64[N_TRIED]``.
        sizes: ``i64[n_frames]``, the bytes of each frame.
        colours: of ``palette``: ``i64[256]``, the key of each place, or what ``prepare_colours`` makes of it.
        table: ``i64[1024]``, see ``new_table``.
        places: ``u8[n_frames * height * width]``.
        ranks: ``u8[128]``, of two tiles.
    """

    work: int
    residuals: int
    labels: int
    order: int
    modes: int
    vectors: int
    bits: int
    marks: int
    saved: int
    sizes: int
    colours: int
    table: int
    places: int
    ranks: int


def geometry_of(layout: Layout, spec: str, *, takes_depth: bool) -> tuple[int, Geometry]:
    """The number of frames of an item, and the geometry of each; SpecError, with a ``spec``, if it is no image.

    ``takes_depth`` says whether images of two bytes are right.
    """
    shape, n_axes = layout.shape, len(layout.shape) if layout.dtype == np.uint8 else 0
    is_depth = takes_depth and layout.dtype.itemsize == 2 and len(shape) >= 2
    if is_depth and not (len(shape) >= 3 and shape[-1] == 3):
        *in_front, height, width = shape[:-1] if len(shape) >= 3 and shape[-1] == 1 else shape
        return prod(in_front), _geometry(height, width, 2, interleaved=True)
    if n_axes >= 3 and shape[-1] in (1, 3):
        return prod(shape[:-3]), _geometry(shape[-3], shape[-2], shape[-1], interleaved=True)
    if n_axes >= 4 and shape[-3] == 3:
        return prod(shape[:-3]), _geometry(shape[-2], shape[-1], 3, interleaved=False)
    if n_axes >= 2:
        return prod(shape[:-2]), _geometry(shape[-2], shape[-1], 1, interleaved=True)
    depth = ", or of two bytes in one channel" if takes_depth else ""
    instead = f"shuffle|{spec}" if takes_depth and len(shape) > 1 and layout.dtype.itemsize > 1 else "zstd:3"
    raise SpecError(
        f"{spec} takes images of uint8, [height, width] or [height, width, 1 or 3], or several, [n, height, width], "
        f"[n, height, width, 1 or 3] or [n, 3, height, width]{depth}, got {layout}: use {instead}"
    )


def plane_geometry(geometry: Geometry) -> Geometry:
    """The geometry of frames of the same size that have one channel."""
    return _geometry(geometry.height, geometry.width, 1, interleaved=True)


def _geometry(height: int, width: int, n_channels: int, *, interleaved: bool) -> Geometry:
    tiles_down, tiles_across = -(-height // SIDE), -(-width // SIDE)
    stride = SIDE * tiles_across + SIDE
    steps = (n_channels, n_channels * width, 1) if interleaved else (1, width, height * width)
    plane_nbytes = (SIDE * tiles_down + 1) * stride
    n_tiles = tiles_down * tiles_across
    of_frame = n_tiles, n_channels * n_tiles * GROUPS_OF_TILE, n_channels * height * width, n_channels * plane_nbytes
    return Geometry(n_channels, height, width, *steps, stride, plane_nbytes, tiles_down, tiles_across, *of_frame)


@inlined
def row_offset(y: int) -> int:
    """Where the residuals of a row of a tile are, behind those of its first row in the same plane."""
    return (y >> 2) * GROUP_STRIDE + SIDE * (y & 3)


@compiled
def clear_margins(work: int, geometry: Geometry) -> None:
    """Put zeros above and on the left of each plane of the two frames at the address ``work``."""
    for c in range(2 * geometry.n_channels):
        plane = work + c * geometry.plane_nbytes
        fill_zeros(plane, geometry.stride)
        for at in range(plane, plane + geometry.plane_nbytes, geometry.stride):
            store_u64(at, unsigned(0))


@compiled
def put_frame(work: int, frame: int, geometry: Geometry) -> None:
    """Put a frame into planes, whose padding becomes zeros."""
    height, width, stride = geometry.height, geometry.width, geometry.stride
    for c in range(geometry.n_channels):
        plane = work + c * geometry.plane_nbytes + stride + SIDE
        channel = frame + geometry.channel_step * (1 - c if geometry.n_channels == 3 and c < 2 else c)
        for y in range(height):
            source, target = channel + y * geometry.row_step, plane + y * stride
            if geometry.pixel_step == 1:
                copy(target, source, width)
            else:
                pixels, row = bytes_at(source, (geometry.pixel_step * width,)), bytes_at(target, (width,))
                for x in range(unsigned(width)):
                    row[x] = pixels[unsigned(geometry.pixel_step) * x]
            fill_zeros(target + width, stride - SIDE - width)
        below = SIDE * geometry.tiles_down - height
        for y in range(height, height + below):
            fill_zeros(plane + y * stride, stride - SIDE)


@compiled
def get_frame(work: int, frame: int, geometry: Geometry) -> None:
    """The inverse of :func:`put_frame`."""
    width, plane_nbytes = geometry.width, geometry.plane_nbytes
    for y in range(geometry.height):
        source, target = work + (y + 1) * geometry.stride + SIDE, frame + y * geometry.row_step
        if geometry.n_channels == 1:
            copy(target, source, width)
        elif geometry.n_channels == 2:
            low, high = bytes_at(source, (width,)), bytes_at(source + plane_nbytes, (width,))
            pixels = bytes_at(target, (2 * width,))
            for x in range(unsigned(width)):
                pixels[unsigned(2) * x] = low[x]
                pixels[unsigned(2) * x + unsigned(1)] = high[x]
        elif geometry.pixel_step == 1:
            copy(target + geometry.channel_step, source, width)
            copy(target, source + plane_nbytes, width)
            copy(target + 2 * geometry.channel_step, source + 2 * plane_nbytes, width)
        else:
            green, pixels = bytes_at(source, (width,)), bytes_at(target, (3 * width,))
            red, blue = bytes_at(source + plane_nbytes, (width,)), bytes_at(source + 2 * plane_nbytes, (width,))
            for x in range(unsigned(width)):
                pixels[unsigned(3) * x] = red[x]
                pixels[unsigned(3) * x + unsigned(1)] = green[x]
                pixels[unsigned(3) * x + unsigned(2)] = blue[x]
