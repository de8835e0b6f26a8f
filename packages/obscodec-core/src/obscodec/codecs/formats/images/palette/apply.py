"""The ranks of tiles of places in a palette: a residual is a rank, as if this were a zigzag."""

from math import log2
from typing import Final, NamedTuple

import numpy as np

from obscodec.codecs.formats.images.geometry import GROUP_STRIDE, GROUPS_OF_TILE, SIDE, Geometry, Scratch, row_offset
from obscodec.codecs.formats.images.palette.orders import N_FIRST, Orders, rank_after_two
from obscodec.codecs.formats.images.palette.undo import ABOVE, ABOVE_LEFT, BEFORE, BEFORE_ABOVE, is_after_two, undo_tile
from obscodec.codecs.formats.images.scratch import N_COLOURS
from obscodec.codecs.formats.images.tiles import N_SPATIAL, fold_tile, is_half, vector_offset
from obscodec.codecs.formats.images.words import unzigzag_bytes
from obscodec.kernels import compiled, inlined, load_u8, load_u64, signed, store_u8, store_u64, unsigned
from obscodec.statuses import OK

_FINE: Final = 16  # costs are in sixteenths of a bit
_COSTS: Final = np.array([0, *(round(_FINE * (2.2 + 1.3 * log2(rank))) for rank in range(1, N_COLOURS))])
_VECTOR_COST: Final = 40  # that a vector must save
_DIFFERENT: Final = 160  # the cost of a tile from which vectors are tried
_MANY: Final = 1 << 60  # more than any tile costs


class Tile(NamedTuple):
    """A tile: its address in a plane with rows of ``stride`` bytes, and how much of it lies in the frame."""

    at: int
    stride: int
    n_rows: int
    n_columns: int


@compiled
def apply_tiles(work: int, before: int, n_vectors: int, geometry: Geometry, orders: Orders, scratch: Scratch) -> int:
    """Choose a mode for each tile of a frame, write it and the ranks of the pixels into ``scratch``; the largest mode.

    ``work`` and ``before`` are as in ``apply_tiles`` of ``tiles``, as is what becomes of the padding.
    """
    stride, largest, residuals, modes = geometry.stride, 0, scratch.residuals, scratch.modes
    for y in range(0, SIDE * geometry.tiles_down, SIDE):
        for x in range(0, SIDE * geometry.tiles_across, SIDE):
            corner = (y + 1) * stride + SIDE + x
            tile = Tile(work + corner, stride, min(SIDE, geometry.height - y), min(SIDE, geometry.width - x))
            kept, tried = scratch.ranks, scratch.ranks + SIDE * SIDE
            mode, fewest, old = ABOVE_LEFT, _MANY, before + corner
            if n_vectors:
                mode, fewest, old, kept, tried = _best_before(tile, old, n_vectors, y, x, geometry, orders, scratch)
            for one in (ABOVE_LEFT, ABOVE):
                if fewest > 0:
                    cost = _cost(one, tile, tile.at, tried, fewest, orders)
                    if cost < fewest:
                        mode, fewest = one, cost
                        kept, tried = tried, kept
            _write_residuals(mode, tile, old, kept, residuals, orders)
            if is_half(x, geometry):
                fold_tile(residuals, 1)
            store_u8(modes, unsigned(mode))
            largest = max(largest, mode)
            modes += 1
            residuals += GROUPS_OF_TILE * GROUP_STRIDE
    return largest


@inlined
def _best_before(
    tile: Tile, corner: int, n_vectors: int, y: int, x: int, geometry: Geometry, orders: Orders, scratch: Scratch
) -> tuple[int, int, int, int, int]:
    """The best mode after the frame before, its cost, where it leads, and the addresses of its ranks and of others.

    The vector is the one that is best without the pixel above.
    """
    kept, tried, mode, extra, old = scratch.ranks, scratch.ranks + SIDE * SIDE, N_SPATIAL + BEFORE, 0, corner
    fewest = _cost(mode, tile, old, kept, _MANY, orders)
    if fewest > _DIFFERENT:
        for v in range(1, n_vectors):
            one = N_SPATIAL + 2 * v + BEFORE
            offset, status = vector_offset(one, y, x, n_vectors, geometry, scratch)
            if status == OK:
                most = fewest - _VECTOR_COST
                cost = _cost(one, tile, corner + offset, tried, most, orders)
                if cost < most:
                    mode, fewest, old, extra = one, cost + _VECTOR_COST, corner + offset, _VECTOR_COST
                    kept, tried = tried, kept
        one, most = mode - BEFORE + BEFORE_ABOVE, fewest - extra
        cost = _cost(one, tile, old, tried, most, orders)
        if cost < most:
            mode, fewest = one, cost + extra
            kept, tried = tried, kept
    return mode, fewest, old, kept, tried


@compiled
def _cost(mode: int, tile: Tile, old: int, ranks: int, most: int, orders: Orders) -> int:
    """Write the ranks of a tile in a mode, and return what they cost; ``most`` or more, if it is as much."""
    n, is_temporal, cost = orders.n, mode >= N_SPATIAL, 0
    after_two = is_after_two(mode)
    table = orders.ranks_before if is_temporal else orders.ranks_above
    firsts = orders.before_above if is_temporal else orders.above_left
    to_first, to_second = (old - tile.at, -tile.stride) if is_temporal else (-tile.stride, -1)
    for y in range(tile.n_rows):
        for x in range(tile.n_columns):
            at = tile.at + y * tile.stride + x
            colour, context = signed(load_u8(at)), min(n, signed(load_u8(at + to_first)))
            own = table + N_COLOURS * context
            if after_two:
                second = min(n, signed(load_u8(at + to_second)))
                rank = rank_after_two(colour, firsts + N_FIRST * (context * (n + 1) + second), own)
            else:
                rank = signed(load_u8(own + colour))
            store_u8(ranks + SIDE * y + x, unsigned(rank))
            cost += _COSTS[rank]
        if cost >= most:
            break
    return cost


@compiled
def _write_residuals(mode: int, tile: Tile, old: int, ranks: int, residuals: int, orders: Orders) -> None:
    """Write the ranks of a tile as residuals, and turn its padding into its prediction."""
    mask = ~unsigned(0) >> unsigned(8 * (SIDE - tile.n_columns))
    for y in range(SIDE):
        word = load_u64(ranks + SIDE * y) & mask if y < tile.n_rows else unsigned(0)
        store_u64(residuals + row_offset(y), unzigzag_bytes(word))
    if tile.n_rows < SIDE or tile.n_columns < SIDE:
        undo_tile(mode, tile.at, old, residuals, tile.stride, orders)
