"""Real frames to measure and test with: Atari games, played at random."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing

Frames = npt.NDArray[np.uint8]
RECORDED = Path(__file__).with_name("recorded")  # frames for a machine without the games, see gpu_folder.py


def environment(game: str) -> AtariPreprocessing:
    """A game with the preprocessing of DQN: ``u8[84, 84]``, grey, every fourth frame, the maximum of two."""
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    return AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", frameskip=1), frame_skip=4)


@lru_cache(maxsize=8)
def frames(game: str, n: int, seed: int) -> Frames:
    """Consecutive frames of a game under a random policy, episode after episode.

    Args:
        game: a name such as ``MsPacman``, of ``ALE/MsPacman-v5``.
        n: how many frames.
        seed: of the environment and of the policy.

    Returns:
        ``u8[n, 84, 84]``, preprocessed as for DQN: grey, every fourth frame of the game, the maximum of two. The array
        is read-only, since all callers in a process get the same one. A file of ``RECORDED`` with enough frames is
        read, else the game is played.

    Example:
        >>> frames("Pong", 2, seed=0).shape
        (2, 84, 84)
    """
    recorded = RECORDED / f"{game}-{seed}.npz"
    if recorded.exists():
        played: Frames = np.load(recorded)["frames"]
        if len(played) >= n:
            played.flags.writeable = False
            return played[:n]
    env = environment(game)
    rng = np.random.default_rng(seed)
    played = np.empty((n, 84, 84), np.uint8)
    actions = cast("gymnasium.spaces.Discrete", env.action_space).n
    observation, _ = env.reset(seed=seed)
    for i in range(n):
        played[i] = observation
        observation, _, terminated, truncated, _ = env.step(rng.integers(actions))
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()
    played.flags.writeable = False
    return played
