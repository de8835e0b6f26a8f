"""A sum tree: draws leaves in proportion to their weights, in a time that grows with the logarithm of their number.

``tree`` is ``f64[2 * n]``, with ``n`` a power of two: leaf ``k`` is at ``n + k``, node ``i`` is the sum of ``2 * i``
and ``2 * i + 1``, the root is at 1. Source: Schaul et al. 2016, Prioritized Experience Replay, appendix B.2.1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.kernels import compiled
from obscodec.segments import Ints

Floats = npt.NDArray[np.float64]


def new_tree(n_leaves: int) -> Floats:
    """A tree of at least ``n_leaves`` leaves, all 0."""
    return np.zeros(2 << max(n_leaves - 1, 0).bit_length())


@compiled
def set_leaves(tree: Floats, leaves: Ints, weights: Floats) -> None:
    """Give leaves ``i64[k]`` new weights; of a leaf that is named twice, the last one stays."""
    n = tree.size // 2
    for k in range(leaves.size):
        tree[n + leaves[k]] = weights[k]
    for k in range(leaves.size):
        node = (n + leaves[k]) // 2
        while node >= 1:
            tree[node] = tree[2 * node] + tree[2 * node + 1]  # never by differences, which add up rounding errors
            node //= 2


@compiled
def find_leaves(tree: Floats, at: Floats, leaves: Ints) -> None:
    """``leaves[k]``: where the sum of the weights, from the first leaf on, exceeds ``at[k]``. Its weight is not 0."""
    n = tree.size // 2
    for k in range(at.size):
        node, rest = 1, at[k]
        while node < n:
            left, right = tree[2 * node], tree[2 * node + 1]
            if right == 0 or (left != 0 and rest < left):
                node = 2 * node
            else:
                node, rest = 2 * node + 1, rest - left
        leaves[k] = node - n
