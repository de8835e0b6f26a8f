"""Models of SB3 that train in turns, so that all have the same minutes of a machine that others use, too."""

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import set_random_seed


def training_s(
    models: Sequence[BaseAlgorithm], n_steps: int, n_turns: int, not_counted: int
) -> npt.NDArray[np.float64]:
    """``f64[n_models, n_turns]``: the seconds in which each model trained ``n_steps`` steps in each round.

    All models have the same seeds in a round, so lossless buffers lead to the same games, batches and gradients. The
    order is another one in each round.

    Args:
        models: new ones, each with its own environments.
        n_steps: the steps of a model before another one goes on.
        n_turns: how many rounds to measure.
        not_counted: how many rounds come before, until all is loaded and compiled.
    """
    elapsed_s, rng = np.empty((len(models), not_counted + n_turns)), np.random.default_rng(0)
    for turn in range(not_counted + n_turns):
        for i in rng.permutation(len(models)):
            set_random_seed(turn)
            begin = time.perf_counter()
            models[i].learn(n_steps, reset_num_timesteps=False)
            elapsed_s[i, turn] = time.perf_counter() - begin
    return elapsed_s[:, not_counted:]
