"""Arrays of a device, and what kernels ask of those that they are given."""

import ctypes
from functools import cache
from typing import Any, Final

from obscodec import DTypeError, ShapeError

_READ_ONLY: Final = {"cupy": False, "torch": False, "jax": True, "jaxlib": True}  # all arrays of these libraries
_FLAGS_OFFSET: Final = 24  # in DLManagedTensorVersioned of dlpack.h, behind the version and two pointers
_READ_ONLY_FLAG: Final = 1

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)

DeviceArray = Any  # a cupy.ndarray, or an array of the simulated GPU of the tests


def checked(what: str, array: DeviceArray, shape: tuple[int, ...], *dtypes: str) -> DeviceArray:
    """The array, which must have this shape and one of the dtypes, and be contiguous, as kernels take it."""
    if array.shape != shape:
        raise ShapeError(f"{what} has shape {shape}, got {array.shape}")
    if _name(array.dtype) not in dtypes:
        raise DTypeError(f"{what} has dtype {dtypes[0]}, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise ShapeError(f"{what} has gaps, or its axes are in another order in memory: pass a contiguous array")
    return array


_name = cache(lambda dtype: dtype.name)  # which takes 2.5 µs


def require_writable(what: str, x: object) -> None:
    """Refuse an array that its library forbids to write: ``cupy.from_dlpack`` does not look at that.

    The flags of numpy's arrays tell it, and the capsules of DLPack 1.0 and later. JAX arrays are immutable.
    """
    if _is_read_only(x):
        raise DTypeError(f"{what} is a read-only {type(x).__name__}, pass one that can be written")


def _is_read_only(x: Any) -> bool:
    for base in type(x).__mro__:
        if (library := base.__module__.partition(".")[0]) in _READ_ONLY:
            return _READ_ONLY[library]
    writeable = getattr(getattr(x, "flags", None), "writeable", None)
    if writeable is not None:
        return not writeable
    try:
        capsule = x.__dlpack__(stream=-1, max_version=(1, 0))  # -1: nothing is read, so nobody has to wait
        flags = ctypes.c_uint64.from_address(_pointer_of(capsule, b"dltensor_versioned") + _FLAGS_OFFSET)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return False  # an exporter of an older DLPack has no such flag; a view refuses what is no array
    return bool(flags.value & _READ_ONLY_FLAG)
