"""Half tiles, of which a frame has four columns at most: one group has all residuals, and the other none."""

from typing import Final

from obscodec.codecs.formats.images.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE, Geometry, row_offset
from obscodec.codecs.formats.images.tiles.colour_transform import PLANE_NBYTES
from obscodec.kernels import compiled, fill_zeros, inlined, load_u32, load_u64, store_u64, unsigned

_MOST_COLUMNS: Final = SIDE // 2  # of a half tile, so that a word has two rows
_N_PAIRS: Final = SIDE // 2  # of rows


@inlined
def is_half(x: int, geometry: Geometry) -> bool:
    """Whether the tiles whose first column is ``x`` are half tiles."""
    return geometry.width - x <= _MOST_COLUMNS


@compiled
def fold_tile(residuals: int, n_planes: int) -> None:
    """Move the rows of a half tile together, two in a word; ``residuals`` is the address of its groups."""
    for upper in range(residuals, residuals + n_planes * PLANE_NBYTES, PLANE_NBYTES):
        for k in range(_N_PAIRS):
            first, second = upper + row_offset(2 * k), upper + row_offset(2 * k + 1)
            store_u64(upper + SIDE * k, load_u32(first) | load_u64(second) << unsigned(32))
        fill_zeros(upper + GROUP_STRIDE, GROUP_NBYTES)


@compiled
def unfold_tile(residuals: int, n_planes: int) -> None:
    """The inverse of :func:`fold_tile`: what the frame has no columns for becomes 0, whatever the lower groups say."""
    for upper in range(residuals, residuals + n_planes * PLANE_NBYTES, PLANE_NBYTES):
        for k in range(_N_PAIRS - 1, -1, -1):
            pair = load_u64(upper + SIDE * k)
            store_u64(upper + row_offset(2 * k), pair & unsigned(0xFFFFFFFF))
            store_u64(upper + row_offset(2 * k + 1), pair >> unsigned(32))
