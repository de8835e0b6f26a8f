"""CompressedBuffer: SB3's own code on compressed arrays of observations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import obscodec
import torch as th
from stable_baselines3.common import buffers
from stable_baselines3.common.vec_env import VecNormalize

from obscodec_sb3.migration import refuse_former

COMPRESSED: dict[type, type[CompressedBuffer]] = {}  # of each class of buffers the compressed one
_COPY = ("stable_baselines3.", "sb3_contrib.", "obscodec_sb3.")  # their add copies an observation, then assigns it


class CompressedBuffer(buffers.BaseBuffer):
    """What all compressed buffers have in common; comes before a buffer of SB3 among the bases of a class.

    While SB3's constructor and ``reset`` allocate their arrays, ``obs_shape`` has a 0 in front. So they allocate no
    memory for observations, and each array that ends in this shape is one of observations: a compressed array takes
    its place, and SB3's own methods work on that. All arrays of one observation share a store, where a frame that they
    have in common is stored once.
    """

    _is_hollow = False
    _waiting = 3  # observations that wait to be stored together, of a step each
    _arrays: obscodec.ArraySet = None  # type: ignore[assignment]  # until there are some

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if len(cls.__bases__) > 1 and cls.__module__.startswith("obscodec_sb3"):  # one of ours before one of SB3
            COMPRESSED[cls.__bases__[1]] = cls

    def __init__(
        self,
        *args: Any,
        codec: Any = "auto",
        frame_stack: Any = None,
        budget: Any = None,
        threads: Any = None,
        **kwargs: Any,
    ) -> None:
        refuse_former(kwargs)
        self._options, self._threads = {"codec": codec, "frame_stack": frame_stack, "budget": budget}, threads
        self._lends = all(vars(c)["add"].__module__.startswith(_COPY) for c in type(self).__mro__ if "add" in vars(c))
        # in SB3's own code and ours, what is read of observations is handed on to to_torch, and looked at nowhere
        of: Any = [type(self), super()]
        found = {getattr(c, name).__module__ for c in of for name in ("_get_samples", "_normalize_obs", "to_torch")}
        self._hands_on = found <= {buffers.__name__, "obscodec_sb3.base", "obscodec_sb3.rollout"}
        with self._hollow():
            super().__init__(*args, **kwargs)

    @property
    def obs_shape(self) -> Any:
        """The shape of an observation, of each key if it is a dictionary."""
        return _each(lambda _, shape: (0,) * self._is_hollow + shape, self._obs_shape)

    @obs_shape.setter
    def obs_shape(self, shape: Any) -> None:
        if isinstance(shape, dict) and not isinstance(self, (buffers.DictReplayBuffer, buffers.DictRolloutBuffer)):
            what = f"{type(self).__name__} takes observations that are one array, got a dictionary space"
            raise obscodec.DTypeError(f"{what}: use a class for dictionaries, such as CompressedDictReplayBuffer")
        self._obs_shape = shape

    @property
    def observation_store(self) -> Any:
        """Where the observations are, None if they are not compressed; of each key if they are a dictionary."""
        return _each(lambda key, _: self._arrays.stores[key], self._obs_shape)

    def reset(self) -> None:
        """Forget all steps."""
        with self._hollow():
            super().reset()

    def to_torch(self, array: Any, copy: bool = True) -> Any:
        """``array`` on the device of the buffer; a GPU copies it from pinned memory, and nobody waits for that."""
        if isinstance(array, obscodec.Selected):
            return array  # until all of the batch is decoded
        if self.device.type != "cuda":
            return super().to_torch(array, copy)
        return th.as_tensor(array).pin_memory().to(self.device, non_blocking=True)

    def stats(self) -> obscodec.RingStats:
        """What the buffer holds now, and how long its samples took; the field of a plain observation is ``""``."""
        return self._arrays.stats(self.size() * self.n_envs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size()} of {self.buffer_size} steps, n_envs={self.n_envs}, {self.stats()})"

    def _step(self, obs: Any) -> Any:
        """Observations of one step as SB3's ``add`` takes them, checked."""
        if isinstance(self._obs_shape, dict):
            return {key: self._arrays.step(key, obs[key], lend=self._lends) for key in self._obs_shape}
        return self._arrays.step("", obs, lend=self._lends)

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        """SB3's; observations and next ones, which have frames in common, are decoded together if that can wait."""
        get = partial(super()._get_samples, *args, **kwargs)  # type: ignore[safe-super]
        normalizes = any(isinstance(given, VecNormalize) for given in (*args, *kwargs.values()))
        return get() if normalizes or not self._hands_on or obscodec.open_reading() else self._reading(get).result()

    def _reading(self, read: Callable[[], Any]) -> obscodec.Reading:
        return obscodec.Reading(read, self._batch_array, partial(self.to_torch, copy=False))

    def _batch_array(self, n: int, layout: obscodec.Layout) -> np.ndarray:
        """``[n, *shape]`` to decode into: for a GPU memory that torch has pinned, else that of all buffers."""
        if self.device.type != "cuda":
            return obscodec.BATCH_MEMORY.array(n, layout)
        return layout.tensors(th.empty((n, layout.nbytes), dtype=th.uint8, pin_memory=True).numpy())

    @contextmanager
    def _hollow(self) -> Iterator[None]:
        """Let SB3 allocate its arrays without their observations; then compressed arrays take their places."""
        before, self._is_hollow = self._is_hollow, True
        try:
            yield
            hollow = self.obs_shape if isinstance(self.obs_shape, dict) else {"": self.obs_shape}
        finally:
            self._is_hollow = before
        for name, value in list(vars(self).items()):
            of_keys = value if isinstance(value, dict) else {"": value}
            if {key: _tail(array, hollow.get(key, ())) for key, array in of_keys.items()} == hollow:
                if self._arrays is None:
                    layouts = {key: obscodec.Layout(hollow[key][1:], array.dtype) for key, array in of_keys.items()}
                    fields = obscodec.fields_of(layouts, **self._options)
                    self._arrays = obscodec.ArraySet(fields, self.n_envs, self._threads)
                vars(self)[name] = _each(partial(self._zeros, name), value)

    def _zeros(self, name: str, key: str, hollow: np.ndarray) -> Any:
        """A compressed array in the place of one without observations."""
        layout = self._arrays.fields[key].layout
        if (hollow.shape[1:], hollow.dtype) != ((self.n_envs, 0, *layout.shape), layout.dtype):
            raise TypeError(f"{name} is {hollow.dtype} {hollow.shape}, expected [buffer_size, n_envs, *obs_shape]")
        return self._arrays.zeros(name, key, len(hollow), waiting=self._waiting)


def _tail(array: Any, like: tuple[int, ...]) -> Any:
    """The last axes of an array, as many as ``like`` has."""
    return array.shape[-len(like) :] if isinstance(array, np.ndarray) and like else None


def _each(function: Callable[[str, Any], Any], of: Any) -> Any:
    """``function`` of each key and value of a dictionary, or of ``""`` and what is none."""
    return {key: function(key, value) for key, value in of.items()} if isinstance(of, dict) else function("", of)
