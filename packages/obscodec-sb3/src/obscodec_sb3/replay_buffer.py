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

from obscodec_sb3.drawn import Drawn
from obscodec_sb3.lent import Lent

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
        prefetch: draw and decode the next batch while the learner works on this one. Then a batch does not hold what
            was added since the one before it was given out.
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
        prefetch: bool = False,
        threads: int | None = None,
    ) -> None:
        if isinstance(observation_space, spaces.Dict):
            raise obscodec.DTypeError(
                "CompressedReplayBuffer takes observations that are one array, got a dictionary space: use SB3's "
                "DictReplayBuffer"
            )
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
        self._is_discrete = isinstance(observation_space, spaces.Discrete)  # SB3 reshapes its observations
        self._prefetch = prefetch
        self._ahead: dict[int, Drawn] = {}  # by the size of the batch
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
        for drawn in self._ahead.values():
            drawn.wait()  # what it reads may be overwritten now
        obs, next_obs = self._checked(obs), self._checked(next_obs)
        if isinstance(self.observations, obscodec.TensorArray) and not self._is_discrete:
            obs, next_obs = Lent(obs), Lent(next_obs)  # type: ignore[assignment]
        super().add(obs, next_obs, action, reward, done, infos)

    def _as_row(self, name: str, value: Any) -> np.ndarray:
        array, shape = np.asarray(value), self._row_shapes[name]
        if array.shape != shape and array.shape != ():
            raise obscodec.ShapeError(f"expected {name} of shape {shape}, got {array.shape}")
        return array

    def _checked(self, obs: np.ndarray) -> np.ndarray:
        if self._is_discrete:
            obs = obs.reshape((self.n_envs, *self.obs_shape))
        return self._field.step(obs, self.n_envs)

    def reset(self) -> None:
        """Forget all transitions."""
        super().reset()
        self._ahead.clear()

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Random transitions; with ``prefetch``, those that were drawn when the batch before was given out."""
        if not self._prefetch or not self._reads_together:
            return super().sample(batch_size, env)
        ahead = self._ahead.pop(batch_size, None) or self._draw(batch_size)
        samples = ahead.samples(env)
        self._ahead[batch_size] = self._draw(batch_size)
        return samples

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """SB3's, with both observations read in one call: their frames are mostly the same, and decoded once."""
        if not self._reads_together:
            return super()._get_samples(batch_inds, env)
        return Drawn(self, batch_inds).samples(env)

    @property
    def _reads_together(self) -> bool:
        return isinstance(self.observations, obscodec.TensorArray) and not self.optimize_memory_usage

    def _draw(self, batch_size: int) -> Drawn:
        """A batch that is decoded in the background."""
        drawn = Drawn(self, np.random.randint(0, self.size(), size=batch_size))
        drawn.start()
        return drawn

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_ahead": {}}


def _zeros_like(array: obscodec.TensorArray, staging: obscodec.Staging) -> obscodec.TensorArray:
    return obscodec.TensorArray.zeros(array.ids.shape, array.store, staging)
