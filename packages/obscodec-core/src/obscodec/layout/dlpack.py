"""Arrays of any DLPack exporter as numpy arrays.

``numpy.from_dlpack`` refuses bfloat16 and float8, so this reads the capsule. Structures: DLPack 1.1, ``dlpack.h``.
"""

import ctypes
from types import SimpleNamespace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError
from obscodec.layout.dtypes import EXTENDED, extended_dtype

_CPU_DEVICES = {1, 3, 11, 13}  # kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged
_NUMPY_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_EXTENDED_NAMES = {code: name for name, code in EXTENDED.items()}
_READ_ONLY = 1


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of any framework with DLPack."""

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object:
        """A DLPack capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device type and the device number."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)


def from_dlpack(x: SupportsDLPack) -> npt.NDArray[np.generic]:
    """A numpy view of an array in CPU memory, read-only if ``x`` is; bfloat16 and float8 are those of ``ml_dtypes``.

    Raises:
        DTypeError: ``x`` is in the memory of another device, has no dtype of numpy, or refuses to export itself.
    """
    try:
        device = int(x.__dlpack_device__()[0])
        capsule = _capsule(x) if device in _CPU_DEVICES else None
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DTypeError(f"{type(x).__name__} can't be read by DLPack: {error}") from error
    if capsule is None:
        raise DTypeError(f"array lies in the memory of DLPack device type {device}, copy it to the CPU first")
    read_only = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, read_only = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    else:
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    return _view(tensor, capsule, read_only=read_only)


def _capsule(x: SupportsDLPack) -> object:
    try:
        return x.__dlpack__(max_version=(1, 1))
    except TypeError:  # an exporter older than DLPack 1.0 has no such argument
        return x.__dlpack__()


def _view(tensor: _Tensor, capsule: object, *, read_only: bool) -> npt.NDArray[np.generic]:
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if 0 in shape:  # an empty tensor may have no address
        return np.empty(shape, dtype)
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    interface: dict[str, object] = {
        "version": 3,
        "shape": shape,
        "strides": strides,
        "typestr": f"|V{dtype.itemsize}",  # numpy does not know extended dtypes by a name
        "data": ((tensor.data or 0) + tensor.byte_offset, read_only),
    }
    memory = SimpleNamespace(capsule=capsule, __array_interface__=interface)  # the view holds it, and it the capsule
    return np.asarray(memory).view(dtype)


def _dtype(code: int, bits: int, lanes: int) -> np.dtype[np.generic]:
    if lanes == 1 and (code, bits) in _EXTENDED_NAMES:
        return extended_dtype(_EXTENDED_NAMES[code, bits])
    if lanes == 1 and code in _NUMPY_KINDS and bits % 8 == 0:
        return np.dtype(f"{_NUMPY_KINDS[code]}{bits // 8}")
    raise DTypeError(f"DLPack type (code {code}, {bits} bits, {lanes} lanes) has no numpy equivalent")
