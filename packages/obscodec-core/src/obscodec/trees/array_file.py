"""Arrays as bytes in the format of safetensors, https://github.com/huggingface/safetensors.

Not by the library of this name: it ends the process where an allocation fails. The format is 8 bytes with the length of
a header; the header, JSON with the dtype, shape and place of each array by name; and the arrays.
"""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_LENGTH: Final = struct.Struct("<Q")
_DTYPES: Final = {
    **{"BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4"},
    **{"F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8"},
}
_NAMES: Final = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_METADATA: Final = "__metadata__"  # texts that the format allows, and that nobody here writes


def format_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays as bytes; each begins at a multiple of its item size.

    They are contiguous and little-endian, of bool, integers and floats up to 8 bytes.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header, end = {}, 0
    for name in order:
        array, begin = arrays[name], end
        end += array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": [*array.shape], "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([_LENGTH.pack(len(text)), text, *(arrays[name].reshape(-1).view(np.uint8).data for name in order)])


def parse_arrays(content: bytes | memoryview) -> dict[str, npt.NDArray[Any]]:
    """The inverse of :func:`format_arrays`: new arrays, which can be written to; ValueError for other bytes."""
    if len(content) < _LENGTH.size:
        raise ValueError(f"it has {len(content)} bytes")
    (n,) = _LENGTH.unpack_from(content)
    begin = _LENGTH.size + n
    if begin > len(content):
        raise ValueError(f"its header has {n} bytes, the file {len(content)}")
    try:
        pairs = json.loads(bytes(content[_LENGTH.size : begin]).decode(), object_pairs_hook=tuple)
    except RecursionError as error:
        raise ValueError(f"its header is no JSON: {error}") from error
    header = _object(pairs)
    places = {name: _place(name, about) for name, about in header.items() if name != _METADATA}
    end = 0
    for name, (dtype, shape, first, last) in sorted(places.items(), key=lambda item: item[1][2:]):
        if first != end or last - first != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name!r} has the bytes {first}..{last} for {dtype}{list(shape)}, {end} come before it")
        end = last
    if begin + end != len(content):
        raise ValueError(f"its arrays have {end} bytes of {len(content) - begin}")
    return {
        name: np.frombuffer(content, dtype, math.prod(shape), begin + first).reshape(shape).copy()
        if last > first
        else np.zeros(shape, dtype)
        for name, (dtype, shape, first, last) in places.items()
    }


def _object(pairs: object) -> dict[str, Any]:
    if not isinstance(pairs, tuple):
        raise ValueError("its header is no object")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header has a name twice")
    return found


def _place(name: str, about: object) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """The dtype, the shape, and the first and last byte of an array, all of them possible on their own."""
    fields = _object(about)
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    numbers: list[Any] = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
    if not isinstance(dtype, str) or dtype not in _DTYPES or len(fields) != 3 or len(numbers) - 2 != len(shape or ()):
        raise ValueError(f"{name!r} is no array: {fields}")
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise ValueError(f"{name!r} has numbers that no array has: {fields}")
    return np.dtype(_DTYPES[dtype]), tuple(numbers[:-2]), numbers[-2], numbers[-1]
