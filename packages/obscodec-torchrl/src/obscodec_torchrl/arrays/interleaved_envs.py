"""How many environments take turns in a row of steps, as the steps show it."""

import numpy as np
import numpy.typing as npt

_MAX_ENVS = 64
_N_PLACES = 7  # that are looked at; the end of an episode may be at some of them


def interleaved_envs(observations: npt.NDArray[np.generic], following: npt.NDArray[np.generic]) -> int:
    """After how many steps each environment is on again, if environments take turns.

    It is the smallest distance at which most observations are what follows the one that is so many steps before.

    Args:
        observations: ``[n, *shape]``, of each step.
        following: ``[n, *shape]``, the next observation of each step.

    Returns:
        The number of environments; 1 if the steps show none, as with fewer than two steps of each.

    Example:
        >>> game = np.arange(40).reshape(20, 2)  # two environments, step by step
        >>> interleaved_envs(game.reshape(-1), game.reshape(-1) + 2)
        2
    """
    for distance in range(1, min(len(observations) // 2, _MAX_ENVS) + 1):
        places = np.linspace(0, len(observations) - distance - 1, _N_PLACES).astype(int).tolist()
        n_others = 0
        for place in places:
            n_others += not np.array_equal(observations[place + distance], following[place])
            if 2 * n_others > _N_PLACES:
                break
        else:
            return distance
    return 1
