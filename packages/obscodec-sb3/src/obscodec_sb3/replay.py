"""CompressedReplayBuffer, and what the other compressed replay buffers have of it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import obscodec
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize

from obscodec_sb3.base import CompressedBuffer
from obscodec_sb3.drawn import Drawn

_SMALL_ARRAYS = ("actions", "rewards", "dones", "timeouts")
_OPTIMIZE = "optimize_memory_usage"


class CompressedReplayBuffer(CompressedBuffer, ReplayBuffer):
    """A replay buffer that keeps observations compressed, without loss.

    Gives the samples that ``ReplayBuffer`` gives: SB3's own ``add`` and ``sample`` run unchanged, on arrays that encode
    what is assigned and decode what is read.

    Args:
        buffer_size: the most transitions to keep, over all environments.
        observation_space: the space of one observation.
        action_space: the space of one action.
        device: where samples are put.
        n_envs: how many environments there are.
        optimize_memory_usage: goes with everything. Both observations share their frames anyway, so both are kept, and
            the next one is always what the environment gave. Steps are drawn as SB3 draws them.
        handle_timeout_termination: tell truncated episodes from terminated ones, as in ``ReplayBuffer``.
        codec: the spec of the codec, such as ``"zstd:3"``; ``"auto"`` to find the best one on the first observations,
            if they have 1 KiB or more; None to keep them uncompressed.
        frame_stack: how observations are made of frames, None to find out.
        budget: for ``"auto"``, how long reading a batch of 256 may take, such as ``"1 ms/batch"``.
        threads: how many threads decode a batch, None for half of the usable processors.
        prefetch: draw and decode the next batch while the learner works on this one. Then a batch does not hold what
            was added since the one before it was given out.

    Raises:
        SpecError: ``codec`` names no codec, or ``budget`` is malformed.
        ShapeError: observations don't divide into such a frame stack.
        DTypeError: the observation space is a dictionary.

    Example:
        >>> from stable_baselines3 import DQN
        >>> model = DQN("CnnPolicy", "PongNoFrameskip-v4", replay_buffer_class=CompressedReplayBuffer)  # doctest: +SKIP
    """

    _staged = True

    def __init__(self, *args: Any, prefetch: bool = False, **kwargs: Any) -> None:
        stock, self._prefetch, given = self._stock, prefetch, list(args)
        self._ahead: dict[int, Drawn] = {}  # by the size of the batch
        self._reads_together = stock._get_samples in (ReplayBuffer._get_samples, DictReplayBuffer._get_samples)
        if prefetch and not (self._reads_together and stock.sample in (ReplayBuffer.sample, DictReplayBuffer.sample)):
            raise ValueError(f"prefetch needs SB3's own sample, {stock.__name__} has another one: leave prefetch out")
        optimized = kwargs.pop(_OPTIMIZE, False)
        at = _place(stock, _OPTIMIZE)
        if at < len(given):
            optimized, given[at] = given[at], False
        super().__init__(*given, **kwargs)
        self._row_shapes = {name: getattr(self, name).shape[1:] for name in _SMALL_ARRAYS}
        self._leaves_oldest_out = optimized and self._reads_together and stock.sample is ReplayBuffer.sample

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store one transition of each environment. A refused call changes nothing.

        Raises:
            ShapeError: an observation has another shape than the space.
            DTypeError: an observation would be changed by the dtype of the space; floats are rounded.
        """
        # SB3's own add stores one thing after the other, so what could be refused is refused before.
        action = self._checked("actions", np.asarray(action).reshape((self.n_envs, self.action_dim)))
        reward, done = self._checked("rewards", reward), self._checked("dones", done)
        if self.handle_timeout_termination:
            self._checked("timeouts", [info.get("TimeLimit.truncated", False) for info in infos])
        for drawn in self._ahead.values():
            drawn.reading.wait()  # what it reads may be overwritten now
        super().add(self._step(obs), self._step(next_obs), action, reward, done, infos)

    def reset(self) -> None:
        """Forget all transitions."""
        super().reset()
        self._ahead.clear()

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Random transitions; with ``prefetch``, those that were drawn when the batch before was given out."""
        with self._measured():
            if self._prefetch:
                samples = (self._ahead.pop(batch_size, None) or self._draw(batch_size)).samples(env)
                self._ahead[batch_size] = self._draw(batch_size)
                self._ahead[batch_size].reading.start()
                return samples
            if self._leaves_oldest_out:
                return self._get_samples(self._steps(batch_size), env)
            return super().sample(batch_size, env)

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> Any:
        """SB3's, with both observations read in one call: their frames are mostly the same, and decoded once."""
        return Drawn(self, batch_inds).samples(env) if self._reads_together else super()._get_samples(batch_inds, env)

    def _draw(self, batch_size: int) -> Drawn:
        return Drawn(self, self._steps(batch_size))

    def _steps(self, n: int) -> np.ndarray:
        """The steps that SB3 draws; it never draws the oldest one when it optimizes its memory usage."""
        if self._leaves_oldest_out and self.full and self.buffer_size > 1:
            return (np.random.randint(1, self.buffer_size, size=n) + self.pos) % self.buffer_size
        return np.random.randint(0, self.size(), size=n)

    def _checked(self, name: str, value: Any) -> np.ndarray:
        shape = self._row_shapes[name]
        if type(value) is np.ndarray and value.shape == shape:
            return value
        array = np.asarray(value)
        if array.shape not in (shape, ()):
            raise obscodec.ShapeError(f"expected {name} of shape {shape}, got {array.shape}")
        return array

    def __getstate__(self) -> Any:
        return super().__getstate__() | {"_ahead": {}}  # type: ignore[operator]


def _place(buffer_class: type, name: str) -> int:
    """Where a constructor takes ``name`` among the positional arguments, which it may hand on to that of a base."""
    for base in buffer_class.__mro__:
        names = list(inspect.signature(vars(base).get("__init__", object)).parameters)
        if name in names:
            return names.index(name) - 1
    raise TypeError(f"no constructor of {buffer_class.__name__} takes {name}")
