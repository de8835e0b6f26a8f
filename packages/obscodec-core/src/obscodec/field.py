"""Field: what one step of one environment has under one name, and the array that keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from obscodec.arrays import ArrayLike, as_array, as_dtype
from obscodec.auto_store import AutoStore
from obscodec.dlpack import SupportsDLPack
from obscodec.errors import ShapeError
from obscodec.frame_stack import FrameStack
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.store import NO_TENSOR
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
        if self.codec is None or (self.codec == "auto" and layout.nbytes < MIN_COMPRESSED_NBYTES):
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
        array = value
        if not isinstance(array, np.ndarray):
            array = as_array(value) if isinstance(value, SupportsDLPack) else np.asarray(value)
        if n_envs == 1 and array.shape == layout.shape:
            array = array[None]
        if array.shape != (n_envs, *layout.shape):
            raise ShapeError(f"expected shape {(n_envs, *layout.shape)}, got {array.shape}")
        return as_dtype(array, layout.dtype)


def gather(array: Array | TensorArray, at: Ints, envs: Ints, keep: npt.NDArray[np.bool_] | None = None) -> Array:
    """The items at ``array[at, envs]``; zeros where ``keep`` is false."""
    if isinstance(array, np.ndarray):
        items = np.asarray(array[at, envs])
        if keep is not None:
            items[~keep] = 0
        return items
    ids = np.asarray(array.ids[at, envs])
    if keep is not None:
        ids[~keep] = NO_TENSOR
    return array.store.read(ids.reshape(-1)).reshape(ids.shape + array.layout.shape)
