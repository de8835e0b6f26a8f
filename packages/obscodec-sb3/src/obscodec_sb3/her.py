"""The compressed replay buffer of goals."""

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from obscodec.buffers import Rearranged
from obscodec.segments import Ints
from stable_baselines3.common.type_aliases import DictReplayBufferSamples
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her import GoalSelectionStrategy, HerReplayBuffer

from obscodec_sb3.replay import CompressedReplayBuffer, DictStoredDirectly
from obscodec_sb3.signatures import CompressedKeywords


class CompressedHerReplayBuffer(CompressedReplayBuffer, HerReplayBuffer, DictStoredDirectly):
    """``HerReplayBuffer`` with compressed observations, without ``prefetch``; see :class:`CompressedDictReplayBuffer`.

    Environments compute rewards from goals on the CPU, so goals are decoded on the CPU.

    Example:
        >>> from stable_baselines3 import SAC
        >>> env = "a goal environment"
        >>> model = SAC("MultiInputPolicy", env, replay_buffer_class=CompressedHerReplayBuffer)  # doctest: +SKIP
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            buffer_size: int,
            observation_space: spaces.Dict,
            action_space: spaces.Space[Any],
            env: VecEnv,
            device: th.device | str = "auto",
            n_envs: int = 1,
            optimize_memory_usage: bool = False,
            handle_timeout_termination: bool = True,
            n_sampled_goal: int = 4,
            goal_selection_strategy: GoalSelectionStrategy | str = "future",
            copy_info_dict: bool = False,
            **options: Unpack[CompressedKeywords],
        ) -> None: ...

        def sample(  # type: ignore[override]
            self, batch_size: int, env: VecNormalize | None = None
        ) -> DictReplayBufferSamples:
            """See ``sample`` of SB3's class."""

    _looks_at = ("achieved_goal", "desired_goal")

    @property
    def _can_drop(self) -> bool:  # type: ignore[override]
        drawing = {of.__module__ for of in (type(self).sample, HerReplayBuffer.sample)}
        return drawing <= {HerReplayBuffer.__module__, CompressedReplayBuffer.__module__}

    def _check_ended(self) -> None:
        Rearranged.refuse_running(np.flatnonzero(self._current_ep_start != self.pos))

    def _end(self, envs: Ints) -> None:
        running = envs[self._current_ep_start[envs] != self.pos]
        super()._end(running)
        for env in running:
            self._compute_episode_length(int(env))

    def _exclude(self, env: int) -> None:
        n = (self.pos - self._current_ep_start[env]) % self.buffer_size
        rows = np.arange(self.pos - n, self.pos) % self.buffer_size  # which can't be sampled before their episode ends
        self._current_ep_start[env] = self.pos
        self._arrays.drop((rows, np.full(n, env)))

    _found_anew = frozenset({"ep_start", "ep_length", "_current_ep_start"})

    def _are_sampled(self, rows: Ints) -> npt.NDArray[np.bool_]:
        return np.asarray(self.ep_length[rows] > 0)

    def _find_episodes(self, n_rows: int) -> None:
        for env in range(self.n_envs):
            ends = 1 + np.flatnonzero(self._ended(slice(n_rows), env))
            lengths = np.diff(ends, prepend=0)
            self.ep_start[:n_rows, env] = np.repeat(ends - lengths, lengths)
            self.ep_length[:n_rows, env] = np.repeat(lengths, lengths)
        self._current_ep_start[:] = self.pos

    def _draw(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        return HerReplayBuffer.sample(self, batch_size, env)  # draws rows of episodes with a length

    def _leave_out(self, first: int, n: int) -> None:
        """An episode that loses a step is not sampled any more; one that goes on begins with its first step left."""
        size, last, after = self.buffer_size, first + n - 1, (first + n) % self.buffer_size
        for env in range(self.n_envs):
            length, start = self.ep_length[last % size, env], self.ep_start[last % size, env]
            n_left = max(0, length - (last - start) % size)
            self.ep_length[np.arange(first, last + max(1, n_left)) % size, env] = 0
            begun = self._current_ep_start[env]
            if begun != self.pos and (begun - first) % size < n:
                self.ep_start[np.arange(after, after + (self.pos - after) % size) % size, env] = after
                self._current_ep_start[env] = after

    def _get_real_samples(self, *args: Any) -> Any:
        return self._together(super()._get_real_samples, *args)

    def _get_virtual_samples(self, *args: Any) -> Any:
        return self._together(super()._get_virtual_samples, *args)
