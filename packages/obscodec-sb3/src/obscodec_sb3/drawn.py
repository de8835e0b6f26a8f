"""Drawn: a batch whose transitions are chosen, and whose observations are decoded now or in the background."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import obscodec
import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from obscodec_sb3.memory import batch_memory

if TYPE_CHECKING:
    from obscodec_sb3.replay_buffer import CompressedReplayBuffer


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="obscodec-sb3")


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but not its thread
    os.register_at_fork(after_in_child=_background.cache_clear)


class Drawn:
    """Transitions of a buffer, as they are when it is made.

    Args:
        buffer: a buffer whose observations and next observations are in one store.
        batch_inds: ``i64[batch]``, the steps. The environments are drawn here, as SB3 does.
    """

    def __init__(self, buffer: CompressedReplayBuffer, batch_inds: np.ndarray) -> None:
        at = batch_inds, np.random.randint(0, high=buffer.n_envs, size=(len(batch_inds),))
        observations, following = buffer.observations, buffer.next_observations
        assert isinstance(observations, obscodec.TensorArray)
        assert isinstance(following, obscodec.TensorArray)
        self._buffer = buffer
        self._store = observations.store
        self._ids = np.stack([observations.ids[at], following.ids[at]])
        self._action, self._reward = buffer.actions[at], buffer.rewards[at].reshape(-1, 1)
        self._done = (buffer.dones[at] * (1 - buffer.timeouts[at])).reshape(-1, 1)
        self._future: Future[np.ndarray] | None = None
        self._process = os.getpid()

    def start(self) -> None:
        """Decode in the background. What is overwritten in the meantime must :meth:`wait`."""
        self._future = _background().submit(self._decode)

    def wait(self) -> None:
        """Wait until the observations are decoded."""
        if (future := self._pending()) is not None:
            future.exception()

    def _pending(self) -> Future[np.ndarray] | None:
        """What decodes in the background; a forked process has nothing of it but the object."""
        return self._future if self._process == os.getpid() else None

    def samples(self, env: VecNormalize | None) -> ReplayBufferSamples:
        """The batch, on the device of the buffer, normalized by ``env`` if that is given."""
        future = self._pending()
        obs, next_obs = self._decode() if future is None else future.result()
        arrays = (
            self._buffer._normalize_obs(obs, env),
            self._action,
            self._buffer._normalize_obs(next_obs, env),
            self._done,
            self._buffer._normalize_reward(self._reward, env),
        )
        # nobody else holds these arrays, so tensors share their memory
        return ReplayBufferSamples(*(th.as_tensor(array, device=self._buffer.device) for array in arrays))

    def _decode(self) -> np.ndarray:
        """``[2, batch, *obs_shape]``: the observations and the next ones."""
        out = batch_memory(self._buffer.device).array(self._ids.size, self._store.layout)
        return self._store.read(self._ids.reshape(-1), out).reshape(*self._ids.shape, *self._store.layout.shape)
