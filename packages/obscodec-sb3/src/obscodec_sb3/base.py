"""CompressedBuffer: SB3's own code on compressed arrays of observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import obscodec
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, DictRolloutBuffer

from obscodec_sb3.lent import Lent
from obscodec_sb3.migration import refuse_former

Names = str | None | Mapping[str, str | None]  # for all keys of a dictionary space, or those of some
Stacks = obscodec.FrameStack | None | Mapping[str, obscodec.FrameStack | None]
COMPRESSED: dict[type, type[CompressedBuffer]] = {}  # of each class of buffers the compressed one


@dataclass(frozen=True, slots=True)
class BufferStats(obscodec.RingStats):
    """What a buffer holds, and how long its samples took.

    Attributes:
        fields: for each key of a dictionary space, ``""`` if it is none, what its store holds; the bytes of its arrays
            if they are not compressed. Observations and next observations are in one store.
        raw_bytes: what the observations would take uncompressed.
        total_bytes: what they take, the ids included.
        n_samples: how many batches were given out.
        sample_s: how many seconds that took.
    """

    n_samples: int
    sample_s: float


class CompressedBuffer(BaseBuffer):
    """What all compressed buffers have in common; comes before a buffer of SB3 among the bases of a class.

    While SB3's constructor and ``reset`` allocate their arrays, ``obs_shape`` has a 0 in front. So they allocate no
    memory for observations, and each array that ends in this shape is one of observations: a compressed array takes
    its place, and SB3's own methods work on that. All arrays of one observation share a store, where a frame that they
    have in common is stored once.
    """

    _is_hollow = False
    _lends = False  # whether all methods named add take arrays that are Lent
    _made: ClassVar[bool] = False  # by compressed(), so that pickle can't find the class by its name
    _staged: ClassVar[bool]  # whether steps may wait to be stored together
    _stock: ClassVar[type[BaseBuffer]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if len(cls.__bases__) > 1:  # one of ours before one of SB3
            cls._stock = stock = cls.__bases__[1]
            cls._made = "_made" in vars(cls)
            COMPRESSED.setdefault(stock, cls)
            adds = [vars(base)["add"] for base in stock.__mro__ if "add" in vars(base)]
            cls._lends = all(add.__module__.startswith(("stable_baselines3.", "sb3_contrib.")) for add in adds)

    def __init__(
        self,
        *args: Any,
        codec: Any = "auto",
        frame_stack: Any = None,
        budget: Any = None,
        threads: Any = None,
        **kw: Any,
    ) -> None:
        refuse_former(kw)
        self._options = {"codec": codec, "frame_stack": frame_stack, "budget": budget, "threads": threads}
        self._n_samples, self._sample_s = 0, 0.0
        with self._hollow():
            super().__init__(*args, **kw)
        self._fitting = {
            key: ((self.n_envs, *field.shape), field.layout.dtype, self._lends and self._set.stores[key] is not None)
            for key, field in self._set.fields.items()
            if not isinstance(self._spaces[key], spaces.Discrete)
        }

    if not TYPE_CHECKING:  # it is an attribute in BaseBuffer

        @property
        def obs_shape(self):
            """The shape of an observation, of each key if it is a dictionary."""
            shape, hollow = vars(self)["obs_shape"], (0,) * self._is_hollow
            return {key: hollow + s for key, s in shape.items()} if isinstance(shape, dict) else hollow + shape

        @obs_shape.setter
        def obs_shape(self, shape):
            self._set_layouts(shape)
            vars(self)["obs_shape"] = shape

    @property
    def observation_store(self) -> obscodec.Store | None:
        """Where the observations are, None if they are not compressed or a dictionary."""
        return self._set.stores.get("")

    def reset(self) -> None:
        """Forget all steps."""
        with self._hollow():
            super().reset()

    def to_torch(self, array: np.ndarray, copy: bool = True) -> th.Tensor:
        """``array`` on the device of the buffer; a GPU copies it from pinned memory, and nobody waits for that."""
        if self.device.type != "cuda":
            return super().to_torch(array, copy)
        return th.as_tensor(array).pin_memory().to(self.device, non_blocking=True)

    def stats(self) -> BufferStats:
        """What the buffer holds now, and how long its samples took."""
        held = self._set.stats(self.size() * self.n_envs)
        return BufferStats(held.fields, held.raw_bytes, held.total_bytes, self._n_samples, self._sample_s)

    def __repr__(self) -> str:
        held, name = self.stats(), type(self).__name__
        of_bytes = f"{held.raw_bytes} bytes of observations in {held.total_bytes}, {held.ratio:.1f} times smaller"
        return f"{name}({self.size()} of {self.buffer_size} steps, n_envs={self.n_envs}, {of_bytes})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not self._made:
            return super().__reduce_ex__(protocol)
        return _empty, (self._stock,), self.__getstate__()

    def _step(self, obs: Any) -> Any:
        """Observations of one step as SB3's ``add`` takes them, checked; see ``Field.step``."""
        fields = self._set.fields
        return self._row("", obs) if "" in fields else {key: self._row(key, obs[key]) for key in fields}

    def _row(self, key: str, obs: Any) -> Any:
        if key not in self._fitting:  # SB3 reshapes what is discrete
            return self._set.step(key, np.reshape(obs, (self.n_envs, *self._set.fields[key].shape)), self.n_envs)
        shape, dtype, lends = self._fitting[key]
        fits = type(obs) is np.ndarray and obs.shape == shape and obs.dtype == dtype
        row = obs if fits else self._set.step(key, obs, self.n_envs)
        return Lent(row) if lends else row

    @contextmanager
    def _measured(self) -> Iterator[None]:
        began = perf_counter()
        yield
        self._n_samples, self._sample_s = self._n_samples + 1, self._sample_s + perf_counter() - began

    @contextmanager
    def _hollow(self) -> Iterator[None]:
        """Let SB3 allocate its arrays without their observations; then compressed arrays take their places."""
        before, self._is_hollow = self._is_hollow, True
        try:
            yield
        finally:
            self._is_hollow = before
        for name, value in list(vars(self).items()):
            arrays = value if isinstance(value, dict) else {"": value}
            if arrays and all(self._is_of_observations(key, array) for key, array in arrays.items()):
                made = {key: self._set.zeros(name, key, a.shape[:2], staged=self._staged) for key, a in arrays.items()}
                vars(self)[name] = made if isinstance(value, dict) else made[""]

    def _is_of_observations(self, key: str, array: Any) -> bool:
        return (
            isinstance(array, np.ndarray)
            and key in self._spaces
            and array.shape[2:] == (0, *self._set.fields[key].shape)
        )

    def _set_layouts(self, shape: Any) -> None:
        is_dict, space = isinstance(shape, dict), self.observation_space
        if is_dict and not isinstance(self, (DictReplayBuffer, DictRolloutBuffer)):
            name = type(self).__name__
            raise obscodec.DTypeError(
                f"{name} takes observations that are one array, got a dictionary space: use "
                f"{name.replace('Compressed', 'CompressedDict')}"
            )
        self._spaces = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
        shapes = shape if is_dict else {"": shape}
        layouts = {key: obscodec.Layout(shapes[key], of_key.dtype or object) for key, of_key in self._spaces.items()}
        self._set = obscodec.ArraySet(layouts, **self._options)


def _empty(stock: type[BaseBuffer]) -> CompressedBuffer:
    """A compressed buffer that waits for its state."""
    from obscodec_sb3.compressed import compressed

    buffer_class = compressed(stock)
    return buffer_class.__new__(buffer_class)
