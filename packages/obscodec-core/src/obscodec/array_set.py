"""ArraySet: the arrays of a buffer, those of one field in one store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from obscodec.arrays import ArrayLike
from obscodec.errors import FieldError, LayoutError
from obscodec.field import Array, Field, RingStats
from obscodec.frame_stack import FrameStack
from obscodec.layout import Layout
from obscodec.staging import Staging
from obscodec.store import StoreStats
from obscodec.tensor_array import TensorArray

T = TypeVar("T")


class ArraySet:
    """The arrays of a buffer, compressed field by field.

    Arrays of one field, such as observations and next observations, share a store, and a frame that they have in common
    is stored once.

    Args:
        layouts: for each field the layout of one step of one environment.
        codec: see :class:`Field`; for all fields, or a mapping with those of some fields.
        frame_stack: see :class:`Field`; for all fields, or a mapping.
        budget: see :class:`Field`; for all fields that have the codec ``"auto"``, or a mapping.
        threads: how many threads decode a batch, None for half of the usable processors.

    Attributes:
        fields: the fields by name.
        stores: for each field its store, None if it is not compressed.

    Raises:
        FieldError: a mapping names a field that is not there.
        SpecError: a spec names no codec, or a budget is malformed.
        ShapeError: a field does not divide into such a frame stack.
        DTypeError: a dtype can't be stored.

    Example:
        >>> layouts = {"image": Layout((84, 84), np.uint8), "vector": Layout((3,), np.float32)}
        >>> arrays = ArraySet(layouts, codec={"image": "delta-rle"})
        >>> obs = {name: arrays.zeros("obs", name, (1000, 2)) for name in layouts}
        >>> type(obs["image"]).__name__, type(obs["vector"]).__name__
        ('TensorArray', 'ndarray')
    """

    def __init__(
        self,
        layouts: Mapping[str, Layout],
        *,
        codec: str | Mapping[str, str | None] | None = "auto",
        frame_stack: FrameStack | Mapping[str, FrameStack | None] | None = None,
        budget: str | Mapping[str, str | None] | None = None,
        threads: int | None = None,
    ) -> None:
        for what, value in {"codec": codec, "frame_stack": frame_stack, "budget": budget}.items():
            if isinstance(value, Mapping) and (unknown := sorted(value.keys() - layouts.keys())):
                there = ", ".join(map(repr, layouts))
                raise FieldError(f"{what} is given for {unknown[0]!r}, which is none of the fields {there}")
        self.fields: dict[str, Field] = {}
        for name, layout in layouts.items():
            spec = _of(codec, name, "auto")
            limit = budget if isinstance(budget, Mapping) or spec == "auto" or len(layouts) == 1 else None
            stack = _of(frame_stack, name, None)
            self.fields[name] = Field(layout.shape, layout.dtype, spec, stack, _of(limit, name, None))
        ones = {name: field.zeros(1, 1, threads) for name, field in self.fields.items()}
        self.stores = {name: one.store if isinstance(one, TensorArray) else None for name, one in ones.items()}
        self._stagings: dict[str, Staging] = {}
        self._arrays: dict[tuple[str, str], TensorArray | None] = {}

    def zeros(self, array: str, field: str, shape: tuple[int, ...], *, staged: bool = False) -> Array | TensorArray:
        """An array ``[*shape, *field_shape]``; takes no memory until it is written.

        Args:
            array: a name for it. An array that was made before under this name is emptied, and not to be used any more.
            field: which field it is of.
            shape: its leading axes.
            staged: whether steps that are assigned may wait to be stored together; for ``[n_steps, n_envs]``.
        """
        former, store = self._arrays.pop((array, field), None), self.stores[field]
        if former is not None:
            former.store.release(former.ids.reshape(-1))
        self._arrays[array, field] = None
        if store is None:
            return np.zeros((*shape, *self.fields[field].shape), self.fields[field].layout.dtype)
        if staged and field not in self._stagings:
            self._stagings[field] = Staging(store, shape[-1])
        made = TensorArray.zeros(shape, store, self._stagings[field] if staged else None)
        self._arrays[array, field] = made
        return made

    def step(self, field: str, value: ArrayLike, n_envs: int) -> Array:
        """``value`` as a step of ``n_envs`` environments; see ``Field.step``.

        Raises:
            ShapeError: it has another shape.
            DTypeError: it would be changed by the dtype.
        """
        try:
            return self.fields[field].step(value, n_envs)
        except LayoutError as error:
            raise type(error)(f"field {field!r}: {error}" if len(self.fields) > 1 else str(error)) from None

    def stats(self, n_tensors: int) -> RingStats:
        """What the arrays hold, if ``n_tensors`` of the items of each were written."""
        raw = dict.fromkeys(self.fields, 0)
        for _, field in self._arrays:
            raw[field] += n_tensors * self.fields[field].layout.nbytes
        stored: dict[str, StoreStats] = {name: s.stats() for name, s in self.stores.items() if s is not None}
        total = sum(stored[name].total_bytes if name in stored else raw[name] for name in raw)
        total += sum(n_tensors * a.ids.itemsize for a in self._arrays.values() if a is not None)
        return RingStats({**raw, **stored}, sum(raw.values()), total)


def _of(value: T | Mapping[str, T], name: str, default: T) -> T:
    return value.get(name, default) if isinstance(value, Mapping) else value
