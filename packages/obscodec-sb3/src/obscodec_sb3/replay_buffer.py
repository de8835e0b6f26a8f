"""CompressedReplayBuffer: Stable-Baselines3's ReplayBuffer with its observations in compressed arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import obscodec
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

_MIN_IMAGE_NBYTES = 1024  # below, an observation is a vector, and what it takes uncompressed is little


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
        codec: the spec of the codec, such as ``"zstd:3"``; ``"default"`` is ``zstd:1`` for images, and no compression
            for observations under 1 KiB.
        threads: how many threads decode a batch, None for one for each usable processor.

    Raises:
        SpecError: ``codec`` names no codec.

    Example:
        >>> from stable_baselines3 import DQN
        >>> model = DQN("CnnPolicy", "PongNoFrameskip-v4", replay_buffer_class=CompressedReplayBuffer)  # doctest: +SKIP
    """

    observations: np.ndarray | obscodec.TensorArray  # type: ignore[assignment]
    next_observations: np.ndarray | obscodec.TensorArray  # type: ignore[assignment]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[np.ndarray],
        action_space: spaces.Space[np.ndarray],
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        codec: str = "default",
        threads: int | None = None,
    ) -> None:
        # SB3 allocates its arrays in its constructor, so that one makes a buffer of a single row.
        super().__init__(
            n_envs, observation_space, action_space, device, n_envs, optimize_memory_usage, handle_timeout_termination
        )
        layout = obscodec.Layout(self.obs_shape, self.observations.dtype)
        if codec == "default" and layout.nbytes >= _MIN_IMAGE_NBYTES:
            codec = "zstd:1"
        self.buffer_size = max(buffer_size // n_envs, 1)
        if codec != "default":
            self._compress_observations(obscodec.codec(codec, layout), threads)
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                setattr(self, name, np.zeros((self.buffer_size, *array.shape[1:]), array.dtype))

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
        # SB3's add stores the observations before it looks at the next ones, the rewards and the infos.
        steps = [self.pos]
        if self.optimize_memory_usage and self.buffer_size > 1:
            steps.append((self.pos + 1) % self.buffer_size)
        overwritten = [self._take_out(array, steps) for array in self._arrays()]
        try:
            super().add(obs, next_obs, action, reward, done, infos)
        except BaseException:
            for array, before in zip(self._arrays(), overwritten, strict=True):
                self._put_back(array, steps, before)
            raise
        for array, before in zip(self._arrays(), overwritten, strict=True):
            if isinstance(array, obscodec.TensorArray):
                array.store.release(before.reshape(-1))

    def _arrays(self) -> list[np.ndarray | obscodec.TensorArray]:
        observations = (
            [self.observations] if self.optimize_memory_usage else [self.observations, self.next_observations]
        )
        return [*observations, self.actions, self.rewards, self.dones, self.timeouts]

    @staticmethod
    def _take_out(array: np.ndarray | obscodec.TensorArray, steps: list[int]) -> np.ndarray:
        """What ``array`` has at ``steps``; tensors go out of the array, so that overwriting does not drop them."""
        if isinstance(array, np.ndarray):
            return array[steps]
        ids = array.ids[steps]
        array.ids[steps] = 0
        return ids

    @staticmethod
    def _put_back(array: np.ndarray | obscodec.TensorArray, steps: list[int], before: np.ndarray) -> None:
        if isinstance(array, np.ndarray):
            array[steps] = before
        else:
            array.store.release(array.ids[steps].reshape(-1))
            array.ids[steps] = before

    def _compress_observations(self, codec: obscodec.Codec, threads: int | None) -> None:
        shape = (self.buffer_size, self.n_envs)
        n_arrays = 1 if self.optimize_memory_usage else 2
        n_slots = (n_arrays * self.buffer_size + 2) * self.n_envs  # what add overwrites is dropped when it has ended
        store = obscodec.TensorStore(codec, n_slots, threads=threads)
        self.observations = obscodec.TensorArray.zeros(shape, store)
        if not self.optimize_memory_usage:
            self.next_observations = obscodec.TensorArray.zeros(shape, store)
