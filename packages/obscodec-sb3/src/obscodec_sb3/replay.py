"""The compressed replay buffers."""

import inspect
import reprlib
from functools import partial
from typing import Any

import numpy as np
import obscodec
import torch as th
from obscodec.arguments import as_count, as_flag
from obscodec.arrays import Prefetcher
from obscodec.layout import as_numbers
from obscodec.runtime import says_memory_error
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her import HerReplayBuffer

from obscodec_sb3.assignable import check_assignable
from obscodec_sb3.base import CompressedBuffer


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
            the next one is always what the environment gave. Steps are drawn as SB3 draws them then: never the oldest.
        handle_timeout_termination: tell truncated episodes from terminated ones, as in ``ReplayBuffer``.
        codec: the spec of the codec, such as ``"zstd:3"``; ``"auto"`` to find the best one on the first observations,
            if they have ``min_nbytes`` or more; None to keep them uncompressed.
        min_nbytes: smaller observations are kept uncompressed; None for 1 KiB with ``"auto"``, for 0 with a codec.
        frame_stack: how observations are made of frames, None to find out.
        budget: for ``"auto"``, how long reading a batch of 256 may take, such as ``"1 ms/batch"``.
        decide_after: how many observations, next ones included, are looked at before the store decides, and kept as
            they are until then; None for 256, fewer if they are large.
        block_frames: how many frames are encoded together, None for what suits the codec.
        threads: how many threads decode a batch, None for half of the usable processors.
        buffer_device: where observations are decoded, ``"cpu"``, or the GPU that is ``device``, which has them in its
            memory, compressed: a batch never visits the host then. It needs obscodec-cupy.
        heap: for a GPU, ``"pinned"`` keeps what is compressed in host memory that it reads, in place of its own.
        prefetch: draw and decode the next batch while the learner works on this one. Then a batch does not hold what
            was added since the one before it was given out. A batch that ``VecNormalize`` normalizes is drawn when it
            is asked for, by the statistics of that moment.

    Raises:
        SpecError: ``codec`` names no codec, ``budget`` is malformed, or there is no such device or heap.
        BackendUnavailable: ``buffer_device`` can't be used; the text names what is missing.
        ShapeError: observations don't divide into such a frame stack, or a number is out of range.
        HeapFull: when steps are added or sampled, if the GPU has no more room for them; they go on waiting on the CPU.
        DTypeError: the observation space is a dictionary, or one in another; ``buffer_device`` is another GPU than
            ``device``; or an argument is something else than is asked for.
        ValueError: ``prefetch`` for a class that samples in its own way, such as ``HerReplayBuffer``.

    Example:
        >>> from stable_baselines3 import DQN
        >>> model = DQN("CnnPolicy", "PongNoFrameskip-v4", replay_buffer_class=CompressedReplayBuffer)  # doctest: +SKIP
    """

    _waiting = 6  # four steps: most observations are the next ones of the steps before, and wait once
    _plain_names: tuple[str, ...] = ()  # of the arrays that are not compressed, when the first step comes

    def __init__(self, *args: Any, prefetch: bool = False, **kwargs: Any) -> None:
        at = _place(type(self), "optimize_memory_usage")
        optimized = args[at] if at < len(args) else kwargs.pop("optimize_memory_usage", False)
        super().__init__(*args[:at], *[False] * (at < len(args)), *args[at + 1 :], **kwargs)
        stock: Any = super()
        self._leaves_oldest_out = optimized and stock.sample.__func__ is ReplayBuffer.sample
        self._prefetch, self._ahead = as_flag("prefetch", prefetch), Prefetcher()
        samples = {stock.sample.__module__, type(self).sample.__module__}
        if prefetch and not (self._hands_on and samples == {ReplayBuffer.__module__, __name__}):
            raise ValueError(f"prefetch needs SB3's own sample, {type(self).__name__} has another: leave prefetch out")

    @says_memory_error
    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store one transition of each environment. A refused call changes nothing.

        Raises:
            ShapeError: an observation has another shape than the space.
            DTypeError: an observation would be changed by the dtype of the space; floats are rounded. Or something is
                no array of numbers, or has a mask or a unit, which would be lost.
            FieldError: an observation lacks a key of the space.
        """
        # SB3's own add stores one thing after the other, so what could be refused is refused before.
        action = as_numbers(action)
        shape = (self.n_envs, self.action_dim)
        if action.size != self.n_envs * self.action_dim:
            raise obscodec.ShapeError(f"expected actions of shape {shape}, got {action.shape}")
        action = action.reshape(shape)
        for name, value in (("actions", action), ("rewards", reward), ("dones", done)):
            check_assignable(name, value, getattr(self, name))
        if self.handle_timeout_termination:
            try:
                n_infos = len([info.get("TimeLimit.truncated") for info in infos])
            except (AttributeError, TypeError):
                found = reprlib.repr(infos)
                raise obscodec.DTypeError(f"infos must be a list of a dict for each environment, got {found}") from None
            if n_infos != self.n_envs:
                raise obscodec.ShapeError(f"expected infos of {self.n_envs} environments, got {n_infos}")
        obs, next_obs = self._step(obs), self._step(next_obs)
        self._arrays.reserve(self.pos)
        pos, full, arrays = self.pos, self.full, vars(self)
        rows = [arrays[name][pos].copy() for name in self._plain_names or self._find_plain_names()]
        try:
            super().add(obs, next_obs, action, reward, done, infos)
        except BaseException:
            self.pos, self.full = pos, full
            self._arrays.forget(pos)
            for name, row in zip(self._plain_names, rows, strict=True):
                arrays[name][pos] = row
            raise

    def reset(self) -> None:
        """Forget all transitions."""
        super().reset()
        self._ahead.clear()

    @says_memory_error
    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Random transitions; with ``prefetch``, those that were drawn when the batch before was given out.

        Raises:
            DTypeError: ``batch_size`` is no number, or ``env`` can't normalize.
            ShapeError: ``batch_size`` is negative.
        """
        batch_size = as_count("batch_size", batch_size, 0)
        if env is not None and not hasattr(env, "normalize_obs"):
            raise obscodec.DTypeError(f"env must be a VecNormalize or None, got {type(env).__name__}")
        with self._arrays.sampling():
            if not self._prefetch or env is not None:
                return self._draw(batch_size, env)
            stream = self.device.type == "cuda" and th.cuda.current_stream(self.device)  # where a GPU decodes ahead
            read = partial(self._draw, batch_size)
            return self._ahead.next((batch_size, stream), partial(self._deferred, read)).result()

    def _find_plain_names(self) -> tuple[str, ...]:
        """Names of the arrays ``[buffer_size, n_envs, ...]`` that are not compressed: actions, rewards and so on."""
        shape, arrays = (self.buffer_size, self.n_envs), vars(self).items()
        self._plain_names = tuple(name for name, x in arrays if isinstance(x, np.ndarray) and x.shape[:2] == shape)
        return self._plain_names

    def _draw(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        if self._leaves_oldest_out and self.full:  # as SB3 does when it optimizes its memory usage
            steps = (np.random.randint(1, self.buffer_size, size=batch_size) + self.pos) % self.buffer_size
            return self._get_samples(steps, env=env)
        return super().sample(batch_size, env=env)


class CompressedDictReplayBuffer(CompressedReplayBuffer, DictReplayBuffer):
    """``DictReplayBuffer`` with compressed observations; see :class:`CompressedReplayBuffer`.

    ``codec``, ``frame_stack`` and ``budget`` are for all keys, or a dictionary with those of some; the others have the
    defaults. A key that is not in the space raises ``FieldError``.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> space = spaces.Dict(image=spaces.Box(0, 255, (4, 84, 84), np.uint8), vector=spaces.Box(-1, 1, (3,)))
        >>> codecs = {"image": "delta-rle", "vector": None}
        >>> buffer = CompressedDictReplayBuffer(1_000_000, space, spaces.Discrete(2), codec=codecs)
        >>> buffer.observations["image"].shape
        (1000000, 1, 4, 84, 84)
    """


class CompressedNStepReplayBuffer(CompressedReplayBuffer, NStepReplayBuffer):
    """``NStepReplayBuffer`` with compressed observations; see :class:`CompressedReplayBuffer`.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        >>> buffer = CompressedNStepReplayBuffer(1_000_000, space, spaces.Discrete(2), n_steps=5, gamma=0.9)
        >>> buffer.n_steps
        5
    """


class CompressedHerReplayBuffer(CompressedReplayBuffer, HerReplayBuffer):
    """``HerReplayBuffer`` with compressed observations, without ``prefetch``; see :class:`CompressedDictReplayBuffer`.

    Environments compute rewards from goals on the CPU, so these are decoded there.

    Example:
        >>> from stable_baselines3 import SAC
        >>> env = "a goal environment"
        >>> model = SAC("MultiInputPolicy", env, replay_buffer_class=CompressedHerReplayBuffer)  # doctest: +SKIP
    """

    _looks_at = ("achieved_goal", "desired_goal")

    def _get_real_samples(self, *args: Any) -> Any:
        return self._together(super()._get_real_samples, *args)

    def _get_virtual_samples(self, *args: Any) -> Any:
        return self._together(super()._get_virtual_samples, *args)


def _place(buffer_class: type, name: str) -> int:
    """Where a constructor takes ``name`` among the positional arguments, which it may hand on to that of a base."""
    parameters = (list(inspect.signature(base).parameters) for base in buffer_class.__mro__)
    return next(names.index(name) for names in parameters if name in names)
