"""Drawn: a batch whose transitions are chosen, and whose observations are decoded now or in the background."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import obscodec
import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize


class Drawn:
    """Transitions of a buffer, as they are when it is made.

    Args:
        buffer: a buffer whose observations and next observations share their stores.
        batch_inds: ``i64[batch]``, the steps. The environments are drawn here, as SB3 does.

    Attributes:
        reading: both observations.
    """

    def __init__(self, buffer: ReplayBuffer, batch_inds: np.ndarray) -> None:
        at = batch_inds, np.random.randint(0, high=buffer.n_envs, size=(len(batch_inds),))
        obs, following = _by_key(buffer.observations), _by_key(buffer.next_observations)
        self.reading = obscodec.Reading(
            {key: (array, following[key]) for key, array in obs.items()}, at, partial(_batch_array, buffer.device)
        )
        self._buffer = buffer
        self._action, self._reward = buffer.actions[at], buffer.rewards[at].reshape(-1, 1)
        self._done = (buffer.dones[at] * (1 - buffer.timeouts[at])).reshape(-1, 1)

    def samples(self, env: VecNormalize | None) -> ReplayBufferSamples | DictReplayBufferSamples:
        """The batch, on the device of the buffer, normalized by ``env`` if that is given."""
        is_dict = isinstance(self._buffer.observations, dict)
        pairs: dict[str, Any] = self.reading.result()
        if env is None:  # one copy to a GPU for both: torch knows memory that it pinned by where it begins
            pairs = {key: self._tensor(pair) for key, pair in pairs.items()}
        obs, next_obs = ({key: pair[i] for key, pair in pairs.items()} for i in (0, 1))
        if env is not None:
            both = [_by_key(env.normalize_obs(x if is_dict else x[""])) for x in (obs, next_obs)]
            obs, next_obs = ({key: self._tensor(array) for key, array in x.items()} for x in both)
        rest = self._buffer._normalize_reward(self._reward, env)
        action, done, reward = self._tensor(self._action), self._tensor(self._done), self._tensor(rest)
        if is_dict:
            return DictReplayBufferSamples(obs, action, next_obs, done, reward)
        return ReplayBufferSamples(obs[""], action, next_obs[""], done, reward)

    def _tensor(self, array: np.ndarray) -> th.Tensor:
        """Nobody else holds these arrays, so tensors share their memory."""
        return self._buffer.to_torch(array, copy=False)


def _by_key(observations: Any) -> dict[str, Any]:
    return observations if isinstance(observations, dict) else {"": observations}


def _batch_array(device: th.device, n: int, layout: obscodec.Layout) -> np.ndarray:
    """``[n, *shape]`` to decode into: for a GPU memory that torch has pinned, else that of all buffers."""
    if device.type != "cuda":
        return obscodec.BATCH_MEMORY.array(n, layout)
    return layout.tensors(th.empty((n, layout.nbytes), dtype=th.uint8, pin_memory=True).numpy())
