"""Prediction, tile by tile: a residual is what a pixel has more than its prediction, modulo 256.

A tile has 8x8 pixels in all planes, and one **mode**: a kind of prediction, and in frames of three colours, in the low
bits, a colour transform. Kinds 0 to 2 predict from the pixel above, the pixel on the left, and left + above - above
left; from 3 on they also name a vector into the frame before.
"""

from typing import Final

from obscodec.codecs.formats.images.geometry import SIDE, Geometry, Scratch, row_offset
from obscodec.codecs.formats.images.tiles.colour_transform import (
    N_TRANSFORMS,
    PLANE_NBYTES,
    apply_best_transform,
    transform_bits,
)
from obscodec.codecs.formats.images.tiles.half_tiles import fold_tile, is_half
from obscodec.codecs.formats.images.words import add_bytes, bits_of_bytes, subtract_bytes, sum_bytes_up_to, zigzag_bytes
from obscodec.kernels import compiled, inlined, load_i8, load_u8, load_u64, store_u8, store_u64, unsigned
from obscodec.statuses import NO_SUCH_MODE, OK, OUTSIDE_PADDING

ABOVE: Final = 0
LEFT: Final = 1
GRADIENT: Final = 2
N_SPATIAL: Final = 3
BEFORE: Final = 0  # behind N_SPATIAL, and 2 for each vector
BEFORE_GRADIENT: Final = 1
MAX_VECTORS: Final = 8
N_MODES: Final = N_TRANSFORMS * (N_SPATIAL + 2 * MAX_VECTORS)
_DIFFERENT: Final = 48  # bits of a tile from which vectors are tried
_VECTOR_BITS: Final = 8  # that a vector must save


@compiled
def undo_tile(kind: int, target: int, before: int, residuals: int, geometry: Geometry) -> None:
    """Turn the residuals of a tile into pixels at the address ``target``; ``before`` is where its vector leads."""
    stride = geometry.stride
    for c in range(geometry.n_channels):
        plane, own = c * geometry.plane_nbytes, residuals + c * PLANE_NBYTES
        row, old = target + plane, before + plane
        above, corner, old_above = load_u64(row - stride), load_u8(row - stride - 1), load_u64(old - stride)
        for y in range(SIDE):
            word = load_u64(own + row_offset(y))
            if kind == ABOVE:
                above = add_bytes(above, word)
            elif kind == LEFT:
                above = sum_bytes_up_to(add_bytes(word, load_u8(row - 1)))
            elif kind == GRADIENT:
                left = load_u8(row - 1)
                above = add_bytes(above, sum_bytes_up_to(add_bytes(word, subtract_bytes(left, corner))))
                corner = left
            elif kind - N_SPATIAL & BEFORE_GRADIENT:
                here = load_u64(old)
                above = add_bytes(above, add_bytes(word, subtract_bytes(here, old_above)))
                old_above = here
            else:
                above = add_bytes(load_u64(old), word)
            store_u64(row, above)
            row += stride
            old += stride


@inlined
def vector_offset(kind: int, y: int, x: int, n_vectors: int, geometry: Geometry, scratch: Scratch) -> tuple[int, int]:
    """Where the vector of a kind leads a tile with the corner ``y, x``, as a distance in bytes; and a status."""
    offset, status = 0, OK
    if kind >= N_SPATIAL:
        vector = kind - N_SPATIAL >> 1
        if vector >= n_vectors:
            status = NO_SUCH_MODE
        else:
            down, right = load_i8(scratch.vectors + 2 * vector), load_i8(scratch.vectors + 2 * vector + 1)
            if not (0 <= y + down <= SIDE * (geometry.tiles_down - 1)):
                status = OUTSIDE_PADDING
            if not (0 <= x + right <= SIDE * (geometry.tiles_across - 1)):
                status = OUTSIDE_PADDING
            offset = down * geometry.stride + right
    return offset, status


@compiled
def apply_tiles(work: int, before: int, n_vectors: int, geometry: Geometry, scratch: Scratch) -> int:
    """Choose a mode for each tile of a frame, and compute its residuals.

    The padding of the frame becomes its prediction, which costs nothing: its residuals are 0. ``work`` is the address
    of the planes of the frame, ``before`` of those of the frame before. ``scratch`` has ``n_vectors`` vectors, none if
    there is no frame before, and gets the modes and the residuals. Returns the largest kind.
    """
    residuals, modes, n_bits, largest = scratch.residuals, scratch.modes, transform_bits(geometry.n_channels), 0
    for y in range(0, SIDE * geometry.tiles_down, SIDE):
        for x in range(0, SIDE * geometry.tiles_across, SIDE):
            n_rows, n_columns = min(SIDE, geometry.height - y), min(SIDE, geometry.width - x)
            mask = ~unsigned(0) >> unsigned(8 * (SIDE - n_columns))
            offset = (y + 1) * geometry.stride + SIDE + x
            tile, old, kind, fewest = work + offset, before + offset, ABOVE, 1 << 60
            if n_vectors:
                fewest, kind, old = _best_before(tile, before, n_vectors, n_rows, mask, y, x, geometry, scratch)
                kind += N_SPATIAL
            if fewest > 0:
                bits, spatial = _best_spatial(tile, n_rows, mask, geometry)
                if bits < fewest:
                    kind, old = spatial, before + offset
            largest = max(largest, kind)
            _write_residuals(kind, tile, old, residuals, geometry, n_rows, mask)
            mode = kind << n_bits
            if n_bits and fewest > 0:
                mode |= apply_best_transform(residuals)
            if is_half(x, geometry):
                fold_tile(residuals, geometry.n_channels)
            store_u8(modes, unsigned(mode))
            modes += 1
            residuals += PLANE_NBYTES * geometry.n_channels
    return largest


@inlined
def _fewer(fewest: int, best: int, plain: int, less: int, kind: int) -> tuple[int, int]:
    """The fewest bits and their kind, of some before and of a kind without and with residuals of green subtracted."""
    bits = min(plain, less)
    return (bits, kind) if bits < fewest else (fewest, best)


@compiled
def _best_spatial(tile: int, n_rows: int, mask: int, geometry: Geometry) -> tuple[int, int]:
    """The fewest bits that kinds without the frame before need for a tile, and the kind."""
    plain_above, plain_left, plain_gradient, less_above, less_left, less_gradient = 0, 0, 0, 0, 0, 0
    stride = geometry.stride
    for y in range(n_rows):
        green_above, green_left, green_gradient = unsigned(0), unsigned(0), unsigned(0)
        for c in range(geometry.n_channels):
            row = tile + y * stride + c * geometry.plane_nbytes
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
    fewest, kind = _fewer(1 << 60, ABOVE, plain_above, less_above, ABOVE)
    fewest, kind = _fewer(fewest, kind, plain_left, less_left, LEFT)
    fewest, kind = _fewer(fewest, kind, plain_gradient, less_gradient, GRADIENT)
    return fewest, kind


@compiled
def _temporal_bits(tile: int, old: int, n_rows: int, mask: int, geometry: Geometry) -> tuple[int, int]:
    """The fewest bits of a tile, predicted from the tile ``old``, and what is added for the kind that needs them."""
    plain, plain_gradient, less, less_gradient, stride = 0, 0, 0, 0, geometry.stride
    for y in range(n_rows):
        green, green_gradient = unsigned(0), unsigned(0)
        for c in range(geometry.n_channels):
            at = y * stride + c * geometry.plane_nbytes
            row, earlier = tile + at, old + at
            change = subtract_bytes(load_u64(row), load_u64(earlier)) & mask
            gradient = subtract_bytes(change, subtract_bytes(load_u64(row - stride), load_u64(earlier - stride))) & mask
            plain += bits_of_bytes(zigzag_bytes(change))
            plain_gradient += bits_of_bytes(zigzag_bytes(gradient))
            less += bits_of_bytes(zigzag_bytes(subtract_bytes(change, green)))
            less_gradient += bits_of_bytes(zigzag_bytes(subtract_bytes(gradient, green_gradient)))
            if c == 0:
                green, green_gradient = change, gradient
    fewest, kind = _fewer(1 << 60, BEFORE, plain, less, BEFORE)
    fewest, kind = _fewer(fewest, kind, plain_gradient, less_gradient, BEFORE_GRADIENT)
    return fewest, kind


@inlined
def _best_before(
    tile: int, before: int, n_vectors: int, n_rows: int, mask: int, y: int, x: int, geometry: Geometry, scratch: Scratch
) -> tuple[int, int, int]:
    """Fewest bits, kind behind ``N_SPATIAL``, and address of the tile of the frame before."""
    corner = before + (y + 1) * geometry.stride + SIDE + x
    fewest, best = _temporal_bits(tile, corner, n_rows, mask, geometry)
    old = corner
    if fewest > _DIFFERENT:
        for v in range(1, n_vectors):
            offset, status = vector_offset(N_SPATIAL + 2 * v, y, x, n_vectors, geometry, scratch)
            if status == OK:
                bits, kind = _temporal_bits(tile, corner + offset, n_rows, mask, geometry)
                if bits + _VECTOR_BITS < fewest:
                    fewest, best, old = bits + _VECTOR_BITS, 2 * v + kind, corner + offset
    return fewest, best, old


@compiled
def _write_residuals(
    kind: int, tile: int, old: int, residuals: int, geometry: Geometry, n_rows: int, mask: int
) -> None:
    """Write the residuals of a tile, and turn its padding into its prediction."""
    stride = geometry.stride
    for c in range(geometry.n_channels):
        row, earlier = tile + c * geometry.plane_nbytes, old + c * geometry.plane_nbytes
        for y in range(SIDE):
            here, up = load_u64(row), load_u64(row - stride)
            if kind == ABOVE:
                word = subtract_bytes(here, up)
            elif kind in (LEFT, GRADIENT):
                word = subtract_bytes(here, load_u64(row - 1))
                if kind == GRADIENT:
                    word = subtract_bytes(word, subtract_bytes(up, load_u64(row - stride - 1)))
            else:
                word = subtract_bytes(here, load_u64(earlier))
                if kind - N_SPATIAL & BEFORE_GRADIENT:
                    word = subtract_bytes(word, subtract_bytes(up, load_u64(earlier - stride)))
            word = word & mask if y < n_rows else unsigned(0)
            store_u64(residuals + c * PLANE_NBYTES + row_offset(y), word)
            row += stride
            earlier += stride
    if n_rows < SIDE or mask != ~unsigned(0):
        undo_tile(kind, tile, old, residuals, geometry)
