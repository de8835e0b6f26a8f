"""The compressed rollout buffers."""

import inspect
from collections.abc import Generator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import torch as th
from gymnasium import spaces
from obscodec.arguments import check_kind
from obscodec.arrays import OPEN_READ, DeferredRead
from obscodec.buffers import LOOK_EVERY
from obscodec.segments import Ints
from obscodec.state import State, array_of, check_range
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from obscodec_sb3.base import CompressedBuffer, each
from obscodec_sb3.signatures import PrefetchKeywords


class CompressedRolloutBuffer(CompressedBuffer, RolloutBuffer):
    """A rollout buffer that keeps observations compressed, without loss.

    It returns the same minibatches as ``RolloutBuffer``: SB3's ``get`` swaps axes of ids, and each minibatch is decoded
    when its turn comes. The store lives from rollout to rollout, with all that it has learned about the observations.

    It takes the arguments of ``RolloutBuffer``, and ``codec``, ``min_nbytes``, ``frame_stack``, ``budget``,
    ``decide_after``, ``block_frames``, ``threads``, ``buffer_device`` and ``heap`` of :class:`CompressedReplayBuffer`;
    ``max_bytes`` only together with ``spill``, since a rollout needs all its steps. With ``prefetch``, the next
    minibatch is decoded while the learner works on one. Without a ``budget``, it is ``"fast"``: a rollout is small, and
    each of its steps is written and read a few times, then overwritten. A mapping with None lets ``auto`` try all.

    Example:
        >>> from stable_baselines3 import PPO
        >>> model = PPO("MlpPolicy", "CartPole-v1", rollout_buffer_class=CompressedRolloutBuffer)
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            buffer_size: int,
            observation_space: spaces.Space[Any],
            action_space: spaces.Space[Any],
            device: th.device | str = "auto",
            gae_lambda: float = 1,
            gamma: float = 0.99,
            n_envs: int = 1,
            **options: Unpack[PrefetchKeywords],
        ) -> None: ...

    _why_not_drop = "and a rollout needs all of them"
    _gives_batches = "get"
    _default_budget = "fast"
    _beginning: frozenset[int] = frozenset()  # environments whose next step begins an episode

    @classmethod
    def like(cls, buffer: RolloutBuffer, **options: Unpack[PrefetchKeywords]) -> Self:
        """An empty buffer of the same size and for the same spaces.

        For algorithms that make their buffer themselves, such as RecurrentPPO.

        Args:
            buffer: an uncompressed buffer.
            **options: ``codec`` and the other options of this class.

        Raises:
            DTypeError: ``buffer`` is no rollout buffer.
        """
        check_kind("buffer", buffer, RolloutBuffer, "a RolloutBuffer, such as model.rollout_buffer")
        names = list(inspect.signature(type(buffer).__init__).parameters)[1:]
        return cls(**{**{name: getattr(buffer, name) for name in names}, **options})

    def add(self, obs: Any, *args: Any, **kwargs: Any) -> None:
        """Store one step of each environment; see SB3's ``add``. A refused observation changes nothing.

        Raises:
            ShapeError: an observation has another shape than the space.
            DTypeError: the dtype of the space would change an observation, by more than rounding floats.
        """
        if self.pos % LOOK_EVERY == 0 and (self.pos == 0 or self.pos >= self._memory.next_look):
            self._look()
        (obs,) = self._steps(obs)
        if self._beginning:  # of episodes, which SB3 does not know of
            given = inspect.signature(super().add).bind(obs, *args, **kwargs)
            starts = np.array(given.arguments["episode_start"])
            starts[[*self._beginning]] = True
            given.arguments["episode_start"] = starts
            args, kwargs = given.args[1:], given.kwargs
        super().add(obs, *args, **kwargs)
        self._beginning = frozenset()

    def _end(self, envs: Ints) -> None:
        self._beginning |= {*envs.tolist()}

    def get(self, *args: Any, **kwargs: Any) -> Generator[Any]:
        """All steps of the rollout in random order, in minibatches; see SB3's ``get``."""
        minibatches = super().get(*args, **kwargs)
        return self._prefetched(minibatches) if self._prefetch else minibatches

    def _prefetched(self, minibatches: Generator[Any]) -> Generator[Any]:
        """Each minibatch, while the next one is decoded in the background."""
        following = self._drawn(minibatches)
        while following is not None:
            began, minibatch = perf_counter(), following
            following = self._drawn(minibatches)
            if following is not None:
                following.start()
            read = minibatch.result()
            self._arrays.n_samples += 1
            self._arrays.sample_s += perf_counter() - began
            yield read

    def _drawn(self, minibatches: Generator[Any]) -> DeferredRead | None:
        """The next minibatch, not decoded yet; None behind the last one."""
        try:
            return self._deferred(partial(next, minibatches))
        except StopIteration:
            return None

    def state(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        return {**super().state(), "beginning": np.array(sorted(self._beginning), np.int64)}

    def restore(self, state: State) -> None:
        """See ``obscodec.snapshots.Saved``."""
        super().restore(state)
        beginning = array_of(state, "beginning", np.int64, (None,))
        check_range("beginning", beginning, 0, self.n_envs - 1)
        self._beginning = frozenset(beginning.tolist())
        if self.generator_ready:  # SB3 flattens its arrays when a rollout is read first
            self.observations = each(lambda _, array: self.swap_and_flatten(array), self.observations)

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        sampled = super()._get_samples(*args, **kwargs)
        if OPEN_READ.get() is None:  # else it is decoded later
            self._arrays.n_samples += 1
            self._arrays.sample_s += perf_counter() - began
        return sampled


class CompressedDictRolloutBuffer(CompressedRolloutBuffer, DictRolloutBuffer):
    """``DictRolloutBuffer`` with compressed observations; see :class:`CompressedRolloutBuffer`.

    ``codec``, ``frame_stack`` and ``budget`` are for all keys, or a dictionary, as in ``CompressedDictReplayBuffer``.

    Example:
        >>> from stable_baselines3 import PPO
        >>> env = "an environment with dictionaries"
        >>> model = PPO("MultiInputPolicy", env, rollout_buffer_class=CompressedDictRolloutBuffer)  # doctest: +SKIP
    """
