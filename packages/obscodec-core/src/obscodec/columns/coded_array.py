"""CodedArray: an array that keeps codes in the place of its numbers, and computes like a plain array."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

Numbers = npt.NDArray[Any]


class CodedArray(NDArrayOperatorsMixin):
    """Behaves like a plain array, except that a part of it is a copy, which can only be read.

    Attributes:
        dtype: the dtype of the numbers.
    """

    dtype: np.dtype[Any]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of its items."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the plain array."""
        return self.size * self.dtype.itemsize

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abstractmethod
    def __setitem__(self, index: Any, value: npt.ArrayLike) -> None: ...

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Numbers:
        if copy is False:
            raise ValueError(f"a {type(self).__name__} can't be read without a copy")
        numbers: Numbers = self[...]
        return np.array(numbers, dtype) if copy else np.asarray(numbers, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        inputs = tuple(x[...] if isinstance(x, CodedArray) else x for x in inputs)
        if out:
            kwargs["out"] = tuple(np.array(x) if isinstance(x, CodedArray) else x for x in out)
        result = getattr(ufunc, method)(*inputs, **kwargs)
        for array, changed in zip(out, kwargs.get("out", ()), strict=True):
            if isinstance(array, CodedArray):
                array[...] = changed
        return out[0] if len(out) == 1 else result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self[...], name)  # of an array that can only be read
