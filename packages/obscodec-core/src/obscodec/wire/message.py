"""Messages: states as bytes, with a name, a version and a checksum."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import xxhash

from obscodec.errors import CorruptStream, ObscodecError
from obscodec.state import State
from obscodec.trees import Tree, flatten, format_arrays, parse_arrays, unflatten

_HEAD = struct.Struct("<4sHQ")  # who wrote it, the version, the XXH3-64 of the rest
_VALUES = "$values"  # no part of a state has this name
# What values of another kind raise, or JSON that is nested too deeply.
OF_OTHERS = (
    struct.error,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    ObscodecError,
)


def format_message(name: bytes, version: int, state: State) -> bytes:
    """A state, without streams, as bytes: see ``docs/formats/batch.md``. The name has four bytes."""
    tree = flatten(state)
    values = np.frombuffer(json.dumps(tree.values, separators=(",", ":")).encode(), np.uint8)
    content = format_arrays({**tree.arrays, _VALUES: values})
    return _HEAD.pack(name, version, xxhash.xxh3_64_intdigest(content)) + content


def parse_message(name: bytes, version: int, message: bytes | bytearray | memoryview, what: str) -> State:
    """The inverse of :func:`format_message`, of bytes from a stranger; ``what`` they are, for errors.

    Raises:
        CorruptStream: they are truncated or altered, or something else.
    """
    try:
        found, of_version, checksum = _HEAD.unpack_from(message)
        content = memoryview(message).cast("B")[_HEAD.size :]
        if found != name or xxhash.xxh3_64_intdigest(content) != checksum:
            raise CorruptStream(f"{what} is truncated or altered, or no {what.split()[-1]}")
        if of_version != version:
            raise CorruptStream(f"{what} has the format {of_version}, this version of obscodec reads {version}")
        arrays = parse_arrays(content)
        state: Any = unflatten(Tree(json.loads(arrays[_VALUES].tobytes()), arrays, {}, {}))
        if not isinstance(state, dict):
            raise CorruptStream(f"{what} is an object, got a {type(state).__name__}")
    except OF_OTHERS as error:
        raise CorruptStream(f"no {what.split()[-1]}: {error}") from error
    return state
