"""Batches of tensors as bytes, to keep in a file or to send; they need no store to be read."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from obscodec.coding import decode, encode
from obscodec.encoded import EncodedTensor
from obscodec.errors import CorruptStream

_HEAD = struct.Struct("<QB")  # bytes of the message, axes of the batch
_SPEC = "delta-rle|zstd:3"


def pack(batches: Iterable[npt.NDArray[np.generic]]) -> bytes:
    """Batches of tensors as bytes; see ``docs/formats/packed.md``.

    Frames that several stacks have in common take next to nothing but time.

    Args:
        batches: ``[n, *shape]`` each, in the order of time. Each is encoded on its own: the larger, the smaller.

    Raises:
        DTypeError: a dtype can't be stored.

    Example:
        >>> stacks = np.zeros((100, 4, 84, 84), np.uint8)
        >>> packed = pack([stacks, stacks[:30]])
        >>> len(packed) < 500
        True
        >>> [batch.shape for batch in unpack(packed)]
        [(100, 4, 84, 84), (30, 4, 84, 84)]
    """
    return b"".join(_packed(batch) for batch in batches)


def unpack(packed: bytes | memoryview) -> Iterator[npt.NDArray[np.generic]]:
    """The batches that :func:`pack` was given, one after the other.

    Raises:
        CorruptStream: the bytes are truncated or altered.
    """
    rest = memoryview(packed)
    while rest:
        head, rest = _split(rest, _HEAD.size)
        nbytes, n_axes = _HEAD.unpack(head)
        sizes, rest = _split(rest, 8 * n_axes)
        shape = struct.unpack(f"<{n_axes}Q", sizes)
        message, rest = _split(rest, nbytes)
        frames = decode(EncodedTensor.from_bytes(message))
        if frames.size != math.prod(shape):
            raise CorruptStream(f"a batch of shape {shape} is announced, there are {frames.size} elements")
        order = _order(shape)
        yield frames.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


def _packed(batch: npt.NDArray[np.generic]) -> bytes:
    order = _order(batch.shape)
    frame = [batch.shape[axis] for axis in order[order.index(0) + 1 :]]
    n_frames = math.prod(batch.shape[axis] for axis in order[: order.index(0) + 1])
    frames = np.ascontiguousarray(batch.transpose(order)).reshape(n_frames, *frame)
    message = encode(frames, _SPEC).to_bytes()
    return _HEAD.pack(len(message), batch.ndim) + struct.pack(f"<{batch.ndim}Q", *batch.shape) + message


def _order(shape: tuple[int, ...]) -> list[int]:
    """The axes in the order in which what is alike is consecutive: time comes right before the two longest others."""
    by_length = sorted(range(1, len(shape)), key=lambda axis: shape[axis])
    return [*sorted(by_length[:-2]), 0, *sorted(by_length[-2:])]


def _split(rest: memoryview, nbytes: int) -> tuple[memoryview, memoryview]:
    if nbytes > len(rest):
        raise CorruptStream(f"the bytes are truncated: {nbytes} should follow, {len(rest)} are left")
    return rest[:nbytes], rest[nbytes:]
