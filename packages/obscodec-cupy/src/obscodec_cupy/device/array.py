"""The arrays of a device, as far as this package uses them: what cupy.ndarray and numpy.ndarray have in common."""

from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from obscodec import DTypeError, ShapeError


class Flags(Protocol):
    """How an array lies in memory."""

    @property
    def c_contiguous(self) -> bool:
        """Whether it has no gaps, the last axis being the fastest."""


class DeviceArray(Protocol):
    """An array in the memory of a device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Its dtype."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next along each axis."""

    @property
    def nbytes(self) -> int:
        """Its bytes."""

    @property
    def size(self) -> int:
        """How many elements there are."""

    @property
    def flags(self) -> Flags:
        """How it lies in memory."""

    def __getitem__(self, index: Any, /) -> Self:
        """A view of some elements."""

    def __len__(self) -> int:
        """The length of the first axis."""

    def reshape(self, shape: tuple[int, ...], /) -> Self:
        """A view of another shape."""

    def view(self, dtype: npt.DTypeLike, /) -> Self:
        """The same bytes as another dtype."""


def checked(what: str, array: DeviceArray, shape: tuple[int, ...], *dtypes: str) -> DeviceArray:
    """An array of this shape and one of the dtypes, contiguous as kernels take it.

    Raises:
        ShapeError: it has another shape, or is not contiguous.
        DTypeError: it has another dtype.
    """
    if array.shape != shape:
        raise ShapeError(f"{what} has shape {shape}, got {array.shape}")
    if array.dtype.name not in dtypes:
        raise DTypeError(f"{what} has dtype {dtypes[0]}, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise ShapeError(f"{what} has gaps, or its axes are in another order in memory: pass a contiguous array")
    return array
