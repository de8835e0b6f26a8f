"""Tiles of which a frame has few columns, at most four: one group has the residuals of all rows, and the other none."""

from typing import Final

from obscodec.codecs.formats.pred.geometry import GROUP_NBYTES, GROUP_STRIDE, GROUPS_OF_TILE, SIDE, Geometry
from obscodec.codecs.statuses import OK
from obscodec.kernels import compiled, fill_zeros, inlined, load_u32, load_u64, store_u64, unsigned

_FEW: Final = SIDE // 2


@inlined
def is_narrow(x: int, geometry: Geometry) -> bool:
    """Whether the tiles whose first column is ``x`` are narrow."""
    return geometry.width - x <= _FEW


@compiled
def fold_tile(residuals: int, n_planes: int) -> int:
    """Move the rows of a narrow tile together, two in a word; ``residuals`` is the address of its groups."""
    for plane in range(n_planes):
        upper = residuals + plane * GROUPS_OF_TILE * GROUP_STRIDE
        for pair in range(_FEW):
            first, second = _row(upper, 2 * pair), _row(upper, 2 * pair + 1)
            store_u64(upper + SIDE * pair, load_u32(first) | load_u64(second) << unsigned(32))
        fill_zeros(upper + GROUP_STRIDE, GROUP_NBYTES)
    return OK


@compiled
def unfold_tile(residuals: int, n_planes: int) -> int:
    """The inverse of :func:`fold_tile`: what the frame has no columns for becomes 0, whatever the other groups say."""
    for plane in range(n_planes):
        upper = residuals + plane * GROUPS_OF_TILE * GROUP_STRIDE
        for pair in range(_FEW - 1, -1, -1):
            both = load_u64(upper + SIDE * pair)
            store_u64(_row(upper, 2 * pair), both & unsigned(0xFFFFFFFF))
            store_u64(_row(upper, 2 * pair + 1), both >> unsigned(32))
    return OK


@inlined
def _row(upper: int, y: int) -> int:
    """Where a row of a plane of a tile is."""
    return upper + (y >> 2) * GROUP_STRIDE + SIDE * (y & 3)
