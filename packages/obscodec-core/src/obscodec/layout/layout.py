"""Layout: the shape and dtype of one item."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_of, check_elements, check_kind, kind_of
from obscodec.errors import DTypeError, ShapeError
from obscodec.layout.dtypes import dtype_name, storable_of, written_dtype

Rows = npt.NDArray[np.uint8]
_MAX_AXES = 63  # numpy has 64, one is for the items of a batch
_MAX_NBYTES = 2**62


@dataclass(frozen=True, slots=True, init=False)
class Layout:
    """Shape and dtype of one item.

    Attributes:
        shape: ``()`` for a scalar.
        dtype: always little-endian.
        nbytes: the bytes of one item.

    Example:
        >>> Layout((4, 84, 84), np.uint8).nbytes
        28224
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    nbytes: int = field(init=False, repr=False, compare=False)

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        try:
            lengths = tuple(shape)
            if bool in map(type, lengths):
                raise TypeError
            shape = tuple(map(operator.index, lengths))
        except TypeError:
            given: object = shape
            hint = f": write ({given},)" if type(given) is int else ""
            hint = ": the shape comes first, then the dtype" if isinstance(dtype, (tuple, list)) else hint
            raise ShapeError(f"a shape is a tuple of whole numbers, got {reprlib.repr(given)}{hint}") from None
        if any(n < 0 for n in shape):
            raise ShapeError(f"shape {shape} has a negative axis, every axis must be 0 or more")
        if len(shape) > _MAX_AXES:
            raise ShapeError(f"a shape has at most {_MAX_AXES} axes, got {len(shape)}")
        object.__setattr__(self, "shape", shape)
        named = storable_of(dtype)
        object.__setattr__(self, "dtype", named)
        object.__setattr__(self, "nbytes", math.prod(shape) * named.itemsize)
        if math.prod(n or 1 for n in shape) * named.itemsize > _MAX_NBYTES:
            raise ShapeError(f"an item has at most {_MAX_NBYTES} bytes, shape {shape} of {named} has more")

    @classmethod
    def of(cls, x: npt.NDArray[np.generic]) -> Layout:
        """The layout of ``x`` as one item.

        Raises:
            DTypeError: ``x`` has a dtype that can't be stored, or is no array.
        """
        if type(x) is not np.ndarray:
            check_kind("x", x, (np.ndarray, np.generic), "a numpy array")
        return cls(x.shape, x.dtype)

    @staticmethod
    def require(layout: object) -> None:
        """Raise DTypeError unless ``layout`` is a Layout."""
        described = "a Layout, such as Layout((84, 84), 'uint8')"
        check_kind("layout", layout, Layout, described, as_of("Layout", layout))

    def check(self, x: npt.NDArray[np.generic]) -> None:
        """Make sure that ``x`` is ``[n, *shape]`` of this dtype, in any byte order.

        Raises:
            ShapeError: the axes after the first are not this shape.
            DTypeError: the dtype is another one, or ``x`` is no array, or has a mask or a unit, which would be lost.
        """
        if type(x) is not np.ndarray:
            if not isinstance(getattr(x, "dtype", None), np.dtype):
                raise DTypeError(f"items are a numpy array, got {kind_of(x)}: convert it, as in numpy.asarray(x)")
            check_elements(x)
        if not x.shape or x.shape[1:] != self.shape:
            wanted = ", ".join(["n", *map(str, self.shape)])
            raise ShapeError(f"items have shape ({wanted}), got {x.shape}")
        if x.dtype != self.dtype and x.dtype.newbyteorder("<") != self.dtype:
            raise DTypeError(f"items have dtype {self.dtype}, got {x.dtype}: convert the array, nothing is cast here")

    def rows(self, x: npt.NDArray[np.generic]) -> Rows:
        """Many items as bytes.

        Args:
            x: ``[n, *shape]``, refused by :meth:`check` otherwise.

        Returns:
            ``u8[n, nbytes]`` in C order, little-endian; a view of ``x`` if its memory is in that order.
        """
        self.check(x)
        x = np.ascontiguousarray(x, dtype=self.dtype)
        if x.size == 0:
            return np.empty((len(x), self.nbytes), np.uint8)
        return x.reshape(len(x), -1).view(np.uint8)

    def tensors(self, rows: Rows) -> npt.NDArray[np.generic]:
        """The inverse of :meth:`rows`: ``[n, *shape]``, a view of the contiguous ``u8[n, nbytes]``."""
        if rows.size == 0:
            return np.empty((len(rows), *self.shape), self.dtype)
        return rows.view(self.dtype).reshape(len(rows), *self.shape)

    def config(self) -> dict[str, object]:
        """Plain JSON values that :meth:`from_config` takes."""
        return {"shape": list(self.shape), "dtype": dtype_name(self.dtype)}

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Layout:
        """The layout that :meth:`config` described.

        Raises:
            ShapeError: the shape is not a list of whole numbers, or impossible.
            DTypeError: the dtype is not as :meth:`config` writes it.
        """
        check_kind("a layout config", config, Mapping, "a mapping, such as Layout.config() gives")
        shape = config.get("shape")
        if not isinstance(shape, (list, tuple)) or not all(type(n) is int for n in shape):
            raise ShapeError(f"a shape is a list of whole numbers, got {shape!r}")
        return cls(tuple(shape), written_dtype(config.get("dtype")))

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
