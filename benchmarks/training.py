"""Steps per second of SB3's DQN with different replay buffers; the models take turns of some steps each."""

from typing import NamedTuple

import ale_py
import gymnasium
import numpy as np
import torch
from replay_buffers import BASELINE, KINDS
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack
from turns import training_s

_TURN = 250  # steps
_STARTS = 500  # steps before learning begins
_NOT_COUNTED = 1_000  # steps of each model, until all is loaded and compiled


class Training(NamedTuple):
    """How fast DQN trains with a buffer.

    Attributes:
        steps_per_s: the median of all turns.
        steps_x: the median ratio to SB3's buffer in the same round.
        minutes: that a million steps would take.
    """

    steps_per_s: float
    steps_x: float
    minutes: float


def training(names: list[str], game: str, size: int, n_steps: int, threads: int | None) -> dict[str, Training]:
    """Train with each of these buffers, SB3's among them, for ``n_steps`` steps after the first ones."""
    if threads is not None:
        torch.set_num_threads(threads)
    gymnasium.register_envs(ale_py)
    models = [_model(name, game, size, threads) for name in names]
    counted = dict(zip(names, training_s(models, _TURN, n_steps // _TURN, _NOT_COUNTED // _TURN), strict=True))
    return {name: _training(elapsed_s, counted[BASELINE.name]) for name, elapsed_s in counted.items()}


def _model(name: str, game: str, size: int, threads: int | None) -> DQN:
    kind = KINDS[name]
    options = {**(kind.sb3 or {})}
    optimized = options.pop("optimize_memory_usage", False)  # an argument of the model
    if kind.module == "obscodec_sb3":
        options["threads"] = threads
    return DQN(
        "CnnPolicy",
        VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", seed=0), n_stack=4),
        buffer_size=size,
        learning_starts=_STARTS,
        replay_buffer_class=kind.sb3_class,
        replay_buffer_kwargs=options,
        optimize_memory_usage=optimized,
        seed=0,
    )


def _training(elapsed_s: np.ndarray, baseline_s: np.ndarray) -> Training:
    steps_per_s = _TURN / float(np.median(elapsed_s))
    return Training(steps_per_s, float(np.median(baseline_s / elapsed_s)), 1e6 / steps_per_s / 60)
