"""How many environments take turns in a row of steps, as the steps show it."""

from __future__ import annotations

from typing import Any

import numpy as np

_MAX_TURNS = 64  # environments
_N_PLACES = 7  # that are looked at; the end of an episode may be at some of them


def turns(observations: Any, following: Any) -> int:
    """After how many steps each environment is on again, if environments take turns.

    It is the smallest distance at which most observations are what follows the one that is so many steps before.

    Args:
        observations: ``[n, *shape]``, of each step; an array of numpy, or of a library for GPUs.
        following: ``[n, *shape]``, the next observation of each step.

    Returns:
        The number of environments; 1 if the steps show none, as with fewer than two steps of each.

    Example:
        >>> game = np.arange(40).reshape(20, 2)  # two environments, step by step
        >>> turns(game.reshape(-1), game.reshape(-1) + 2)
        2
    """
    for distance in range(1, min(len(observations) // 2, _MAX_TURNS) + 1):
        places = np.linspace(0, len(observations) - distance - 1, _N_PLACES).astype(int).tolist()
        n_others = 0
        for place in places:
            n_others += not _equal(observations[place + distance], following[place])
            if 2 * n_others > _N_PLACES:
                break
        else:
            return distance
    return 1


def _equal(x: Any, y: Any) -> bool:
    return np.array_equal(x, y) if isinstance(x, np.ndarray) else bool((x == y).all())
