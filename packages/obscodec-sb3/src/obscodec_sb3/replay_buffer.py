"""CompressedReplayBuffer: Stable-Baselines3's ReplayBuffer with its observations in compressed arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import obscodec
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from obscodec_sb3.memory import batch_memory

Observations = np.ndarray | obscodec.TensorArray

_SMALL_ARRAYS = ("actions", "rewards", "dones", "timeouts")


class CompressedReplayBuffer(ReplayBuffer):
    """A replay buffer that keeps observations compressed, without loss.

    Gives the samples that ``ReplayBuffer`` gives: SB3's own ``add`` and ``sample`` run unchanged, on arrays that encode
    what is assigned and decode what is read.

    Args:
        buffer_size: the most transitions to keep, over all environments.
        observation_space: the space of one observation.
        action_space: the space of one action.
        device: where samples are put.
        n_envs: how many environments there are.
        optimize_memory_usage: keep next observations as the observations of the next step, as in ``ReplayBuffer``.
        handle_timeout_termination: tell truncated episodes from terminated ones, as in ``ReplayBuffer``.
        codec: the spec of the codec, such as ``"zstd:3"``; ``"auto"`` to find the best one on the first observations,
            if they have 1 KiB or more; None to keep them uncompressed.
        frame_stack: how observations are made of frames, None to find out.
        budget: for ``"auto"``, how long reading a batch of 256 may take, such as ``"1 ms/batch"``.
        threads: how many threads decode a batch, None for one for each usable processor.

    Raises:
        SpecError: ``codec`` names no codec, or ``budget`` is malformed.
        ShapeError: observations don't divide into such a frame stack.

    Example:
        >>> from stable_baselines3 import DQN
        >>> model = DQN("CnnPolicy", "PongNoFrameskip-v4", replay_buffer_class=CompressedReplayBuffer)  # doctest: +SKIP
    """

    observations: Observations  # type: ignore[assignment]
    next_observations: Observations  # type: ignore[assignment]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        codec: str | None = "auto",
        frame_stack: obscodec.FrameStack | None = None,
        budget: str | None = None,
        threads: int | None = None,
    ) -> None:
        # SB3 allocates its arrays in its constructor, so that one makes a buffer of a single row.
        super().__init__(
            n_envs, observation_space, action_space, device, n_envs, optimize_memory_usage, handle_timeout_termination
        )
        self.buffer_size = max(buffer_size // n_envs, 1)
        self._field = obscodec.Field(self.obs_shape, self.observations.dtype, codec, frame_stack, budget)
        self.observations = self._field.zeros(self.buffer_size, n_envs, threads)
        if isinstance(self.observations, obscodec.TensorArray):
            staging = obscodec.Staging(self.observations.store, n_envs)
            self.observations = _zeros_like(self.observations, staging)
            following: Observations = _zeros_like(self.observations, staging)
        else:
            following = np.zeros_like(self.observations)
        if not optimize_memory_usage:
            self.next_observations = following
        self._row_shapes = {name: getattr(self, name).shape[1:] for name in _SMALL_ARRAYS}
        for name, shape in self._row_shapes.items():
            setattr(self, name, np.zeros((self.buffer_size, *shape), getattr(self, name).dtype))

    @property
    def observation_store(self) -> obscodec.Store | None:
        """Where the observations are, None if they are not compressed; its ``stats()`` tells their memory."""
        return self.observations.store if isinstance(self.observations, obscodec.TensorArray) else None

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store one transition of each environment. A refused call changes nothing.

        Raises:
            ShapeError: an observation has another shape than the space.
            DTypeError: an observation would be changed by the dtype of the space; floats are rounded.
        """
        # SB3's own add stores one thing after the other, so what could be refused is refused before.
        action = self._as_row("actions", np.asarray(action).reshape((self.n_envs, self.action_dim)))
        reward, done = self._as_row("rewards", reward), self._as_row("dones", done)
        if self.handle_timeout_termination:
            self._as_row("timeouts", [info.get("TimeLimit.truncated", False) for info in infos])
        super().add(self._checked(obs), self._checked(next_obs), action, reward, done, infos)

    def _as_row(self, name: str, value: Any) -> np.ndarray:
        array, shape = np.asarray(value), self._row_shapes[name]
        if array.shape != shape and array.shape != ():
            raise obscodec.ShapeError(f"expected {name} of shape {shape}, got {array.shape}")
        return array

    def _checked(self, obs: np.ndarray) -> np.ndarray:
        if isinstance(self.observation_space, spaces.Discrete):
            obs = obs.reshape((self.n_envs, *self.obs_shape))
        return self._field.step(obs, self.n_envs)

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """SB3's, with both observations read in one call: their frames are mostly the same, and decoded once."""
        if isinstance(self.observations, np.ndarray) or self.optimize_memory_usage:
            return super()._get_samples(batch_inds, env)
        env_indices = np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))
        at = batch_inds, env_indices
        obs, next_obs = _read_together(self.observations, self.next_observations, at, self.device)
        done = self.dones[at] * (1 - self.timeouts[at])
        samples = (
            self._normalize_obs(obs, env),
            self.actions[at],
            self._normalize_obs(next_obs, env),
            done.reshape(-1, 1),
            self._normalize_reward(self.rewards[at].reshape(-1, 1), env),
        )
        # nobody else holds these arrays, so tensors share their memory
        return ReplayBufferSamples(*(th.as_tensor(array, device=self.device) for array in samples))


def _read_together(
    observations: obscodec.TensorArray, following: Observations, at: tuple[np.ndarray, np.ndarray], device: th.device
) -> np.ndarray:
    """``[2, batch, *obs_shape]``: both arrays at the same place, from the store that they share."""
    assert isinstance(following, obscodec.TensorArray)
    store = observations.store
    ids = np.stack([observations.ids[at], following.ids[at]])
    out = batch_memory(device).array(ids.size, store.layout)
    return store.read(ids.reshape(-1), out).reshape(*ids.shape, *store.layout.shape)


def _zeros_like(array: obscodec.TensorArray, staging: obscodec.Staging) -> obscodec.TensorArray:
    return obscodec.TensorArray.zeros(array.ids.shape, array.store, staging)
