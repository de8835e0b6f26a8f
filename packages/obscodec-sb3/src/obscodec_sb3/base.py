"""CompressedBuffer: SB3's own code on compressed arrays of observations."""

from __future__ import annotations

import inspect
import os
import reprlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import obscodec
import torch as th
from gymnasium import spaces
from obscodec.arguments import as_count, as_envs, as_flag, kind_of, refuse_unknown
from obscodec.arrays import OPEN_READ, DeferredRead, Selection, WriteBuffer
from obscodec.buffers import (
    LOOK_EVERY,
    OPTION_DEFAULTS,
    ArraySet,
    BufferOptions,
    Memory,
    making_room,
)
from obscodec.columns import CodedArray, Column
from obscodec.devices import check_place
from obscodec.fixed import Fixed, Option
from obscodec.runtime import LockOrder, PicklableLock, free_in_forks
from obscodec.snapshots import load, named, write_snapshot
from obscodec.state import State, number_of, part_of, versioned
from obscodec.stats import BufferStats
from obscodec.stores import BATCH_MEMORY, Store
from stable_baselines3.common import buffers
from stable_baselines3.common.vec_env import VecNormalize

from obscodec_sb3.beside import MOST_ROWS, is_large, is_large_row, is_shared, newest, repeats
from obscodec_sb3.bits import Bits
from obscodec_sb3.comparison import SPACES, check_arguments, plain, space_of, space_state
from obscodec_sb3.signatures import constructor_of, refuse_others, shown

COMPRESSED: dict[type, type[CompressedBuffer]] = {}  # the compressed class of each class of buffers
_COPY = ("stable_baselines3.", "sb3_contrib.", "obscodec_sb3.")  # packages whose ``add`` copies what it then assigns
OPTIONS = ("codec", "min_nbytes", "frame_stack", "budget", "decide_after", "block_frames", "buffer_device", "heap")
_READERS = ("_get_samples", "_normalize_obs", "to_torch", "_sample_goals")
# Modules whose readers pass observations to ``to_torch`` without a look inside.
_HAND_ON = ("stable_baselines3.", "sb3_contrib.common.maskable.", "obscodec_sb3.")
# Those whose ``sample`` and ``get`` do, too.
_DRAW = ("stable_baselines3.common.buffers", "sb3_contrib.common.maskable.", "obscodec_sb3.")

# Of the generator that SB3 draws by, maybe in several threads.
free_in_forks(np.random.get_bit_generator().lock)  # type: ignore[attr-defined]


def _as_space(name: str, value: object) -> object:
    if not isinstance(value, spaces.Space):
        raise obscodec.DTypeError(f"{name} must be a space of Gymnasium, such as env.{name}, got {kind_of(value)}")
    return value


class Setting(Fixed[Any]):
    """An attribute that SB3 sets before it makes arrays, and that stays as it is then: the arrays depend on it.

    ``check`` is called with its name and a value, and returns the value that is set.
    """

    def __init__(
        self, check: Callable[[str, Any], Any] = lambda _, value: value, remedy: str = "make another buffer"
    ) -> None:
        super().__init__(remedy)
        self._check = check

    def __set__(self, buffer: CompressedBuffer, value: object) -> None:
        if buffer._arrays is None:
            value = self._check(self._name, value)
            vars(buffer).pop(self._name, None)
        super().__set__(buffer, value)


class CompressedBuffer(buffers.BaseBuffer):
    """The common base of compressed buffers; it comes before a buffer of SB3 among the bases of a class.

    While SB3's constructor and ``reset`` allocate arrays, ``obs_shape`` has a 0 in front. So arrays of observations
    take no memory. Each array that ends in this shape is a placeholder: a compressed array takes its place, and SB3's
    own methods work with it. All arrays of one observation share a store, which keeps each frame once.

    Other arrays stay as they were made, but for large ones: after some steps, :meth:`_pack` makes bits of those that
    have two distinct numbers, and compresses those that repeat.
    """

    buffer_size: int = Setting(as_count)  # type: ignore[assignment]
    n_envs: int = Setting(as_count, "buffer.with_envs(n_envs) makes another one")  # type: ignore[assignment]
    observation_space: Any = Setting(_as_space)
    action_space: Any = Setting(_as_space)
    action_dim: int = Setting()  # type: ignore[assignment]
    codec, min_nbytes, frame_stack, budget = Option(), Option(), Option(), Option()
    decide_after, block_frames, buffer_device, heap = Option(), Option(), Option(), Option()
    threads, max_bytes, spill, prefetch = Option(), Option(), Option(), Option()
    written_by = f"obscodec-sb3 {version('obscodec-sb3')}"  # see ``obscodec.snapshots.Saved``
    _allocates_placeholders = False
    _allocates_short_masks = False
    _waiting = 3  # steps that may wait in a write buffer, however large they are
    _can_drop = False  # the oldest steps, if the memory has a limit
    _why_not_drop = "and all are needed"
    _gives_batches = "sample"  # the method that does
    _default_budget: str | None = None  # of fields with the codec "auto"
    _stores_next = False  # the next observations, too
    _looks_at: tuple[str, ...] = ()  # keys of observations that SB3 computes with while it samples
    _obs_shape: Any
    _arrays: ArraySet = None  # type: ignore[assignment]  # until the first array is made
    _beside: frozenset[str] = frozenset()  # arrays that are no observations, and compressed: each is a field
    _bits: frozenset[str] = frozenset()  # those that were bits before SB3 made them anew
    _stay_plain: frozenset[str] = frozenset()  # those that are read in another way

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if len(cls.__bases__) > 1 and cls.__module__.startswith("obscodec_sb3"):  # our base before SB3's class
            COMPRESSED[cls.__bases__[1]] = cls
        options = [inspect.Parameter(of, inspect.Parameter.KEYWORD_ONLY, default=OPTION_DEFAULTS[of]) for of in OPTIONS]
        takes = constructor_of(cls.__mro__, options)
        cls.__signature__ = takes  # type: ignore[attr-defined]
        if "__init__" not in vars(cls):
            cls.__init__ = shown(cls, takes)  # type: ignore[method-assign]

    def __init__(
        self,
        *args: Any,
        threads: int | None = None,
        max_bytes: int | None = None,
        spill: str | os.PathLike[str] | None = None,
        prefetch: bool = False,
        **kwargs: Any,
    ) -> None:
        self._options = BufferOptions[str](**{name: kwargs.pop(name) for name in OPTIONS if name in kwargs})
        refuse_others(self, kwargs, self._stock_constructor())
        self._memory = Memory(max_bytes, spill, [self._options.heap])
        if self._memory.drops_steps and not self._can_drop:
            raise ValueError(
                f"max_bytes drops the oldest steps, {self._why_not_drop}: pass spill, too, or leave max_bytes out"
            )
        limits = {"max_bytes": self._memory.max_bytes, "spill": self._memory.folder}
        own = {"threads": threads, "prefetch": as_flag("prefetch", prefetch)}
        self._given = {**vars(self._options), **limits, **own}
        self._lock = PicklableLock(LockOrder.BUFFER)
        self._add_copies = all(
            vars(c)["add"].__module__.startswith(_COPY) for c in type(self).__mro__ if "add" in vars(c)
        )
        of: Any = [type(self), super()]
        others = [x for x in _READERS for c in of if not getattr(c, x, c.to_torch).__module__.startswith(_HAND_ON)]
        self._hands_on = not others
        self._prefetch, gives = self._given["prefetch"], self._gives_batches
        others = [gives for c in of if not getattr(c, gives).__module__.startswith(_DRAW)] + others
        self._draws_ahead = not others
        if self._prefetch and others:
            what = f"prefetch needs SB3's own {others[0]}, {type(self).__name__} has another"
            raise ValueError(f"{what}: leave prefetch out")
        with making_room(lambda: self.buffer_size * self.n_envs), self._placeholders_replaced():
            super().__init__(*args, **kwargs)
        self._memory.check(self.buffer_size, self._memory_of)

    @classmethod
    def _stock_constructor(cls) -> inspect.Signature:
        """What the constructor behind ours takes: of SB3, or of a user."""
        return constructor_of(cls.__mro__[cls.__mro__.index(CompressedBuffer) + 1 :])

    @property
    def obs_shape(self) -> Any:
        """The shape of an observation; a dictionary of shapes for a dictionary of observations."""
        return each(lambda _, shape: (0,) * self._allocates_placeholders + shape, self._obs_shape)

    @obs_shape.setter
    def obs_shape(self, shape: Any) -> None:
        if self._arrays is not None:
            what = f"obs_shape of a {type(self).__name__} can't be changed, it is {self._obs_shape}"
            raise AttributeError(f"{what}: make another buffer")
        name, takes_dict = type(self).__name__, isinstance(self, (buffers.DictReplayBuffer, buffers.DictRolloutBuffer))
        if isinstance(shape, dict) and not takes_dict:  # the other way round, SB3 itself says so
            other = "CompressedDict" + ("RolloutBuffer" if isinstance(self, buffers.RolloutBuffer) else "ReplayBuffer")
            what = f"{name} takes observations that are one array, got a space of a dictionary of arrays"
            raise obscodec.DTypeError(f"{what}: use another class, such as {other}")
        keys = shape if isinstance(shape, dict) else {}
        for key in [key for key, of_key in keys.items() if isinstance(of_key, dict)]:
            raise obscodec.DTypeError(
                f"{name} takes observations that are a dictionary of arrays, got a dictionary under {key!r}, which "
                "Stable-Baselines3 does not support: wrap the environment in gymnasium.wrappers.FlattenObservation, or "
                "in an ObservationWrapper that gives one dictionary"
            )
        self._obs_shape = shape

    @property
    def observation_store(self) -> Any:
        """The store of the observations, None if they are not compressed; a dictionary of stores for a dictionary."""
        return each(lambda key, _: self._arrays.stores[key], self._obs_shape)

    def reset(self) -> None:
        """Forget all steps."""
        bits = {name: array for name, array in vars(self).items() if isinstance(array, Bits)}
        self._bits = (self._bits - bits.keys()) | {name for name, array in bits.items() if array.is_packed}
        # Where sb3-contrib's own code makes masks, all alike, one number stands for each of them.
        is_stock = super().reset.__func__.__module__ == "sb3_contrib.common.maskable.buffers"  # type: ignore[attr-defined]
        self._allocates_short_masks = is_stock and self._options.codec is not None
        try:
            with self._placeholders_replaced():
                super().reset()
        finally:
            is_short, self._allocates_short_masks = self._allocates_short_masks, False
        if is_short:
            self.mask_dims, masks = self._in_mask, vars(self)["action_masks"]
            shape = *masks.shape[:2], self.mask_dims
            is_long = is_large_row(shape[-1] * masks.itemsize)
            self.action_masks = Bits(shape, masks[0, 0]) if is_long else np.broadcast_to(masks, shape).copy()

    @property
    def mask_dims(self) -> int:
        """How many numbers a mask of sb3-contrib has."""
        try:
            n: int = self.__dict__["mask_dims"]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no mask_dims: its actions have no masks") from None
        return n

    @mask_dims.setter
    def mask_dims(self, n: int) -> None:
        self._in_mask = n
        vars(self)["mask_dims"] = 1 if self._allocates_short_masks else n

    def to_torch(self, array: Any, copy: bool = True) -> Any:
        """``array`` on the device of the buffer. A GPU copies it from pinned memory, in the background."""
        if isinstance(array, Selection):
            return array  # which is decoded later, with the rest of the batch
        if self.device.type != "cuda":
            return super().to_torch(array, copy)
        return th.as_tensor(array).pin_memory().to(self.device, non_blocking=True)

    def decide(self) -> None:
        """Wait until the codecs are chosen, by the steps so far, and all observations are compressed with them.

        Without this call, both happen in the background as soon as there are ``decide_after`` observations.
        """
        with self._lock:
            self._arrays.flush()
        for store in self._arrays.own_stores:
            store.decide()

    def stats(self) -> BufferStats:
        """What the buffer holds now, and how long sampling took.

        Fields are observations by key, ``""`` for an observation without one, and large arrays beside them that take
        less memory, such as action masks, by the name of the attribute; other arrays are actions, rewards etc.
        """
        with self._lock:
            return self._stats()

    def _stats(self) -> BufferStats:
        stats, used = self._arrays.stats(self.size() * self.n_envs), self.size() / self.buffer_size
        bits = {name: array.stats(used) for name, array in self._packed.items()}
        other_bytes = self._other_bytes - sum(array.memory_bytes for array in self._packed.values())
        raw_bytes = sum(array.nbytes for array in self._others)
        stats = replace(
            stats,
            fields={**stats.fields, **bits},
            other_bytes=round(used * other_bytes),
            raw_bytes=stats.raw_bytes + round(used * raw_bytes),
        )
        return self._memory.stats(stats, self.size(), self._memory_bytes())

    @property
    def _observed(self) -> set[str]:
        """The attributes that have observations."""
        return self._arrays.names - self._beside

    @property
    def _others(self) -> list[Any]:
        """The arrays that are no observations, nor compressed."""
        kinds, names = (np.ndarray, CodedArray), self._observed
        return [array for name, array in vars(self).items() if isinstance(array, kinds) and name not in names]

    @property
    def _packed(self) -> dict[str, Bits]:
        """Those of which each number takes a bit."""
        return {name: array for name, array in vars(self).items() if isinstance(array, Bits) and array.is_packed}

    @property
    def _other_bytes(self) -> int:
        """Their memory, when all of it is written."""
        return sum(x.memory_bytes if isinstance(x, (Bits, Column)) else x.nbytes for x in self._others)

    @property
    def _n_rows(self) -> int:
        """How many rows were ever written."""
        return int(self.buffer_size if self.full else self.pos)

    def _memory_bytes(self) -> int:
        """About the memory of the buffer when it has a few steps more."""
        return self._memory_of(min(self._n_rows + LOOK_EVERY, self.buffer_size))

    def _memory_of(self, n: int) -> int:
        return self._arrays.memory_bytes(n) + n * self._other_bytes // self.buffer_size

    def _look(self) -> None:
        """Every few steps, before the next one comes: look at the memory, and free what exceeds the limit."""
        self._pack()
        self._memory.look(self.size, self._memory_bytes, self._arrays.own_stores, self._stats, self._drop)

    def _pack(self) -> None:
        """Give large arrays that are no observations a form that takes less memory, if their rows so far suggest it.

        An array that SB3 has made anew has the form again that it had.
        """
        n, arrays = self._n_rows, vars(self)
        if self._options.codec is None or n > MOST_ROWS:
            return
        left_alone = self._observed | self._stay_plain
        for name in [name for name in arrays if name not in left_alone]:
            if isinstance(arrays[name], Bits) and not arrays[name].is_packed:
                arrays[name] = arrays[name][...]
            if not is_large(arrays[name], self.buffer_size) or is_shared(arrays, name):
                continue
            array = arrays[name]
            seen, n_written = newest(array, n), min(n + 1, len(array))  # an ``add`` of a user may come before ours
            if name in self._bits or (seen.any() and Bits.of(seen)):
                arrays[name] = Bits.of(array) or array
            elif array.shape[1] != self.n_envs or array[n_written:].any():
                pass
            elif name in self._beside:
                layout = self._arrays.fields[name].layout
                if (array.shape[2:], array.dtype) == (layout.shape, layout.dtype):
                    made = self._arrays.zeros(name, name, len(array), waiting=self._waiting)
                    made[0] = array[0]
                    arrays[name] = made
            elif seen.any() and name not in self._arrays.fields and repeats(seen):
                self._compress(name, n_written)

    def _compress(self, name: str, n_rows: int) -> None:
        """Compress an array ``[buffer_size, n_envs, ...]`` that is no observation, of which some rows are written."""
        array, decide_after = vars(self)[name], self._options.decide_after
        field = obscodec.Field(array.shape[2:], array.dtype, min_nbytes=0, budget="fast", decide_after=decide_after)
        store = field.new_store(self._given["threads"])
        assert store is not None
        made = obscodec.TensorArray.zeros(array.shape[:2], store, WriteBuffer(store, self.n_envs, self._waiting))
        for row in range(n_rows):
            made[row] = array[row]
        arrays = self._arrays.with_array(name, field, made)
        vars(self).update({"_arrays": arrays, "_beside": self._beside | {name}, name: made})  # in one step

    def _drop(self, n: int) -> None:
        """Drop the oldest ``n`` steps."""
        raise NotImplementedError

    def end_episodes(self, envs: npt.ArrayLike | None = None) -> None:
        """End the running episodes, as truncated ones: the next transition of an environment begins another.

        :meth:`load` and ``resume`` call it. See ``obscodec.RingBuffer.end_episodes``, for ``envs`` and the errors, too.
        """
        chosen = as_envs(envs, self.n_envs)
        self._lock.refuse_nested()
        with self._lock:
            self._end(chosen)

    @abstractmethod
    def _end(self, envs: npt.NDArray[np.int64]) -> None:
        """:meth:`end_episodes` for environments that there are."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return versioned(super().__reduce_ex__(protocol), "obscodec_sb3")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the buffer in a folder, from which :meth:`load` makes it again, in any later version.

        Observations are written as they are stored, and not decoded. A snapshot that the folder has already is replaced
        as soon as the new one is complete: a failed or killed save leaves it as it was.

        Args:
            path: the folder, such as ``"buffer_100000_steps"`` beside the file of ``model.save``.

        Raises:
            DTypeError: an array has Python objects, such as the infos of HerReplayBuffer with ``copy_info_dict``.
            SnapshotError: the folder has other files, or another process saves to it.
            OSError: the disk is full, or refuses.
        """
        write_snapshot(self, path)

    @overload
    @classmethod
    def load(cls, path: str | os.PathLike[str], *, salvage: Literal[False] = False, **arguments: Any) -> Self: ...

    @overload
    @classmethod
    def load(cls, path: str | os.PathLike[str], *, salvage: bool, **arguments: Any) -> Any: ...

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        generation: int | None = None,
        mmap: bool = False,
        salvage: bool = False,
        max_bytes: int | None = None,
        spill: str | os.PathLike[str] | None = None,
        continue_episodes: bool = False,
        **arguments: Any,
    ) -> Any:
        """The buffer that :meth:`save` has saved, equal in all that it holds; assign it to ``model.replay_buffer``.

        The episodes that were running end: see :meth:`end_episodes`. ``generation``, ``mmap``, ``salvage``,
        ``max_bytes``, ``spill`` and ``continue_episodes`` are those of ``obscodec.load``. ``arguments`` are of the
        constructor, in place of the saved ones: ``device``, which is ``"auto"`` otherwise, ``buffer_device``, ``heap``,
        ``threads`` and ``prefetch``; for HerReplayBuffer, ``env``. Others must be as they were saved, which is found
        before anything is read.

        Returns:
            The buffer; with ``salvage``, ``Salvaged``, which has it.

        Raises:
            SnapshotError: the folder has no snapshot, or of another class; or a file of it is damaged or missing.
            SpecError: an argument is another one than was saved; the text has both. :meth:`with_envs` of a replay
                buffer converts it to another ``n_envs``.

        Example:
            >>> import tempfile
            >>> from gymnasium import spaces
            >>> from obscodec_sb3 import CompressedReplayBuffer
            >>> buffer = CompressedReplayBuffer(1000, spaces.Box(0, 255, (4, 84, 84), "uint8"), spaces.Discrete(6))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     buffer.save(folder)
            ...     CompressedReplayBuffer.load(folder, device="cpu").buffer_size
            1000
        """

        def make(kind: str, saved: State, path: str) -> CompressedBuffer:
            if kind != cls.__name__:
                by = f"{kind}.load" if kind.startswith("Compressed") else "obscodec.load"
                raise obscodec.SnapshotError(f"{path} has a {kind}: call {by}")
            with named(path):
                of_spaces = {name: space_of(saved[name]) for name in SPACES}
                refuse_unknown(kind, saved.keys() - cls.__signature__.parameters.keys(), saved)  # type: ignore[attr-defined]
            check_arguments(cls, saved, arguments, path)
            return cls(**{**saved, **of_spaces, **arguments})

        if Path(path).is_file():
            what = "a snapshot is a folder; what save_replay_buffer wrote is for model.load_replay_buffer"
            raise obscodec.SnapshotError(f"{path} is a file: {what}")
        limits: Any = {"max_bytes": max_bytes, "spill": spill, "continue_episodes": continue_episodes}
        return load(path, generation=generation, mmap=mmap, salvage=salvage, **limits, by=make)

    def forget_damaged(self) -> npt.NDArray[np.int64]:
        """Set observations that can't be decoded to zero, after a damaged snapshot was loaded; see ``Salvaged``.

        Returns:
            ``i64[n, 2]``: the rows of the buffer, as in ``buffer.observations[row]``, and the environments.
        """
        return self._arrays.forget_damaged()

    def arguments(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        names = {name for of in type(self).__mro__ for name in inspect.signature(of).parameters} & vars(self).keys()
        own = {name: plain(getattr(self, name)) for name in sorted(names - {"device", "env"})}
        spaces = {name: space_state(getattr(self, name)) for name in SPACES}
        is_replay = isinstance(self, buffers.ReplayBuffer)  # whose size is of all environments, as an argument
        size = self.buffer_size * self.n_envs if is_replay else self.buffer_size
        return {**own, **spaces, **self._given, "spill": self._given["spill"] is not None, "buffer_size": size}

    def state(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        with self._lock:
            n_steps, arrays, numbers = self._n_rows, {}, {}
            for name, value in vars(self).items():
                if isinstance(value, (Bits, Column)):
                    is_flat = len(value) != self.buffer_size  # then all of it was written
                    arrays[name] = value.state(len(value) if is_flat else n_steps)
                elif isinstance(value, np.ndarray) and name not in self._observed:
                    if value.dtype.hasobject and any(value.flat):
                        what = f"{name} has Python objects, which a snapshot can't have: remove this attribute"
                        raise obscodec.DTypeError(f"{what}; with HerReplayBuffer, leave copy_info_dict out")
                    if not value.dtype.hasobject:
                        used = value[:n_steps] if len(value) == self.buffer_size else value
                        arrays[name] = {"items": used.copy()}
                elif isinstance(value, (bool, int, float)) and not name.startswith("_"):
                    numbers[name] = value
            dtypes = {key: field.layout.dtype.str for key, field in self._arrays.fields.items()}
            observations = {"observations": self._arrays.state(n_steps), "dtypes": dtypes}
            shape = self.buffer_size, self.n_envs
            flat = sorted(name for name in self._beside if vars(self)[name].shape[:2] != shape)
            return {"arrays": arrays, "numbers": numbers, "n_steps": n_steps, **observations, "flat": flat}

    def restore(self, state: State) -> None:
        """See ``obscodec.snapshots.Saved``."""
        n_steps = number_of(state, "n_steps", 0, self.buffer_size)
        observations = part_of(state, "observations", dict)
        for of in part_of(observations, "arrays", list):
            if (name := of["field"]) not in self._arrays.fields:
                if np.shape(vars(self).get(name, 0))[:2] != (self.buffer_size, self.n_envs):
                    raise obscodec.CorruptStream(f"{name!r} is no array [buffer_size, n_envs, ...] of this buffer")
                self._compress(name, 0)
        self._arrays.restore(observations, np.arange(n_steps))
        for name, of in part_of(state, "arrays", dict).items():
            array = vars(self)[name]
            if "bits" in of:
                vars(self)[name] = Bits.restored(of, array)
                continue
            items = part_of(of, "items", np.ndarray)
            if isinstance(array, Column):
                array.restore(of)
            elif array is None:  # a recurrent rollout has some once it was read
                vars(self)[name] = items.copy()
            elif items.dtype == array.dtype and items.shape[1:] == array.shape[1:] and len(items) <= len(array):
                array[: len(items)] = items
            elif items.dtype == array.dtype and items.size == array.size:  # flattened by a rollout buffer
                vars(self)[name] = items.copy()
            else:
                raise obscodec.CorruptStream(f"{name} is {array.dtype} {array.shape}, got {items.dtype} {items.shape}")
        for name, number in part_of(state, "numbers", dict).items():
            if type(vars(self)[name]) is not type(number):
                raise obscodec.CorruptStream(f"{name} is {vars(self)[name]!r}, got {number!r}")
            vars(self)[name] = number
        for name in self._beside.intersection(state.get("flat", ())):
            vars(self)[name] = self.swap_and_flatten(vars(self)[name])
        if not 0 <= self.pos <= self.buffer_size:
            raise obscodec.CorruptStream(f"pos is in 0..{self.buffer_size}, got {self.pos}")

    @property
    def changing(self) -> PicklableLock:
        """See ``obscodec.snapshots.Saved``."""
        return self._lock

    def manifest(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        layouts = {key: field.layout for key, field in self._arrays.fields.items()}
        layouts |= {name: obscodec.Layout(array.shape[-1:], array.dtype) for name, array in self._packed.items()}
        stats = self.stats()
        named = {name or "observations": held for name, held in stats.fields.items()}
        layouts = {name or "observations": layout for name, layout in layouts.items()}
        return replace(stats, fields=named).manifest(layouts, self.size(), self.n_envs)

    def __repr__(self) -> str:
        steps = f"{self.size():,} of {self.buffer_size:,} steps, n_envs={self.n_envs}"
        return f"{type(self).__name__}({steps}\n  {self._arrays.described(self.stats())})"

    def _steps(self, *observations: Any) -> list[Any]:
        """Observations of all environments, checked, and as SB3's ``add`` takes them; there is room for them then."""
        step, steps = self._arrays.step, list[Any]()
        if isinstance(self._obs_shape, dict):
            steps += [{key: step(key, of) for key, of in self._by_key(obs).items()} for obs in observations]
        else:
            steps += [step("", of) for of in observations]
        self._arrays.reserve(self.pos)
        return steps

    def _by_key(self, obs: Any) -> dict[str, Any]:
        """What a dictionary of observations has under the keys of the space."""
        try:
            return {key: obs[key] for key in self._obs_shape}
        except (IndexError, KeyError, TypeError):
            keys, found = ", ".join(map(str, self._obs_shape)), [*obs] if isinstance(obs, dict) else obs
            raise obscodec.FieldError(
                f"observations are a dictionary with the keys {keys}, got {reprlib.repr(found)}"
            ) from None

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        return self._together(super()._get_samples, *args, **kwargs)  # type: ignore[safe-super]

    def _together(self, get: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of SB3's ``get``; decodes observations and next observations together if possible."""
        read = partial(get, *args, **kwargs)
        normalizes = any(isinstance(given, VecNormalize) for given in (*args, *kwargs.values()))
        is_deferred = OPEN_READ.get() is not None
        return read() if normalizes or not self._hands_on or is_deferred else self._deferred(read).result()

    def _deferred(self, read: Callable[[], Any]) -> DeferredRead:
        looked_at = [self._arrays.stores.get(key) for key in (*self._looks_at, *self._beside)]
        return DeferredRead(read, self._batch_array, partial(self.to_torch, copy=False), looked_at)

    def _batch_array(self, store: Store, n: int) -> Any:
        """An array ``[n, *shape]`` to decode into: on the GPU, in pinned memory for a GPU, or in reused memory."""
        layout = store.layout
        if store.device != "cpu":
            return th.empty((n, *layout.shape), dtype=getattr(th, layout.dtype.name), device=self.device)
        if self.device.type != "cuda":
            return BATCH_MEMORY.array(n, layout)
        return layout.tensors(th.empty((n, layout.nbytes), dtype=th.uint8, device="cpu", pin_memory=True).numpy())

    @contextmanager
    def _placeholders_replaced(self) -> Iterator[None]:
        """A context in which SB3 allocates placeholders; compressed arrays take their places at its end."""
        before, self._allocates_placeholders = self._allocates_placeholders, True
        try:
            yield
        finally:
            self._allocates_placeholders = before
        shapes = self._obs_shape if isinstance(self._obs_shape, dict) else {"": self._obs_shape}
        for name, value in list(vars(self).items()):
            arrays = value if isinstance(value, dict) else {"": value}
            if arrays.keys() != shapes.keys() or not all(_is_placeholder(arrays[key], shapes[key]) for key in shapes):
                continue
            if self._arrays is None:
                check_place(self._options.buffer_device, self._options.heap, partial(th.empty, 1, device=self.device))
                layouts = {key: obscodec.Layout(shapes[key], array.dtype) for key, array in arrays.items()}
                fields = self._options.fields_of(layouts, budget=self._default_budget)
                more = {"n_steps": self.buffer_size, "twice": self._stores_next}
                self._arrays = ArraySet(fields, self.n_envs, self._given["threads"], **more)
            vars(self)[name] = each(partial(self._in_place_of, name), value)

    def _in_place_of(self, name: str, key: str, placeholder: Any) -> Any:
        """The compressed array for a placeholder ``[n_steps, n_envs, 0, *obs_shape]``."""
        layout, found = self._arrays.fields[key].layout, (placeholder.shape[1:], placeholder.dtype)
        if found != ((self.n_envs, 0, *layout.shape), layout.dtype):
            raise obscodec.DTypeError(
                f"{name} is {placeholder.dtype} {placeholder.shape}, expected [buffer_size, n_envs, *obs_shape]"
            )
        return self._arrays.zeros(name, key, len(placeholder), waiting=self._waiting)


def _is_placeholder(value: object, shape: tuple[int, ...]) -> bool:
    """Whether a value is an array ``[..., 0, *shape]``, which takes no memory."""
    return isinstance(value, np.ndarray) and value.shape[-1 - len(shape) :] == (0, *shape)


def each(function: Callable[[str, Any], Any], of: Any) -> Any:
    """``function`` of each key and value of a dictionary; of ``""`` and ``of`` if that is no dictionary."""
    return {key: function(key, value) for key, value in of.items()} if isinstance(of, dict) else function("", of)
