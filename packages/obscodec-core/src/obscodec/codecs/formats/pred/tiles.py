"""Prediction, tile by tile: a residual is what a pixel has more than its prediction, modulo 256.

A tile has 8x8 pixels in all planes, and one **mode**. Modes 0 to 5 predict from the pixel above, the pixel on the left,
and left + above - above left; from 6 on they also name a vector into the frame before. An odd mode subtracts the
residuals of the first plane from those of the others.
"""

from typing import Final

from obscodec.codecs.formats.pred.geometry import GROUP_STRIDE, GROUPS_OF_TILE, SIDE, Geometry
from obscodec.codecs.statuses import NO_SUCH_MODE, OK, OUTSIDE_PADDING
from obscodec.kernels import (
    add_bytes,
    bits_of_bytes,
    compiled,
    inlined,
    load_i8,
    load_u8,
    load_u64,
    store_u8,
    store_u64,
    subtract_bytes,
    sum_bytes_up_to,
    unsigned,
    zigzag_bytes,
)

ABOVE: Final = 0
LEFT: Final = 2
GRADIENT: Final = 4
N_SPATIAL: Final = 6
BEFORE: Final = 0  # behind N_SPATIAL, and 4 for each vector
BEFORE_GRADIENT: Final = 2
MAX_VECTORS: Final = 8
N_MODES: Final = N_SPATIAL + 4 * MAX_VECTORS
_PLANE: Final = GROUPS_OF_TILE * GROUP_STRIDE  # bytes of a plane of a tile among the residuals
_DIFFERENT: Final = 48  # bits of a tile from which vectors are tried
_VECTOR_BITS: Final = 8  # that a vector must save


@compiled
def undo_tile(
    mode: int, target: int, before: int, residuals: int, stride: int, plane_nbytes: int, n_channels: int
) -> int:
    """Turn the residuals of a tile into pixels at the address ``target``; ``before`` is where its vector leads."""
    for c in range(n_channels):
        row, old, own = target + c * plane_nbytes, before + c * plane_nbytes, residuals + c * _PLANE
        first = unsigned(0) - unsigned(mode & 1 if c else 0)  # all bits, or none
        above = load_u64(row - stride)
        kind = mode & ~1
        if kind == ABOVE:
            for half in range(GROUPS_OF_TILE):
                for y in range(4):
                    at = half * GROUP_STRIDE + SIDE * y
                    above = add_bytes(above, add_bytes(load_u64(own + at), load_u64(residuals + at) & first))
                    store_u64(row, above)
                    row += stride
        elif kind == LEFT:
            for half in range(GROUPS_OF_TILE):
                for y in range(4):
                    at = half * GROUP_STRIDE + SIDE * y
                    word = add_bytes(load_u64(own + at), load_u64(residuals + at) & first)
                    store_u64(row, sum_bytes_up_to(add_bytes(word, load_u8(row - 1))))
                    row += stride
        elif kind == GRADIENT:
            corner = load_u8(row - stride - 1)
            for half in range(GROUPS_OF_TILE):
                for y in range(4):
                    at = half * GROUP_STRIDE + SIDE * y
                    word = add_bytes(load_u64(own + at), load_u64(residuals + at) & first)
                    left = load_u8(row - 1)
                    above = add_bytes(above, sum_bytes_up_to(add_bytes(word, subtract_bytes(left, corner))))
                    store_u64(row, above)
                    corner = left
                    row += stride
        elif (kind - N_SPATIAL) & BEFORE_GRADIENT:
            old_above = load_u64(old - stride)
            for half in range(GROUPS_OF_TILE):
                for y in range(4):
                    at = half * GROUP_STRIDE + SIDE * y
                    word = add_bytes(load_u64(own + at), load_u64(residuals + at) & first)
                    here = load_u64(old)
                    above = add_bytes(above, add_bytes(word, subtract_bytes(here, old_above)))
                    store_u64(row, above)
                    old_above = here
                    row += stride
                    old += stride
        else:
            for half in range(GROUPS_OF_TILE):
                for y in range(4):
                    at = half * GROUP_STRIDE + SIDE * y
                    word = add_bytes(load_u64(own + at), load_u64(residuals + at) & first)
                    store_u64(row, add_bytes(load_u64(old), word))
                    row += stride
                    old += stride
    return OK


@inlined
def vector_offset(mode: int, y: int, x: int, vectors: int, n_vectors: int, geometry: Geometry) -> tuple[int, int]:
    """Where the vector of a mode leads a tile with the corner ``y, x``, as a distance in bytes; and a status."""
    offset, status = 0, OK
    if mode >= N_SPATIAL:
        vector = (mode - N_SPATIAL) >> 2
        if vector >= n_vectors:
            status = NO_SUCH_MODE
        else:
            down, right = load_i8(vectors + 2 * vector), load_i8(vectors + 2 * vector + 1)
            if not (0 <= y + down <= SIDE * (geometry.tiles_down - 1)):
                status = OUTSIDE_PADDING
            if not (0 <= x + right <= SIDE * (geometry.tiles_across - 1)):
                status = OUTSIDE_PADDING
            offset = down * geometry.stride + right
    return offset, status


@compiled
def apply_tiles(
    work: int, before: int, vectors: int, n_vectors: int, modes: int, residuals: int, geometry: Geometry
) -> int:
    """Choose a mode for each tile of a frame, and compute its residuals.

    The padding of the frame becomes its prediction, which costs nothing: its residuals are 0.

    Args:
        work: the address of the planes of the frame, changed in the padding.
        before: of those of the frame before.
        vectors: of ``i8[n_vectors, 2]``, down and right.
        n_vectors: 0 if there is no frame before.
        modes: of ``u8[n_tiles]``, filled.
        residuals: of ``n_groups`` groups, filled.
        geometry: of the frame.

    Returns:
        The largest mode.
    """
    stride, plane_nbytes, n_channels = geometry.stride, geometry.plane_nbytes, geometry.n_channels
    tile_nbytes, largest = _PLANE * n_channels, 0
    for ty in range(geometry.tiles_down):
        for tx in range(geometry.tiles_across):
            y, x = SIDE * ty, SIDE * tx
            n_rows, n_columns = min(SIDE, geometry.height - y), min(SIDE, geometry.width - x)
            mask = ~unsigned(0) >> unsigned(8 * (SIDE - n_columns))
            offset = (y + 1) * stride + SIDE + x
            tile, old, mode, fewest = work + offset, before + offset, ABOVE, 1 << 60
            if n_vectors:
                fewest, mode, old = _best_before(tile, before, vectors, n_vectors, n_rows, mask, y, x, geometry)
                mode += N_SPATIAL
            if fewest > 0:
                bits, spatial = _best_spatial(tile, stride, plane_nbytes, n_channels, n_rows, mask)
                if bits < fewest:
                    mode, old = spatial, before + offset
            largest = max(largest, mode)
            _write_residuals(mode, tile, old, residuals, geometry, n_rows, mask)
            store_u8(modes, unsigned(mode))
            modes += 1
            residuals += tile_nbytes
    return largest


@inlined
def _fewer(fewest: int, mode: int, plain: int, less: int, kind: int) -> tuple[int, int]:
    """The fewest bits and their mode, of some before and of a kind with ``plain`` and with subtracted residuals."""
    if plain < fewest:
        fewest, mode = plain, kind
    if less < fewest:
        fewest, mode = less, kind + 1
    return fewest, mode


@compiled
def _best_spatial(
    tile: int, stride: int, plane_nbytes: int, n_channels: int, n_rows: int, mask: int
) -> tuple[int, int]:
    """The fewest bits that modes without the frame before need for a tile, and the mode."""
    plain_above, plain_left, plain_gradient, less_above, less_left, less_gradient = 0, 0, 0, 0, 0, 0
    for y in range(n_rows):
        green_above, green_left, green_gradient = unsigned(0), unsigned(0), unsigned(0)
        for c in range(n_channels):
            row = tile + y * stride + c * plane_nbytes
            here, up = load_u64(row), load_u64(row - stride)
            above, left = subtract_bytes(here, up) & mask, subtract_bytes(here, load_u64(row - 1)) & mask
            gradient = subtract_bytes(left, subtract_bytes(up, load_u64(row - stride - 1))) & mask
            plain_above += bits_of_bytes(zigzag_bytes(above))
            plain_left += bits_of_bytes(zigzag_bytes(left))
            plain_gradient += bits_of_bytes(zigzag_bytes(gradient))
            less_above += bits_of_bytes(zigzag_bytes(subtract_bytes(above, green_above)))
            less_left += bits_of_bytes(zigzag_bytes(subtract_bytes(left, green_left)))
            less_gradient += bits_of_bytes(zigzag_bytes(subtract_bytes(gradient, green_gradient)))
            if c == 0:
                green_above, green_left, green_gradient = above, left, gradient
    fewest, mode = _fewer(1 << 60, ABOVE, plain_above, less_above, ABOVE)
    fewest, mode = _fewer(fewest, mode, plain_left, less_left, LEFT)
    fewest, mode = _fewer(fewest, mode, plain_gradient, less_gradient, GRADIENT)
    return fewest, mode


@compiled
def _temporal_bits(
    tile: int, old: int, stride: int, plane_nbytes: int, n_channels: int, n_rows: int, mask: int
) -> tuple[int, int]:
    """The fewest bits of a tile, predicted from the tile ``old``, and what is added for the mode that needs them."""
    plain, plain_gradient, less, less_gradient = 0, 0, 0, 0
    for y in range(n_rows):
        green, green_gradient = unsigned(0), unsigned(0)
        for c in range(n_channels):
            row, earlier = tile + y * stride + c * plane_nbytes, old + y * stride + c * plane_nbytes
            change = subtract_bytes(load_u64(row), load_u64(earlier)) & mask
            gradient = subtract_bytes(change, subtract_bytes(load_u64(row - stride), load_u64(earlier - stride))) & mask
            plain += bits_of_bytes(zigzag_bytes(change))
            plain_gradient += bits_of_bytes(zigzag_bytes(gradient))
            less += bits_of_bytes(zigzag_bytes(subtract_bytes(change, green)))
            less_gradient += bits_of_bytes(zigzag_bytes(subtract_bytes(gradient, green_gradient)))
            if c == 0:
                green, green_gradient = change, gradient
    fewest, mode = _fewer(1 << 60, BEFORE, plain, less, BEFORE)
    fewest, mode = _fewer(fewest, mode, plain_gradient, less_gradient, BEFORE_GRADIENT)
    return fewest, mode


@inlined
def _best_before(
    tile: int, before: int, vectors: int, n_vectors: int, n_rows: int, mask: int, y: int, x: int, geometry: Geometry
) -> tuple[int, int, int]:
    """Fewest bits, mode behind ``N_SPATIAL``, and address of the tile of the frame before."""
    stride, plane_nbytes, n_channels = geometry.stride, geometry.plane_nbytes, geometry.n_channels
    corner = before + (y + 1) * stride + SIDE + x
    fewest, mode = _temporal_bits(tile, corner, stride, plane_nbytes, n_channels, n_rows, mask)
    old = corner
    if fewest > _DIFFERENT:
        for v in range(1, n_vectors):
            offset, status = vector_offset(N_SPATIAL + 4 * v, y, x, vectors, n_vectors, geometry)
            if status == OK:
                bits, kind = _temporal_bits(tile, corner + offset, stride, plane_nbytes, n_channels, n_rows, mask)
                if bits + _VECTOR_BITS < fewest:
                    fewest, mode, old = bits + _VECTOR_BITS, 4 * v + kind, corner + offset
    return fewest, mode, old


@compiled
def _write_residuals(mode: int, tile: int, old: int, residuals: int, geometry: Geometry, n_rows: int, mask: int) -> int:
    """Write the residuals of a tile, and turn its padding into its prediction."""
    stride, kind = geometry.stride, mode & ~1
    padded = n_rows < SIDE or mask != ~unsigned(0)
    for c in range(geometry.n_channels):
        row, earlier = tile + c * geometry.plane_nbytes, old + c * geometry.plane_nbytes
        for y in range(SIDE):
            here, up, at = load_u64(row), load_u64(row - stride), (y >> 2) * GROUP_STRIDE + SIDE * (y & 3)
            if kind == ABOVE:
                word = subtract_bytes(here, up)
            elif kind in (LEFT, GRADIENT):
                word = subtract_bytes(here, load_u64(row - 1))
                if kind == GRADIENT:
                    word = subtract_bytes(word, subtract_bytes(up, load_u64(row - stride - 1)))
            else:
                word = subtract_bytes(here, load_u64(earlier))
                if (kind - N_SPATIAL) & BEFORE_GRADIENT:
                    word = subtract_bytes(word, subtract_bytes(up, load_u64(earlier - stride)))
            word = word & mask if y < n_rows else unsigned(0)
            if mode & 1 and c:
                word = subtract_bytes(word, load_u64(residuals + at))
            store_u64(residuals + c * _PLANE + at, word)
            row += stride
            earlier += stride
    if padded:
        undo_tile(mode, tile, old, residuals, stride, geometry.plane_nbytes, geometry.n_channels)
    return OK
