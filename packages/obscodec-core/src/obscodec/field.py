"""Field: what one step of one environment has under one name, and the array that keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from obscodec.arrays import ArrayLike, as_array, as_dtype
from obscodec.auto_store import AutoStore
from obscodec.batch_memory import BATCH_MEMORY
from obscodec.choice import parse_budget
from obscodec.dlpack import SupportsDLPack
from obscodec.errors import FieldError, ShapeError, SpecError
from obscodec.frame_stack import FrameStack
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.store import Store, StoreStats
from obscodec.tensor_array import TensorArray

MIN_COMPRESSED_NBYTES = 1024  # below, a field is a vector, and takes little as it is

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Field:
    """What one step of one environment has in a field.

    Attributes:
        shape: its shape, ``()`` for a scalar.
        dtype: its dtype.
        codec: the spec of the codec that compresses it, such as ``"delta-rle"``; ``"auto"`` to find the best one, if
            the field has 1 KiB or more; None for a plain numpy array.
        frame_stack: how its steps are made of frames, None to find out.
        budget: for ``"auto"``, how long reading a batch of 256 may take, such as ``"1 ms/batch"``.
        max_bytes: the most bytes to reserve for its streams, None for no limit.
        shares: the field of the same shape and dtype whose store keeps this one too, with its codec and its limits:
            ``next_obs`` shares that of ``obs``, and each frame is stored once.

    Example:
        >>> Field((84, 84), np.uint8, "zstd:1").codec
        'zstd:1'
    """

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    codec: str | None = "auto"
    frame_stack: FrameStack | None = None
    budget: str | None = None
    max_bytes: int | None = None
    shares: str | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            parse_budget(self.budget)
            if self.codec != "auto":
                raise SpecError(f"a budget is for the codec 'auto', got it for {self.codec!r}")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise ShapeError(f"max_bytes must be 1 or more, got {self.max_bytes}")
        if self.shares is not None and (self.codec != "auto" or self.frame_stack or self.max_bytes or self.budget):
            raise FieldError(
                "a field that shares a store has its codec, frame stack, budget and limit: name none of them"
            )

    @cached_property
    def layout(self) -> Layout:
        """The layout of one step of one environment."""
        return Layout(self.shape, self.dtype)

    def zeros(self, n_steps: int, n_envs: int, threads: int | None = None) -> Array | TensorArray:
        """An array ``[n_steps, n_envs, *shape]``, compressed if there is a codec.

        Raises:
            SpecError: the spec names no codec, or the budget is malformed.
            ShapeError: the field does not divide into such a frame stack.
            DTypeError: the dtype can't be stored.
        """
        layout = self.layout
        small = self.codec == "auto" and layout.nbytes < MIN_COMPRESSED_NBYTES
        if self.codec is None or small or layout.nbytes == 0:
            return np.zeros((n_steps, n_envs, *layout.shape), layout.dtype)
        store = AutoStore(
            layout,
            codec=self.codec,
            frame_stack=self.frame_stack,
            budget=self.budget,
            max_bytes=self.max_bytes,
            threads=threads,
        )
        return TensorArray.zeros((n_steps, n_envs), store)

    def step(self, value: ArrayLike | npt.ArrayLike, n_envs: int) -> Array:
        """``value`` as ``[n_envs, *shape]`` of the dtype; the leading axis may be missing if there is one environment.

        Raises:
            ShapeError: it has another shape.
            DTypeError: it would be changed by the dtype.
        """
        layout = self.layout
        if type(value) is np.ndarray and value.dtype == layout.dtype and value.shape == (n_envs, *layout.shape):
            return value
        array = value
        if not isinstance(array, np.ndarray):
            array = as_array(value) if isinstance(value, SupportsDLPack) else np.asarray(value)
        if n_envs == 1 and array.shape == layout.shape:
            array = array[None]
        if array.shape != (n_envs, *layout.shape):
            raise ShapeError(f"expected shape {(n_envs, *layout.shape)}, got {array.shape}")
        return as_dtype(array, layout.dtype)


@dataclass(frozen=True, slots=True)
class RingStats:
    """What a ring buffer holds.

    Attributes:
        fields: for each field the bytes of its steps, or what its store holds.
        raw_bytes: what all steps would take uncompressed and without stacks.
        total_bytes: what they take, the ids of the compressed fields included.
    """

    fields: Mapping[str, StoreStats | int]
    raw_bytes: int
    total_bytes: int

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for an empty buffer."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0


def choose(array: Array | TensorArray, at: Ints, envs: Ints, keep: npt.NDArray[np.bool_] | None = None) -> Array:
    """The items at ``array[at, envs]``, zeros where ``keep`` is false; of a compressed array their ids."""
    chosen = np.asarray((array if isinstance(array, np.ndarray) else array.ids)[at, envs])
    if keep is not None:
        chosen[~keep] = 0  # the id of the zero tensor, too
    return chosen


def read_together(store: Store, ids: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors with the ids of several fields, in one call to their store: frames that they share are decoded once.

    The arrays lie one behind the other in memory that is used again when all of them are gone.
    """
    flat = np.concatenate([i.reshape(-1) for i in ids.values()])
    tensors = store.read(flat, BATCH_MEMORY.array(len(flat), store.layout))
    ends = np.cumsum([i.size for i in ids.values()])
    return {
        name: part.reshape(*i.shape, *store.layout.shape)
        for (name, i), part in zip(ids.items(), np.split(tensors, ends[:-1]), strict=True)
    }
