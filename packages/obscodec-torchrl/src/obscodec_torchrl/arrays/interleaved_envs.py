"""How many environments take turns in a batch of steps, as the steps themselves show."""

import numpy as np
import numpy.typing as npt
from obscodec import TensorArray

Rows = npt.NDArray[np.generic] | TensorArray

_MAX_ENVS = 64
_N_CHECKS = 7  # steps that are compared for each number of environments; an episode may end at some of them


def interleaved_envs(observations: Rows, following: Rows, n_each: int = 1) -> int:
    """After how many steps the first environment comes again, if environments take turns.

    If ``n`` environments take turns, ``observations[i + n]`` equals ``following[i]``, except where an episode ends. The
    result is the smallest ``n`` for which this holds at most of the steps that are compared.

    Args:
        observations: ``[n, *shape]``, of each step.
        following: ``[n, *shape]``, the next observation of each step.
        n_each: how many rows a step has, of which only the first one is compared.

    Returns:
        The number of environments; 1 if the steps show none, as with fewer than two steps of each.

    Example:
        >>> game = np.arange(40).reshape(20, 2)  # two environments, step by step
        >>> interleaved_envs(game.reshape(-1), game.reshape(-1) + 2)
        2
    """
    n_steps = len(observations) // n_each
    for n_envs in range(1, min(n_steps // 2, _MAX_ENVS) + 1):
        n_different = 0
        for i in np.linspace(0, n_steps - n_envs - 1, _N_CHECKS).astype(int).tolist():
            n_different += not np.array_equal(observations[(i + n_envs) * n_each], following[i * n_each])
            if 2 * n_different > _N_CHECKS:
                break
        else:
            return n_envs
    return 1
