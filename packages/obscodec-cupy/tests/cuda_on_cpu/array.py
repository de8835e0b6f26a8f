"""Arrays of the simulated GPU. They are no numpy arrays, and numpy may not read them: a download does."""

from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt


class Allocation:
    """Who holds this holds device memory."""


class _Lent:
    """Another library holds the allocation of an array, too."""

    def __init__(self, array: "SimulatedArray") -> None:
        self.array, self.__array_interface__ = array, array.memory.__array_interface__


class SimulatedArray:
    """What :class:`obscodec_cupy.device.array.DeviceArray` asks for, over host memory.

    Attributes:
        memory: the numpy array behind it.
    """

    def __init__(self, memory: npt.NDArray[np.generic], owner: object) -> None:
        self.memory = memory
        self._owner = owner  # its memory is free when nobody holds this

    shape = property(lambda self: self.memory.shape)
    dtype = property(lambda self: self.memory.dtype)
    strides = property(lambda self: self.memory.strides)
    nbytes = property(lambda self: self.memory.nbytes)
    size = property(lambda self: self.memory.size)
    ndim = property(lambda self: self.memory.ndim)
    flags = property(lambda self: self.memory.flags)

    def __getitem__(self, index: Any, /) -> Self:
        return type(self)(self._sliced(index), self._owner)

    def _sliced(self, index: Any) -> npt.NDArray[np.generic]:
        every = index if isinstance(index, tuple) else (index,)
        if not all(isinstance(one, slice | int | np.integer) or one is Ellipsis for one in every):
            raise TypeError(f"a view of device memory takes slices and integers, got {index!r}")
        return self.memory[(*every, ...) if Ellipsis not in every else index]

    def __len__(self) -> int:
        return len(self.memory)

    def reshape(self, shape: tuple[int, ...], /) -> Self:
        view = self.memory.view()
        view.shape = shape  # refuses what would need a copy
        return type(self)(view, self._owner)

    def transpose(self, axes: tuple[int, ...], /) -> Self:
        return type(self)(self.memory.transpose(axes), self._owner)

    def view(self, dtype: npt.DTypeLike, /) -> Self:
        return type(self)(self.memory.view(dtype), self._owner)

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("device memory is not converted implicitly, download it")

    def __array_function__(self, function: Any, _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Join arrays, or fill one up, as those of CuPy do."""
        if function is np.pad:
            return SimulatedArray(np.pad(args[0].memory, *args[1:], **kwargs), None)
        if function is not np.concatenate:
            return NotImplemented
        return SimulatedArray(np.concatenate([array.memory for array in args[0]], **kwargs), None)

    def __dlpack__(self, **options: Any) -> Any:
        return np.asarray(_Lent(self)).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()
