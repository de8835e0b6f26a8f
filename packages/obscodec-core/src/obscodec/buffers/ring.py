"""RingBuffer: the last steps of some environments, with compressed fields."""

import math
import os
import reprlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_option, check_kind, kind_of
from obscodec.arrays import DeferredRead, Index, TensorArray
from obscodec.buffers.array_set import ArraySet, listed
from obscodec.buffers.field import Array, Field
from obscodec.buffers.forecast import Forecast
from obscodec.buffers.memory_limit import LOOK_EVERY, MemoryLimit
from obscodec.errors import DTypeError, FieldError, SlotError
from obscodec.layout import ArrayLike, Layout
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.state import State, number_of, part_of
from obscodec.stats import BufferStats
from obscodec.stores import Store

T = TypeVar("T")
_NEVER = math.inf
_WAITING_STEPS = 3  # may wait in the write buffer, however large they are


class RingBuffer:
    """The last ``capacity`` steps of each of ``n_envs`` environments.

    Steps of compressed fields wait in a write buffer, so that some are stored together; steps of a field with
    ``max_bytes`` are stored at once. Several threads may sample at the same time while no thread appends. A new step
    is written beside the oldest one, which goes when the new step is complete: so a failed append changes nothing.

    Args:
        capacity: how many steps to keep for each environment; the oldest go first.
        fields: the fields of a step.
        n_envs: how many environments step together.
        stack: fields to read as a stack of their last steps, and how many: ``{"frame": 4}``. The buffer stores one step
            of each. Steps before the start of the episode, or before the oldest stored step, are read as zeros.
        episode_end: the boolean field that is true in the last step of an episode, terminated or truncated; stacks
            need it.
        threads: how many threads decode a batch, None for half of the usable processors.
        max_bytes: the most bytes of memory for the whole buffer, None for no limit. When they run out before
            ``capacity`` does, the oldest steps of all environments go, and a warning says so once. The memory may
            exceed the limit by 16 steps, and by 2 MiB of each store, where blocks wait to be compressed.
        spill: a folder for the oldest blocks that exceed ``max_bytes``: they go to files there, without names, and no
            step goes before ``capacity`` runs out. The files end with the process.

    Raises:
        FieldError: there are no fields, or ``stack`` or ``episode_end`` names a field that does not exist.
        ShapeError: a number is out of range.
        DTypeError: an argument has another type, or the dtype of ``episode_end`` is not bool.
        SpecError: a spec names no codec, or ``spill`` is given without ``max_bytes`` or for pinned memory.

    Example:
        >>> fields = {"frame": Field((84, 84), np.uint8, "zstd:1"), "reward": Field((), np.float32),
        ...           "done": Field((), bool)}
        >>> buffer = RingBuffer(1000, fields, stack={"frame": 4}, episode_end="done")
        >>> for i in range(10):
        ...     buffer.append(frame=np.full((84, 84), i, np.uint8), reward=1.0, done=i == 6)
        >>> buffer[-1]["frame"][0, :, 0, 0]
        array([0, 7, 8, 9], dtype=uint8)
        >>> buffer.sample(32, np.random.default_rng(0))["frame"].shape
        (32, 4, 84, 84)
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        n_envs: int = 1,
        stack: Mapping[str, int] | None = None,
        episode_end: str | None = None,
        threads: int | None = None,
        max_bytes: int | None = None,
        spill: str | os.PathLike[str] | None = None,
    ) -> None:
        self._set = ArraySet(fields, n_envs, threads)
        self.fields, self.n_envs = self._set.fields, self._set.n_envs
        self._threads = as_option("threads", threads)
        self.capacity = as_count("capacity", capacity)
        if stack is not None:
            check_kind("stack", stack, Mapping, "a mapping from fields to numbers of steps, such as {'frame': 4}")
        self.stack = {name: as_count(f"stack of {name!r}", n) for name, n in (stack or {}).items()}
        self.episode_end = episode_end
        self._check_names()
        self._limit = MemoryLimit.of(max_bytes, spill, [field.heap for field in self.fields.values()])
        # One row more than steps: the next step is written into the row without a step, then counted in one line.
        self._n_rows = self.capacity + 1
        n_sharing = Counter(self._set.owners.values())
        self._arrays = {
            name: self._set.zeros(name, name, self._n_rows, waiting=_WAITING_STEPS * n_sharing[owner])
            for name, owner in self._set.owners.items()
        }
        self._n_appended = 0
        self._first = 0  # no step before this one is kept, for want of bytes
        self._released = 0  # and none before this one has tensors
        self._next_look = 0 if self._limit else _NEVER  # at the memory, at this number of steps
        self._forecast = Forecast(self.capacity, self._limit)

    @says_memory_error
    def append(self, **values: ArrayLike | npt.ArrayLike) -> None:
        """Store one step of all environments. A refused call changes nothing.

        Args:
            **values: for each field ``[n_envs, *shape]``, or ``[*shape]`` if there is one environment; a numpy array,
                an array with DLPack (a torch CPU tensor), or numbers. Floats are rounded to a narrower float;
                any other change of dtype must keep every value. A compressed field on a GPU also takes an array on
                that GPU, and downloads it.

        Raises:
            FieldError: a field is missing, or unknown.
            ShapeError: a value has another shape.
            DTypeError: the dtype of a field would change a number.
            HeapFull: there is not enough room below the ``max_bytes`` of a field, or of the buffer for its newest
                steps; or the GPU has no room for earlier steps, which go on waiting on the CPU.
            OSError: blocks can't be written to the folder ``spill``.
        """
        steps = self._checked(values)
        if self._n_appended >= self._next_look:
            self._keep_limit()
        if self._n_appended >= self._forecast.next_look:
            self._forecast.look(len(self), self.stats)
        at = self._n_appended % self._n_rows
        self._set.reserve(at)
        try:
            for name, array in self._arrays.items():
                array[at] = steps[name]
        except BaseException:
            self._set.forget(at)
            raise
        self._n_appended += 1

    @overload
    def sample(self, batch: int, rng: np.random.Generator | int | None = None) -> dict[str, Array]: ...

    @overload
    def sample(
        self, batch: int, rng: np.random.Generator | int | None = None, *, convert: Callable[[Array], T]
    ) -> dict[str, T]: ...

    @says_memory_error
    def sample(
        self, batch: int, rng: np.random.Generator | int | None = None, *, convert: Callable[[Array], T] | None = None
    ) -> dict[str, Array] | dict[str, T]:
        """Steps of random environments at random times, uniformly and with replacement.

        Args:
            batch: how many steps.
            rng: a random generator, or a seed; None for a new generator.
            convert: called with each array, such as ``torch.from_numpy``, which shares its memory. ``from_numpy``
                refuses bfloat16 and float8: give it a view as integers, and view the result. With fields on a GPU,
                ``partial(torch.as_tensor, device="cuda")`` shares the memory of these, and copies the others.

        Returns:
            For each field a new array ``[batch, *shape]``, or what ``convert`` returns for it; for a stack of ``n``
            steps ``[batch, n, *shape]``, the oldest first. Compressed fields on a GPU come as arrays on that GPU.

        Raises:
            SlotError: no step is stored.
            ShapeError: ``batch`` is negative.
            DTypeError: ``batch`` is no number, ``rng`` no seed, or ``convert`` can't be called.
        """
        batch = as_count("batch", batch, 0)
        if convert is not None and not callable(convert):
            raise DTypeError(f"convert must be a function, such as torch.from_numpy, got {kind_of(convert)}")
        if not len(self):
            raise SlotError("the buffer is empty: append a step before you sample")
        try:
            rng = np.random.default_rng(rng)
        except (TypeError, ValueError):
            found = reprlib.repr(rng)
            raise DTypeError(
                f"rng must be a numpy.random.Generator, a seed of 0 or more, or None, got {found}"
            ) from None
        began = perf_counter()
        arrays = self._read(rng.integers(len(self), size=batch), rng.integers(self.n_envs, size=batch))
        sampled = arrays if convert is None else {name: convert(array) for name, array in arrays.items()}
        self._set.note_sample(began)
        return sampled

    @says_memory_error
    def __getitem__(self, index: Index) -> dict[str, Array]:
        """``array[index]`` of each field, an array ``[len(self), n_envs, *shape]`` that begins with the oldest step.

        Raises:
            SlotError: the index is out of range.
        """
        grid = np.broadcast_arrays(np.arange(len(self))[:, None], np.arange(self.n_envs))
        try:
            steps, envs = (np.asarray(axis[index]) for axis in grid)
        except IndexError as error:
            raise SlotError(f"{len(self)} steps of {self.n_envs} environments are stored: {error}") from None
        return self._read(steps, envs)

    def __len__(self) -> int:
        return self._n_appended - self._oldest

    def arguments(self) -> State:
        """What :meth:`from_arguments` takes for an equal, empty buffer."""
        return {
            "capacity": self.capacity,
            "fields": {name: field.config() for name, field in self.fields.items()},
            "n_envs": self.n_envs,
            "stack": self.stack,
            "episode_end": self.episode_end,
            "threads": self._threads,
            "max_bytes": self._limit and self._limit.max_bytes,
            "spill": self._limit is not None and self._limit.folder is not None,
        }

    @classmethod
    def from_arguments(cls, arguments: State) -> Self:
        """An empty buffer."""
        fields = part_of(arguments, "fields", dict)
        made = {name: Field.from_config(field) for name, field in fields.items()}
        return cls(**{**arguments, "fields": made, "spill": arguments.get("spill") or None})

    @says_memory_error
    def state(self) -> State:
        """All steps, as they are stored: see ``obscodec.state``. Steps that wait are stored first."""
        arrays = self._set.state(min(self._n_appended, self._n_rows))
        return {"n_appended": self._n_appended, "first": self._first, "arrays": arrays}

    @says_memory_error
    def restore(self, state: State) -> None:
        """Fill this buffer, which is empty, with the :meth:`state` of one that was made with equal arguments.

        Raises:
            CorruptStream: no buffer has such a state.
        """
        n_appended = number_of(state, "n_appended")
        first = number_of({"first": 0, **state}, "first", 0, n_appended)
        self._set.restore(part_of(state, "arrays", dict), min(n_appended, self._n_rows))
        self._n_appended, self._first, self._released = n_appended, first, first
        if self._limit and self._limit.folder is not None:
            self._keep_limit()  # else the next step looks

    def forget_damaged(self) -> Ints:
        """Set what can't be decoded to zero, after a damaged snapshot was loaded; see ``Salvaged``.

        Returns:
            ``i64[n, 2]``: the steps, counted from the oldest, and the environments where something is lost, in the step
            itself or in its stack.
        """
        lost = self._set.forget_damaged()
        lost[:, 0] = (lost[:, 0] - self._positions(np.zeros(1, np.int64))) % self._n_rows
        stacked = [lost]
        for n in self.stack.values():
            for back in range(1, n):  # steps of which the stack reaches back to a lost one
                later = lost[lost[:, 0] + back < len(self)] + np.array([back, 0])
                stacked.append(later[self._inside_episode(later[:, 0], later[:, 1], n)[:, n - 1 - back]])
        return np.unique(np.concatenate(stacked), axis=0)

    def stats(self) -> BufferStats:
        """What the buffer holds now, and how long its samples took."""
        stats = self._set.stats(len(self) * self.n_envs)
        stats = self._forecast.add_to(stats, len(self), self._set.own_stores)
        if self._limit is None:
            return stats
        return replace(stats, n_steps=len(self), steps_that_fit=self._limit.steps_that_fit(len(self), self._memory()))

    @property
    def stores(self) -> set[Store]:
        """The stores of its compressed fields, each once."""
        return self._set.own_stores

    def __repr__(self) -> str:
        return f"RingBuffer(capacity={self.capacity}, n_envs={self.n_envs}, fields={self.fields}, {self.stats()})"

    def _read(self, steps: Ints, envs: Ints) -> dict[str, Array]:
        """The steps ``i64[...]``, counted from the oldest, of the environments ``i64[...]``."""
        inside = {name: self._inside_episode(steps, envs, n) for name, n in self.stack.items()}
        arrays: dict[str, Array] = DeferredRead(partial(self._choose, steps, envs, inside)).result()
        return arrays

    def _choose(self, steps: Ints, envs: Ints, inside: Mapping[str, npt.NDArray[np.bool_]]) -> dict[str, Array]:
        chosen: dict[str, Array] = {}
        for name, array in self._arrays.items():
            items = array.ids if isinstance(array, TensorArray) else array
            if name in self.stack:
                n = self.stack[name]
                window = np.maximum(steps[..., None] - np.arange(n - 1, -1, -1), 0)
                picked = np.asarray(items[self._positions(window), envs[..., None]])
                picked[~inside[name]] = 0  # zeros, or the id of the zero tensor
            else:
                picked = np.asarray(items[self._positions(steps), envs])
            chosen[name] = TensorArray(picked, array.store)[...] if isinstance(array, TensorArray) else picked
        return chosen

    def _inside_episode(self, steps: Ints, envs: Ints, n: int) -> npt.NDArray[np.bool_]:
        """``bool[..., n]``: which of the ``n`` steps up to each step are stored and belong to its episode."""
        ends = self._arrays[self.episode_end or ""]
        inside = np.ones((*steps.shape, n), np.bool_)
        for back in range(1, n):
            before = np.maximum(steps - back, 0)
            ended = ends[self._positions(before), envs].astype(np.bool_)
            inside[..., n - 1 - back] = inside[..., n - back] & (steps >= back) & ~ended
        return inside

    def _positions(self, steps: Ints) -> Ints:
        """The rows of steps in the arrays."""
        return (steps + self._oldest % self._n_rows) % self._n_rows

    @property
    def _oldest(self) -> int:
        """The number of the oldest step, counted from the first one that was ever appended."""
        return max(self._first, self._n_appended - self.capacity)

    def _memory(self) -> int:
        return self._set.memory_bytes(min(self._n_appended + LOOK_EVERY, self._n_rows))

    def _keep_limit(self) -> None:
        """Look at the memory, and free what exceeds the limit."""
        assert self._limit is not None
        self._release()  # what an interrupted call has left
        self._limit.keep(self.capacity, self._memory, self._set.own_stores, self.__len__, self._drop)
        self._next_look = self._n_appended + LOOK_EVERY

    def _drop(self, n: int) -> None:
        """Drop the oldest ``n`` steps: first they can't be drawn any more, then their tensors go."""
        self._first = self._oldest + n
        self._release()

    def _release(self) -> None:
        """Release the tensors of dropped steps, as far as their rows have no newer steps."""
        begin, n_rows = max(self._released, self._n_appended - self._n_rows), self._n_rows
        while begin < self._first:
            row = begin % n_rows
            end = min(self._first, begin - row + n_rows)
            self._set.drop(slice(row, row + end - begin))
            begin = end
        self._released = self._first

    def _checked(self, values: Mapping[str, ArrayLike | npt.ArrayLike]) -> dict[str, Array]:
        if values.keys() != self.fields.keys():
            raise FieldError(f"a step has the fields {listed(self.fields)}, got {listed(values)}")
        return {name: self._set.step(name, value) for name, value in values.items()}

    def _check_names(self) -> None:
        for name in self.fields:
            check_kind("the name of a field", name, str, "a text, such as 'frame'")
        if not self.fields:
            raise FieldError("a buffer has one field or more, got none")
        if self.stack and self.episode_end is None:
            raise FieldError("stacks need episode_end, the boolean field that is true in the last step of an episode")
        ends = [] if self.episode_end is None else [self.episode_end]
        for name in [*self.stack, *ends]:
            if not isinstance(name, str) or name not in self.fields:
                raise FieldError(f"no field is named {name!r}, there are {listed(self.fields)}")
        for name in ends:
            if self.fields[name].layout != Layout((), np.bool_):
                raise DTypeError(f"episode_end takes a field bool[], {name!r} is {self.fields[name].layout}")
