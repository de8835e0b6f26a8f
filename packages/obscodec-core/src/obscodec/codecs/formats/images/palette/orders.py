"""Orders: which colours to expect after others, from what each one costs after each.

The **rank** of a colour is its place in the order of a context. The order after one colour is a row of 256. That after
two colours begins with :data:`N_FIRST` colours of its own, and goes on as the order after the first one of the two.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.scratch import N_COLOURS
from obscodec.kernels import compiled, inlined, load_u8, load_u64, signed, trailing_zeros, unsigned
from obscodec.segments import Bytes, Ints

N_FIRST: Final = 16  # colours of the order after two colours
_LAST: Final = 1023  # the cost of colours that no dictionary has: greater than all others
_EVERY: Final = 0x0101010101010101
_HIGH: Final = 0x8080808080808080

Costs = npt.NDArray[np.int64]


class Orders(NamedTuple):
    """Orders of colours by what is around a pixel, by the addresses of their tables.

    A context is a place in the palette, or ``n`` for all places from ``n`` on.

    Attributes:
        n: how many places have orders of their own.
        above: ``u8[n + 1, 256]``, after the pixel above.
        before: ``u8[n + 1, 256]``, after a pixel of the frame before.
        ranks_above: ``u8[n + 1, 256]``, the rank of each place in ``above``.
        ranks_before: ``u8[n + 1, 256]``, in ``before``.
        above_left: ``u8[n + 1, n + 1, 16]``, the first ones after the pixel above and that on the left.
        before_above: ``u8[n + 1, n + 1, 16]``, after that of the frame before and that above.
    """

    n: int
    above: int
    before: int
    ranks_above: int
    ranks_before: int
    above_left: int
    before_above: int


def orders_of(above: Costs, left: Costs, before: Costs, alone: Costs) -> tuple[Orders, list[Bytes]]:
    """Orders by costs, and their tables: cheaper colours first, and if they cost the same, those of lower places.

    They are what each colour costs after each colour ``above``, on the ``left`` and ``before``, ``i64[n, n]``, and
    ``alone``, ``i64[n]``, if nothing is known.
    """
    n = len(alone)
    costs = [_padded(of, alone) for of in (above, left, before)]
    unknown: Ints = np.zeros(N_COLOURS, np.int64)
    unknown[:n] = alone
    firsts = [np.empty((n + 1, n + 1, N_FIRST), np.uint8) for _ in range(2)]
    first_after_two(costs[0], costs[1], unknown, firsts[0])
    first_after_two(costs[2], costs[0], unknown, firsts[1])
    rows = [np.argsort(of, axis=1, kind="stable") for of in (costs[0], costs[2])]
    ranks = [np.argsort(of, axis=1) for of in rows]
    tables = [*(of.astype(np.uint8) for of in (*rows, *ranks)), *firsts]
    return Orders(n, *(table.ctypes.data for table in tables)), tables


@cache
def built_in_orders() -> tuple[Orders, list[Bytes]]:
    """Orders by how far apart places are, for palettes that are sorted by brightness."""
    places = np.arange(N_COLOURS)
    apart = np.abs(places[:, None] - places)
    costs = 64 * apart // (apart + 4)
    return orders_of(costs, costs, costs, np.zeros(N_COLOURS, np.int64))


def _padded(costs: Costs, alone: Costs) -> Costs:
    """``i64[n + 1, 256]``: with colours that have no place yet, as contexts and as what follows."""
    n = len(alone)
    padded: Costs = np.full((n + 1, N_COLOURS), _LAST)
    padded[:n, :n] = costs
    padded[n, :n] = alone
    padded[n, n:] = 0  # such colours follow each other
    return padded


@compiled
def first_after_two(one: Costs, other: Costs, alone: Ints, firsts: Bytes) -> None:
    """Fill ``firsts``, ``u8[n + 1, n + 1, 16]``, with the cheapest colours after two, as if these were independent.

    ``one`` and ``other``, ``i64[n + 1, 256]``, are the costs after the first and after the second of the two, and
    ``alone``, ``i64[256]``, those of a colour alone.
    """
    best = np.empty(N_FIRST, np.int64)
    for a in range(len(one)):
        for b in range(len(one)):
            n_found = 0
            for x in range(N_COLOURS):
                # The place in the low bits makes all of them different.
                cost = (one[a, x] + other[b, x] - alone[x]) * N_COLOURS + x
                if n_found == N_FIRST and cost > best[N_FIRST - 1]:
                    continue
                if n_found < N_FIRST:
                    n_found += 1
                k = n_found - 1
                while k > 0 and best[k - 1] > cost:
                    best[k] = best[k - 1]
                    k -= 1
                best[k] = cost
            for k in range(N_FIRST):
                firsts[a, b, k] = best[k] & (N_COLOURS - 1)


@inlined
def place_among(firsts: int, colour: int) -> int:
    """Where a byte is among the 16 bytes at the address ``firsts``; 16 or more if it is not."""
    every = unsigned(colour) * unsigned(_EVERY)
    low, high = load_u64(firsts) ^ every, load_u64(firsts + 8) ^ every
    low_zeros = (low - unsigned(_EVERY)) & ~low & unsigned(_HIGH)
    high_zeros = (high - unsigned(_EVERY)) & ~high & unsigned(_HIGH)
    found = trailing_zeros(low_zeros) >> 3
    return found if found < 8 else 8 + (trailing_zeros(high_zeros) >> 3)


@inlined
def rank_after_two(colour: int, firsts: int, ranks: int) -> int:
    """The rank of a colour after two.

    The colours that ``firsts`` displaces from the first ranks of the row have the ranks which its own ones had there.
    """
    rank = place_among(firsts, colour)
    if rank >= N_FIRST:
        rank = signed(load_u8(ranks + colour))
        while rank < N_FIRST:
            rank = signed(load_u8(ranks + signed(load_u8(firsts + rank))))
    return rank


@compiled
def late_colour(rank: int, firsts: int, order: int) -> int:
    """The colour with a rank of 16 or more after two; the inverse of :func:`rank_after_two`."""
    colour = signed(load_u8(order + rank))
    place = place_among(firsts, colour)
    while place < N_FIRST:
        colour = signed(load_u8(order + place))
        place = place_among(firsts, colour)
    return colour
