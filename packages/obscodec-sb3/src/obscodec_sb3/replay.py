"""The compressed replay buffers."""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import numpy.typing as npt
import obscodec
import torch as th
from gymnasium import spaces
from obscodec.arguments import as_count, as_env
from obscodec.arrays import OPEN_READ
from obscodec.buffers import LOOK_EVERY, Rearranged
from obscodec.columns import CodedArray, Column
from obscodec.runtime import raise_memory_error, says_memory_error
from obscodec.segments import Ints
from obscodec.state import State, array_of, check_range, number_of
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from obscodec_sb3.assignable import as_actions, check_assignable, check_infos
from obscodec_sb3.base import CompressedBuffer, Setting
from obscodec_sb3.direct_add import DirectAdd
from obscodec_sb3.excluded import Excluded, at_envs
from obscodec_sb3.prefetcher import Prefetcher
from obscodec_sb3.signatures import PrefetchKeywords

_PLAIN = {"actions", "rewards", "dones", "timeouts"}  # the arrays that SB3's ``add`` writes, besides observations
_CHUNK = 1 << 12  # rows at a time, for the begin of an episode
_ARRAYS = np.ndarray, CodedArray
_EMPTY = "the buffer is empty: add a transition before you sample"


class StoredDirectly(ReplayBuffer):
    """Behind a class that adds more: stores what it hands on to SB3 as :class:`CompressedReplayBuffer` does."""

    _direct: DirectAdd | None = None

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """See SB3's ``add``."""
        pos, direct = self.pos, self._direct
        if direct is None or not direct.is_for(self) or not direct.add(pos, obs, next_obs, action, reward, done, infos):
            super().add(obs, next_obs, action, reward, done, infos)
            return
        self.full |= pos + 1 == self.buffer_size
        self.pos = (pos + 1) % self.buffer_size


class DictStoredDirectly(StoredDirectly, DictReplayBuffer):
    """:class:`StoredDirectly` for observations that are dictionaries."""


_ADD_ALONE = ReplayBuffer.add, DictReplayBuffer.add, StoredDirectly.add


class CompressedReplayBuffer(CompressedBuffer, ReplayBuffer):
    """A replay buffer that keeps observations compressed, without loss.

    It returns the same samples as ``ReplayBuffer``: SB3's own ``add`` and ``sample`` run unchanged, on arrays that
    encode and decode.

    Args:
        buffer_size: the most transitions to keep, over all environments.
        observation_space: the space of one observation.
        action_space: the space of one action.
        device: where samples are put.
        n_envs: how many environments there are.
        optimize_memory_usage: allowed together with every other option. Observation and next observation share frames
            anyway, so the buffer stores both as the environment gave them. It draws steps as SB3 does with this option:
            never the oldest.
        handle_timeout_termination: distinguish truncated episodes from terminated ones, as in ``ReplayBuffer``.
        codec: the spec of the codec, such as ``"zstd:3"``; ``"auto"`` to find the best codec on the first observations,
            if they have ``min_nbytes`` or more; None to keep them uncompressed.
        min_nbytes: smaller observations stay uncompressed; None for 128 bytes with ``"auto"``, for 0 with a codec. With
            None, those below 1 KiB get a codec of the budget ``"fast"``.
        frame_stack: how observations are made of frames, None to find out.
        budget: for ``"auto"``, ``"fast"`` to try only codecs that read as fast as plain arrays, by a fixed table.
        decide_after: how many observations, next ones included, stay uncompressed until the store decides how to keep
            them; None for 256, fewer if they are large.
        block_frames: how many frames are encoded together, None for the best number for the codec.
        threads: how many threads decode a batch, None for half of the usable processors.
        buffer_device: where observations are decoded: ``"cpu"``, or the GPU that is ``device``. The GPU then has
            a compressed copy of them, and a batch never visits the host. Needs obscodec-cupy.
        heap: ``"pinned"`` for no copy: the GPU reads the compressed observations in host memory.
        prefetch: draw and decode the next batch while the learner works on this one. A batch then lacks the steps that
            were added after the batch before it was returned. A batch that ``VecNormalize`` normalizes is not
            prefetched, since it needs the statistics of the moment.
        max_bytes: the most bytes of memory for the whole buffer, None for no limit. When they run out before
            ``buffer_size`` does, the oldest steps of all environments are dropped, and a warning says so once. The
            memory may exceed the limit by 16 steps, and by 2 MiB of each store, where blocks wait to be compressed.
        spill: a folder for the oldest blocks that exceed ``max_bytes``: they move to files there, without names, and no
            step is dropped before ``buffer_size`` runs out. The files end with the process.

    Raises:
        SpecError: ``codec`` names no codec, ``budget`` is malformed, or there is no such device or heap.
        BackendUnavailable: ``buffer_device`` can't be used; the text names what is missing.
        ShapeError: observations don't divide into such a frame stack, or a number is out of range.
        HeapFull: ``add`` or ``sample`` found no room in the GPU for steps, which go on waiting on the CPU.
        DTypeError: the observation space is a dictionary, or has a dictionary inside one; ``buffer_device`` is another
            GPU than ``device``; or an argument has another type.
        ValueError: ``prefetch`` is on for a class that samples in its own way, such as ``HerReplayBuffer``; or
            ``max_bytes`` is given without ``spill`` for a class of your own that does.
        OSError: ``add`` can't write blocks to ``spill``.

    Example:
        >>> from stable_baselines3 import DQN
        >>> model = DQN("CnnPolicy", "PongNoFrameskip-v4", replay_buffer_class=CompressedReplayBuffer)  # doctest: +SKIP
    """

    _stay_plain = frozenset(_PLAIN)  # DirectAdd finds them
    _stores_next = True
    optimize_memory_usage: bool = Setting()  # type: ignore[assignment]  # False: SB3 would read rows of its own layout
    _waiting = 6  # four steps: most observations equal the next ones of the step before, and wait once
    _direct: DirectAdd | None = None
    _samples_directly = False
    _adds_alone = False  # whether SB3's ``add`` does nothing besides
    _has_seams = False  # in ``timeouts``, which SB3 does not write
    _dropped = 0  # how many of the oldest rows are gone for want of bytes
    _gone: Excluded | None = None  # of several environments; of one, ``pos`` goes back
    _why_not_drop = "and this class samples in its own way, which could draw them"
    _found_anew: frozenset[str] = frozenset()  # arrays that _find_episodes fills
    _plain_names: tuple[str, ...] = ()  # of the arrays that are not compressed, known from the first step on

    def _init(self, *args: Any, **kwargs: Any) -> None:
        names = [*self._stock_constructor().parameters]  # of a user's class, perhaps without this one
        at = names.index("optimize_memory_usage") if "optimize_memory_usage" in names else len(args)
        optimized = args[at] if at < len(args) else kwargs.pop("optimize_memory_usage", False)
        super().__init__(*args[:at], *[False] * (at < len(args)), *args[at + 1 :], **kwargs)
        if self._add_copies:  # an ``add`` of a user may do more with arrays than assign and read
            for name in _PLAIN & vars(self).keys():
                array = vars(self)[name]
                vars(self)[name] = Column.zeros(array.shape, array.dtype)
        stock: Any = super()
        self._draws_from_all = stock.sample.__func__ is ReplayBuffer.sample
        self._leaves_oldest_out = optimized and self._draws_from_all
        self._prefetcher = Prefetcher()

    if TYPE_CHECKING:  # what the constructors of this class and of SB3's take together

        def __init__(
            self,
            buffer_size: int,
            observation_space: spaces.Space[Any],
            action_space: spaces.Space[Any],
            device: th.device | str = "auto",
            n_envs: int = 1,
            optimize_memory_usage: bool = False,
            handle_timeout_termination: bool = True,
            **options: Unpack[PrefetchKeywords],
        ) -> None: ...

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store one transition of each environment. A refused call changes nothing.

        Raises:
            ShapeError: an observation has another shape than the space.
            DTypeError: the dtype of the space would change an observation, by more than rounding floats; or an argument
                is no array of numbers, or has a mask or a unit, which would be lost.
            FieldError: an observation lacks a key of the space.
        """
        lock = self._lock
        if lock.is_held():
            lock.refuse_nested()
        with lock:
            pos = self.pos
            if not pos % LOOK_EVERY and pos >= self._memory.next_look:
                self._look()
            if self._has_seams or self._gone is not None:
                self._add_over_seams(obs, next_obs, action, reward, done, infos)
            else:
                self._add_anyhow(obs, next_obs, action, reward, done, infos)

    def _add_over_seams(self, *step: Any) -> None:
        """Store one transition of each environment in a row that may have a seam or lack transitions."""
        pos, has_seams, gone = self.pos, self._has_seams, self._gone
        seams = self.timeouts[pos] if has_seams else None
        try:
            if gone is not None:
                self._gone = gone.without_row(pos)
            if has_seams:  # SB3 does not write ``timeouts``, and the seam would be one of the new transition
                self.timeouts[pos] = 0
            self._add_anyhow(*step)
        except BaseException:
            if self.pos == pos:
                self._gone = gone
                if has_seams:
                    self.timeouts[pos] = seams
            raise

    def _add_anyhow(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store one transition of each environment, with one compiled call or by SB3's ``add``; or change nothing."""
        pos, full, direct = self.pos, self.full, self._direct
        if direct is None or not direct.is_for(self):
            direct = self._direct = self._new_direct()
        if direct is not None and self._adds_alone:
            try:
                if direct.add(pos, obs, next_obs, action, reward, done, infos):
                    if pos + 1 < self.buffer_size and not (full and self._dropped):
                        self.pos = pos + 1
                    else:  # in one step; in a full buffer, the row is that of a transition that was dropped, if one was
                        n_dropped = self._dropped - (full and self._dropped > 0)
                        vars(self).update(pos=(pos + 1) % self.buffer_size, full=True, _dropped=n_dropped)
                    return
            except BaseException as error:
                if self.pos != pos:
                    raise  # the transition was counted
                direct.undo(pos)
                raise_memory_error(error)
        self._add(obs, next_obs, action, reward, done, infos)
        if full and self._dropped:
            self._dropped -= 1

    @says_memory_error
    def _add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """SB3's own ``add``, which stores one array after the other: every check comes before it."""
        if (direct := self._direct) is None or direct.accepts(obs, next_obs, action, reward, done, infos) is None:
            action = as_actions(action, (self.n_envs, self.action_dim))
            for name, value in (("actions", action), ("rewards", reward), ("dones", done)):
                check_assignable(name, value, getattr(self, name))
            if self.handle_timeout_termination:
                check_infos(infos, self.n_envs)
            obs, next_obs = self._steps(obs, next_obs)
        else:
            self._arrays.reserve(self.pos)  # the class may hand on something that is not stored directly
        pos, full, arrays = self.pos, self.full, vars(self)
        plain = [arrays[name] for name in self._plain_names or self._find_plain_names()]
        for of_keys in (self.observations, self.next_observations):
            if isinstance(of_keys, dict):
                plain += [array for array in of_keys.values() if isinstance(array, np.ndarray)]
        before = [(array, array[pos].copy()) for array in plain]
        try:
            super().add(obs, next_obs, action, reward, done, infos)
        except BaseException:
            self.pos, self.full = pos, full
            self._arrays.forget(pos)
            for array, row in before:
                array[pos] = row
            raise

    def reset(self) -> None:
        """Forget all transitions."""
        with self._lock:
            super().reset()
            self._dropped, self._gone = 0, None
            self._prefetcher.clear()

    def drop_episode(self, env: int | None = None) -> None:
        """Drop the running episode of an environment, such as one whose simulator has crashed.

        Its transitions are not sampled any more. The next transition begins an episode. Nothing happens if no episode
        is running. Samples are uniform among the transitions that are left; with several environments, SB3 would draw
        a row and an environment, and both are drawn together until new transitions take the places of these.

        Args:
            env: the environment; None if there is one.

        Raises:
            ValueError: the class draws rows by code of your own, which would draw those that are gone.
            ShapeError: there is no such environment, or there are several and ``env`` is None.
            DTypeError: ``env`` is no integer.
        """
        env = as_env(env, self.n_envs)
        self._lock.refuse_nested()
        with self._lock:
            self._exclude(env)
            self._prefetcher.clear()

    def _exclude(self, env: int) -> None:
        n = self._n_running(env)
        reads_alone = self.n_envs == 1 or type(self)._get_samples is CompressedReplayBuffer._get_samples
        if (self.full or self.n_envs > 1) and n and not (self._can_drop and reads_alone):
            raise ValueError(f"drop_episode leaves transitions out, {self._why_not_drop}: call end_episodes instead")
        first = (self.pos - n) % self.buffer_size
        if self.n_envs > 1:
            rows = np.arange(first, first + n) % self.buffer_size
            before = [self._gone.cells] if self._gone else []
            self._gone = Excluded.of(np.concatenate([*before, rows * self.n_envs + env]), self.n_envs)
            self._arrays.drop((rows, np.full(n, env)))
            return
        # In a full buffer, the rows of the episode are the oldest ones now, which are gone. Both change in one step.
        vars(self).update(pos=first, _dropped=self._dropped + n * self.full)
        self._arrays.drop(np.arange(first, first + n) % self.buffer_size)

    @says_memory_error
    def with_envs(self, n_envs: int) -> Self:
        """A new buffer with the same transitions, for another number of environments; this one stays as it is.

        Observations stay encoded. The transitions of an environment stay in their order, and whole episodes in one
        environment as far as there is room: an episode is cut, as by a truncation, where its new environment has as
        many transitions as the others. Rows are whole: if the transitions don't fill them, a warning says how many of
        the oldest, fewer than ``n_envs``, are left out. ``buffer_size`` is as before for all environments together. A
        class of your own can have arrays ``[buffer_size, n_envs, ...]`` and single numbers, which are taken over.

        Args:
            n_envs: how many environments step together from now on.

        Raises:
            SlotError: an episode is running, which no new environment would go on with.
            ShapeError: ``n_envs`` is less than 1.
            DTypeError: ``n_envs`` is no integer; or the class has an array whose place for a transition nobody knows.
            HeapFull: the transitions do not fit below ``max_bytes``.

        Example:
            >>> from gymnasium import spaces
            >>> buffer = CompressedReplayBuffer(1000, spaces.Box(0, 255, (4, 84, 84), "uint8"), spaces.Discrete(6))
            >>> other = buffer.with_envs(4)
            >>> other.n_envs, other.buffer_size
            (4, 250)
        """
        n_envs = as_count("n_envs", n_envs)
        with self._lock:
            self._check_ended()
            rearranged = Rearranged.of(self.size(), self.n_envs, n_envs, self.buffer_size * self.n_envs, self._scan)
            rows = (rearranged.steps + self.pos - self.size()) % self.buffer_size
            numbers, observations = rearranged.numbers(rows, self.n_envs), self._arrays.state(self._n_rows)
            others = self._rearranged(numbers)
        made = self._empty_for(n_envs)
        for name in sorted(self._beside, key=[*self._arrays.fields].index):
            made._compress(name, 0)
        made._arrays.restore_rearranged(observations, numbers)
        n_rows = len(numbers)
        for name, items in others.items():
            vars(made)[name][:n_rows] = items
        of_envs = {"pos", "full", "n_envs", "buffer_size"}
        for name, value in vars(self).items():
            if isinstance(value, (bool, int, float)) and not name.startswith("_") and name not in of_envs:
                vars(made)[name] = value  # which the class counts
        made.full, made.pos = n_rows == made.buffer_size, n_rows % made.buffer_size
        cut = np.nonzero(rearranged.ends & ~made._ended(slice(n_rows), slice(None)))
        made._has_seams = self._has_seams
        made._truncate(*cut)
        made._find_episodes(n_rows)
        rearranged.warn()
        return made

    def _check_ended(self) -> None:
        if self.size():
            last = np.array([self.pos - 1]) % self.buffer_size
            running = ~(self._ended(last, slice(None)) | self._are_excluded(last))[0]
            Rearranged.refuse_running(np.flatnonzero(running))

    def _scan(self, steps: Ints) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Whether an episode ends with steps, ``bool[n, n_envs]``, and whether they are sampled; 0 is the oldest."""
        rows = (steps + self.pos - self.size()) % self.buffer_size
        is_sampled = self._are_sampled(rows)
        return self._ended(rows, slice(None)) | ~is_sampled, is_sampled

    def _are_sampled(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """``bool[n, n_envs]``: whether transitions in some rows are ever sampled."""
        return ~self._are_excluded(rows)

    def _are_excluded(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """``bool[n, n_envs]``: whether transitions in some rows were taken out."""
        return self._gone.are_in(rows) if self._gone else np.zeros((len(rows), self.n_envs), np.bool_)

    def _rearranged(self, numbers: Ints) -> dict[str, npt.NDArray[Any]]:
        """The arrays that are no observations, for other environments."""
        moved = {}
        for name, array in vars(self).items():
            if not isinstance(array, _ARRAYS) or name in self._arrays.names or name in self._found_anew:
                continue
            if array.shape[:2] != (self.buffer_size, self.n_envs):
                raise obscodec.DTypeError(
                    f"{name} of this {type(self).__name__} has the shape {array.shape}, and only arrays of buffer_size "
                    f"and n_envs, {(self.buffer_size, self.n_envs)}, can be laid out for other environments"
                )
            moved[name] = Rearranged.picked(array[: self._n_rows], numbers)
        return moved

    def _empty_for(self, n_envs: int) -> Self:
        """An empty buffer with room for as many transitions of other environments."""
        size = -(-self.buffer_size * self.n_envs // n_envs) * n_envs
        own = {name: getattr(self, name) for name in ("observation_space", "action_space", "device", "spill")}
        if "env" in vars(self):
            own["env"] = self.env  # type: ignore[attr-defined]
        return type(self)(**{**self.arguments(), **own, "n_envs": n_envs, "buffer_size": size})

    def _truncate(self, rows: Any, envs: Ints) -> None:
        """End the episodes of transitions with these."""
        self._has_seams = self._has_seams or not self.handle_timeout_termination
        self.timeouts[rows, envs] = 1  # SB3's n-step returns go no further, and bootstrap
        if self.handle_timeout_termination:  # else it would be a termination
            self.dones[rows, envs] = 1

    def _find_episodes(self, n_rows: int) -> None:
        """Find in the first rows what the class knows of episodes besides their ends."""

    def _n_running(self, env: int) -> int:
        """How many of the newest transitions of an environment are of an episode that has not ended."""
        newest = (self.pos - 1 - np.arange(self.size())) % self.buffer_size
        for begin in range(0, len(newest), _CHUNK):
            rows = newest[begin : begin + _CHUNK]
            ended = np.flatnonzero(self._ended(rows, env) | self._are_excluded(rows)[:, env])
            if len(ended):
                return begin + int(ended[0])
        return len(newest)

    def _end(self, envs: Ints) -> None:
        last = (self.pos - 1) % self.buffer_size
        # By ``dones``, if they are written: an interrupted call may have written ``timeouts`` alone.
        ended = self.dones[last, envs] != 0 if self.handle_timeout_termination else self._ended(last, envs)
        running = envs[~(ended | self._are_excluded(np.array([last]))[0, envs])] if self.size() else envs[:0]
        if len(running):
            self._truncate(last, running)

    def _ended(self, rows: Any, envs: Any) -> npt.NDArray[np.bool_]:
        """Whether the episodes of environments ended in some rows."""
        ended: npt.NDArray[np.bool_] = (self.dones[rows, envs] != 0) | (self.timeouts[rows, envs] != 0)
        return ended

    def size(self) -> int:
        """How many steps of each environment can be sampled."""
        return int(self.buffer_size if self.full else self.pos) - self._dropped

    @says_memory_error
    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Random transitions; with ``prefetch``, drawn when the previous batch was returned.

        Raises:
            SlotError: there are none.
            DTypeError: ``batch_size`` is no number, or ``env`` can't normalize.
            ShapeError: ``batch_size`` is negative.
        """
        batch_size = as_count("batch_size", batch_size, 0)
        if env is not None and not hasattr(env, "normalize_obs"):
            raise obscodec.DTypeError(f"env must be a VecNormalize or None, got {type(env).__name__}")
        began = perf_counter()
        with self._lock:
            read = self._chosen(batch_size, env)
        sampled: ReplayBufferSamples = read()
        with self._lock:
            self._arrays.n_samples += 1
            self._arrays.sample_s += perf_counter() - began
        return sampled

    def _chosen(self, batch_size: int, env: VecNormalize | None) -> Callable[[], Any]:
        """Draw transitions, and copy what it takes to read them without the lock, if SB3 does not look at them."""
        if self._prefetch and env is None:
            stream = self.device.type == "cuda" and th.cuda.current_stream(self.device)  # a GPU decodes on it
            draw = partial(self._deferred, partial(self._draw, batch_size))
            return self._prefetcher.next((batch_size, stream), draw).result
        if env is not None or not self._draws_ahead:
            sampled = self._draw(batch_size, env)
            return lambda: sampled
        is_own = self._draws_from_all and type(self)._get_samples is CompressedReplayBuffer._get_samples
        if is_own and not (gone := self._gone):
            rows = self._rows(batch_size)
            return self._read_directly(rows) or self._deferred(partial(self._get_samples, rows)).result
        if is_own and gone and (direct := self._direct_reader()):
            return direct.chosen(*self._draw_left(batch_size, gone))
        return self._deferred(partial(self._draw, batch_size)).result

    def _get_samples(self, batch_inds: Any, env: VecNormalize | None = None, **kwargs: Any) -> Any:
        if env is None and not kwargs and OPEN_READ.get() is None and (read := self._read_directly(batch_inds)):
            return read()
        return super()._get_samples(batch_inds, env=env, **kwargs)  # somebody may decode it later

    def _direct_reader(self) -> DirectAdd | None:
        """What reads transitions without SB3's own code; None if that does more than SB3's ReplayBuffer."""
        direct = self._direct
        if direct is None or not self._samples_directly or not direct.is_for(self) or not direct.can_read:
            return None
        return direct

    def _read_directly(self, rows: Ints) -> Callable[[], ReplayBufferSamples] | None:
        """Reads transitions of random environments, if there is a direct reader."""
        if (direct := self._direct_reader()) is None:
            return None
        n, n_envs = len(rows), self.n_envs  # SB3 draws from one environment, too, which takes no random number
        envs = np.random.randint(0, high=n_envs, size=(n,)) if n_envs > 1 else np.zeros(n, np.int64)
        return direct.chosen(rows, envs)

    def arguments(self) -> dict[str, Any]:
        """See ``obscodec.snapshots.Saved``."""
        return {**super().arguments(), "optimize_memory_usage": self._leaves_oldest_out}

    def state(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        return {
            **super().state(),
            "dropped": self._dropped,
            "gone": self._gone.cells if self._gone else np.empty(0, np.int64),
        }

    def restore(self, state: State) -> None:
        """See ``obscodec.snapshots.Saved``."""
        super().restore(state)
        self._dropped = number_of(state, "dropped", 0, self._n_rows)
        gone = array_of(state, "gone", np.int64, (None,))
        check_range("gone", gone, 0, self._n_rows * self.n_envs - 1)
        self._gone = Excluded.of(gone, self.n_envs)
        self._has_seams = not self.handle_timeout_termination and bool(np.any(self.timeouts[: self._n_rows]))

    @property
    def _can_drop(self) -> bool:  # type: ignore[override]
        """Whether rows are drawn by code that is known to draw the steps that are there."""
        stock: Any = super()
        after_ours: Any = super(CompressedBuffer, self)
        drawing = {of.__module__ for of in (stock.sample, type(self).sample, after_ours._get_samples)}
        return drawing <= {ReplayBuffer.__module__, __name__}

    def _drop(self, n: int) -> None:
        first = (self.pos - self.size()) % self.buffer_size
        self._leave_out(first, n)
        self._dropped += n
        self._arrays.drop(np.arange(first, first + n) % self.buffer_size)

    def _leave_out(self, first: int, n: int) -> None:
        """Before ``n`` rows from ``first`` on are dropped: forget what else refers to them."""

    def _find_plain_names(self) -> tuple[str, ...]:
        """The names of the uncompressed arrays ``[buffer_size, n_envs, ...]``: actions, rewards and so on."""
        shape, arrays = (self.buffer_size, self.n_envs), vars(self).items()
        self._plain_names = tuple(name for name, x in arrays if isinstance(x, _ARRAYS) and x.shape[:2] == shape)
        return self._plain_names

    def _new_direct(self) -> DirectAdd | None:
        """What stores transitions without the ``add`` of SB3's ``ReplayBuffer`` or ``DictReplayBuffer``, if it can."""
        stock: Any = super()
        names = {*(self._plain_names or self._find_plain_names())}
        if not names >= _PLAIN or self.buffer_size < 2:
            return None
        self._adds_alone = stock.add.__func__ in _ADD_ALONE and names == _PLAIN
        direct = DirectAdd.of(self)
        if direct is not None:  # of SB3, with nothing of a user's in between
            after_ours: Any = super(CompressedBuffer, self)
            is_stock = after_ours._get_samples.__func__ is ReplayBuffer._get_samples
            self._samples_directly = is_stock and self._hands_on and direct.reads
        return direct

    def _draw(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        if self._gone:
            rows, envs = self._draw_left(batch_size, self._gone)
            names = *self._arrays.names, *(self._plain_names or self._find_plain_names())
            return at_envs(self, envs, names)._get_samples(rows, env=env)
        if self._draws_from_all or self._dropped:
            return self._get_samples(self._rows(batch_size), env=env)
        if not self.size():
            raise obscodec.SlotError(_EMPTY)
        return super().sample(batch_size, env=env)

    def _rows(self, batch_size: int) -> Ints:
        """Random rows, ``i64[batch_size]``, as SB3's ``sample`` draws them; never those that are gone."""
        n = self.size()
        if not n:
            raise obscodec.SlotError(_EMPTY)
        skipped = self._leaves_oldest_out and self._n_skipped
        rows = np.random.randint(skipped, n, size=batch_size)
        return (rows + self.pos - n) % self.buffer_size if skipped or self._dropped else rows

    @property
    def _n_skipped(self) -> int:
        """How many of the oldest rows are not sampled, as SB3 does when it optimizes its memory usage."""
        return int(self._leaves_oldest_out and self.full and not self._dropped)

    def _draw_left(self, batch_size: int, gone: Excluded) -> tuple[Ints, Ints]:
        """Random rows and environments, ``i64[batch_size]`` each, of all transitions that were not taken out."""
        rows = range(self.pos - self.size() + self._n_skipped, self.pos)
        return gone.draw_others(batch_size, rows, self.buffer_size)


class CompressedDictReplayBuffer(CompressedReplayBuffer, DictReplayBuffer):
    """``DictReplayBuffer`` with compressed observations; see :class:`CompressedReplayBuffer`.

    ``codec``, ``frame_stack`` and ``budget`` are for all keys, or a dictionary with the values of some keys; other keys
    have the defaults. A key that is not in the space raises ``FieldError``.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> space = spaces.Dict(image=spaces.Box(0, 255, (4, 84, 84), np.uint8), vector=spaces.Box(-1, 1, (3,)))
        >>> codecs = {"image": "delta-rle", "vector": None}
        >>> buffer = CompressedDictReplayBuffer(1_000_000, space, spaces.Discrete(2), codec=codecs)
        >>> buffer.observations["image"].shape
        (1000000, 1, 4, 84, 84)
    """

    if TYPE_CHECKING:

        def sample(  # type: ignore[override]
            self, batch_size: int, env: VecNormalize | None = None
        ) -> DictReplayBufferSamples:
            """See ``sample`` of SB3's class."""


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

    if TYPE_CHECKING:

        def __init__(
            self,
            buffer_size: int,
            observation_space: spaces.Space[Any],
            action_space: spaces.Space[Any],
            device: th.device | str = "auto",
            n_envs: int = 1,
            optimize_memory_usage: bool = False,
            handle_timeout_termination: bool = True,
            *,
            n_steps: int = 3,
            gamma: float = 0.99,
            **options: Unpack[PrefetchKeywords],
        ) -> None: ...
