"""Arrays of one length as bytes. Those of one store are packed side by side, each frame that they share once."""

import json
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from obscodec import CorruptStream, ShapeError, TensorArray, pack, unpack

Array = npt.NDArray[np.generic]
_HEAD = struct.Struct("<I")  # bytes of the JSON that follows
_PART_NBYTES = 1 << 24  # that are decoded at a time


def pack_together(arrays: Sequence[TensorArray | Array], note: object = None) -> bytes:
    """Arrays as compressed bytes, which can be read without the stores; see ``docs/formats/packed.md``.

    Args:
        arrays: ``[n, ...]``, compressed or not.
        note: any value of JSON, kept beside the arrays; see :func:`read_note`.

    Raises:
        ShapeError: the arrays are not equally long.
        DTypeError: a dtype can't be stored.

    Example:
        >>> packed = pack_together([np.zeros((300, 84, 84), np.uint8), np.arange(300)])
        >>> [(rows, len(frames), int(numbers[-1])) for rows, (frames, numbers) in unpack_together(packed)]
        [(slice(0, 300, None), 300, 299)]
    """
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ShapeError(f"arrays that are packed together are equally long, got {sorted(lengths)}")
    n = max(lengths, default=0)
    step = max(1, _PART_NBYTES * n // max(1, sum(array.nbytes for array in arrays)))
    parts = [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]
    groups = _groups(arrays)
    head = json.dumps({"groups": groups, "n_parts": len(parts), "note": note}).encode()
    batches = (_side_by_side([arrays[i] for i in group], rows) for rows in parts for group in groups)
    return _HEAD.pack(len(head)) + head + pack(batches)


def unpack_together(packed: bytes | memoryview, *, max_bytes: int | None = None) -> Iterator[tuple[slice, list[Array]]]:
    """The arrays that :func:`pack_together` packed, some rows of all of them at a time.

    Args:
        packed: the bytes, which need not be trusted.
        max_bytes: the most bytes to decode at a time, see ``EncodedTensor.from_bytes``. :func:`pack_together` packs
            16 MiB at a time, or one row of each array if that is more.

    Yields:
        Which rows follow, and these rows of each array, in the order of :func:`pack_together`.

    Raises:
        CorruptStream: the bytes are truncated or altered, or more than ``max_bytes`` would be decoded at a time.
        MemoryError: there is no memory for the rows.
    """
    groups, n_parts, _, begin = _head(packed)
    batches = unpack(memoryview(packed)[begin:], max_bytes=max_bytes)
    end, kinds = 0, None
    for _ in range(n_parts):
        part = list(islice(batches, len(groups)))
        if [batch.shape[1:2] for batch in part] != [(len(group),) for group in groups]:
            raise CorruptStream(f"the bytes are truncated or altered: {groups} should follow")
        if len({len(batch) for batch in part}) > 1:
            raise CorruptStream(f"its arrays have {[len(batch) for batch in part]} rows, expected one number")
        before, kinds = kinds, [(batch.dtype, batch.shape[1:]) for batch in part]
        if kinds != (before or kinds):
            raise CorruptStream(f"its arrays change from {before} to {kinds}")
        arrays = {
            i: a
            for group, batch in zip(groups, part, strict=True)
            for i, a in zip(group, np.moveaxis(batch, 1, 0), strict=True)
        }
        begin_row, end = end, end + len(part[0]) if part else 0
        yield slice(begin_row, end), [arrays[i] for i in sorted(arrays)]
    if next(batches, None) is not None:
        raise CorruptStream("more follows than was packed")


def read_note(packed: bytes | memoryview) -> Any:
    """The note of :func:`pack_together`.

    Raises:
        CorruptStream: the bytes do not begin with a note.
    """
    return _head(packed)[2]


def _head(packed: bytes | memoryview) -> tuple[list[list[int]], int, Any, int]:
    """The groups, the number of parts, the note, and where the first batch begins."""
    begin = _HEAD.size + (_HEAD.unpack_from(packed)[0] if len(packed) >= _HEAD.size else 0)
    try:
        head = json.loads(bytes(packed[_HEAD.size : begin]).decode())
        groups, n_parts, note = head["groups"], head["n_parts"], head["note"]
        numbers = sorted(i for group in groups for i in group)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptStream(f"the bytes do not begin with what is packed: {error}") from error
    is_whole = type(groups) is list and all(groups) and all(type(i) is int for i in [n_parts, *numbers])
    if not is_whole or numbers != [*range(len(numbers))] or not 0 <= n_parts <= len(packed) * len(groups):
        raise CorruptStream("the bytes do not begin with what is packed: its groups or parts can't be counted")
    if begin > len(packed):
        raise CorruptStream(f"the bytes are truncated: {begin} should be there, there are {len(packed)}")
    return groups, n_parts, note, begin


def _groups(arrays: Sequence[TensorArray | Array]) -> list[list[int]]:
    """Which arrays are packed side by side: those of one store and one shape."""
    groups: dict[object, list[int]] = {}
    for i, array in enumerate(arrays):
        key = (array.store, array.shape) if isinstance(array, TensorArray) else i
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _side_by_side(arrays: Sequence[TensorArray | Array], rows: slice) -> Array:
    """``[n, n_arrays, ...]``, decoded in one call."""
    first = arrays[0]
    if not isinstance(first, TensorArray):
        return first[rows, None]
    with first.store.guard():
        ids = [array.ids[rows] for array in arrays if isinstance(array, TensorArray)]
        return TensorArray(np.stack(ids, axis=1), first.store)[...]
