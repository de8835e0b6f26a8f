"""Real transitions as TorchRL's collectors give them: Atari games, played at random."""

from functools import lru_cache
from typing import cast

import gymnasium
import numpy as np
import torch
from atari_frames import environment
from tensordict import TensorDict

TIME_LIMIT = 700  # steps; so that episodes are truncated as well as terminated


@lru_cache(maxsize=8)
def atari_steps(game: str, n: int, seed: int, stack: int = 4) -> TensorDict:
    """Consecutive transitions of a game under a random policy, episode after episode.

    Args:
        game: a name such as ``MsPacman``, of ``ALE/MsPacman-v5``.
        n: how many transitions.
        seed: of the environment and of the policy.
        stack: how many frames an observation has; the first observation of an episode repeats one frame.

    Returns:
        A tensordict ``[n]`` with ``pixels`` and ``("next", "pixels")``, ``u8[n, stack, 84, 84]``, ``action``,
        ``episode``, and in ``next`` ``reward``, ``done``, ``terminated`` and ``truncated``, ``[n, 1]``. All callers in
        a process get the same one, and must not change it.

    Example:
        >>> atari_steps("Pong", 3, seed=0)["next", "pixels"].shape
        torch.Size([3, 4, 84, 84])
    """
    env = environment(game)
    rng = np.random.default_rng(seed)
    n_actions = cast("gymnasium.spaces.Discrete", env.action_space).n
    pixels = torch.empty((2, n, stack, 84, 84), dtype=torch.uint8)
    rewards, ends = torch.zeros(n, 1), torch.zeros(2, n, 1, dtype=torch.bool)
    actions, episodes = torch.from_numpy(rng.integers(n_actions, size=n)), torch.zeros(n, dtype=torch.int64)
    frames, began = [env.reset(seed=seed)[0]] * stack, 0
    for i in range(n):
        pixels[0, i] = torch.from_numpy(np.stack(frames))
        frame, reward, terminated, truncated, _ = env.step(actions[i].item())
        rewards[i], ends[0, i], ends[1, i] = float(reward), terminated, truncated or i - began == TIME_LIMIT
        frames = [*frames[1:], frame]
        pixels[1, i] = torch.from_numpy(np.stack(frames))
        if i + 1 < n:
            episodes[i + 1] = episodes[i] + ends[:, i].any()
        if ends[:, i].any():
            frames, began = [env.reset()[0]] * stack, i + 1
    env.close()
    following = {
        "pixels": pixels[1],
        "reward": rewards,
        "done": ends.any(0),
        "terminated": ends[0],
        "truncated": ends[1],
    }
    steps = {"pixels": pixels[0], "action": actions, "episode": episodes, "next": TensorDict(following, [n])}
    return TensorDict(steps, [n])
