"""Batches of tensors as bytes, for a file or a message. To read them takes no store."""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import numpy as np
import numpy.typing as npt

from obscodec.arguments import kind_of, says_arguments
from obscodec.codecs.coding import decode, encode
from obscodec.codecs.encoded import EncodedTensor, is_encoded
from obscodec.errors import CorruptStream, DTypeError, ShapeError
from obscodec.layout import ArrayLike, as_array
from obscodec.segments import Bytes

_HEAD = struct.Struct("<QB")  # bytes of the message, axes of the batch
_SPEC = "delta-rle|zstd:3"


@says_arguments
def pack(batches: ArrayLike | Iterable[ArrayLike]) -> bytes:
    """Batches of tensors as bytes; see ``docs/formats/packed.md``.

    Frames that several stacks of a batch share take time, but next to no bytes.

    Args:
        batches: ``[n, *shape]`` each, in the order of time. Large batches compress better: each is encoded on its own.
            An array instead of some arrays is one batch.

    Raises:
        DTypeError: a dtype can't be stored, or a batch is no array.
        ShapeError: a batch is a single number.

    Example:
        >>> stacks = np.zeros((100, 4, 84, 84), np.uint8)
        >>> packed = pack([stacks, stacks[:30]])
        >>> len(packed) < 500
        True
        >>> [batch.shape for batch in unpack(packed)]
        [(100, 4, 84, 84), (30, 4, 84, 84)]
    """
    is_array = any(hasattr(batches, name) for name in ("__array__", "__dlpack__"))
    is_array |= isinstance(batches, (bytes, bytearray, memoryview))
    several = [batches] if is_array else batches  # Python would go over the rows of an array
    remedy = "write pack([x]) or pack([x, y])"
    if is_mapping := isinstance(several, Mapping):
        remedy = "write pack(x.values()), and dict(zip(x.keys(), unpack(packed))) to have the names again"
    if is_mapping or isinstance(several, str) or not isinstance(several, Iterable):
        raise DTypeError(f"batches must be some arrays [n, *shape], or one, got {kind_of(several)}: {remedy}")
    where = "" if is_array else "batches[{}]: "
    return b"".join(_packed(x, where.format(k)) for k, x in enumerate(cast("Iterable[ArrayLike]", several)))


@says_arguments
def unpack(
    packed: bytes | bytearray | memoryview | Bytes, *, max_bytes: int | None = None
) -> Iterator[npt.NDArray[np.generic]]:
    """The batches that :func:`pack` packed, one after the other.

    Args:
        packed: the bytes, possibly from a stranger; also as an array ``u8[:]``.
        max_bytes: the most bytes that a batch may have, see ``EncodedTensor.from_bytes``.

    Raises:
        CorruptStream: the bytes are truncated or altered, or a batch has more than ``max_bytes``; or they are one
            encoded tensor.
        DTypeError: ``packed`` has no bytes.
        MemoryError: there is no room for a batch.
    """
    try:
        rest = memoryview(packed)  # type: ignore[arg-type,unused-ignore] # as in EncodedTensor.from_bytes
    except TypeError:
        raise DTypeError(f"packed must be the bytes that pack() gave, got {kind_of(packed)}") from None
    if is_encoded(rest):
        raise CorruptStream(
            "packed must be the bytes that pack() gave, got those of one EncodedTensor: pass them to "
            "EncodedTensor.from_bytes, and that to decode"
        )
    return _batches(rest, max_bytes)


def _batches(rest: memoryview, max_bytes: int | None) -> Iterator[npt.NDArray[np.generic]]:
    while rest:
        head, rest = _split(rest, _HEAD.size)
        nbytes, n_axes = _HEAD.unpack(head)
        sizes, rest = _split(rest, 8 * n_axes)
        shape = struct.unpack(f"<{n_axes}Q", sizes)
        message, rest = _split(rest, nbytes)
        yield _unpacked(shape, EncodedTensor.from_bytes(message, max_bytes=max_bytes))


def _unpacked(shape: tuple[int, ...], message: EncodedTensor) -> npt.NDArray[np.generic]:
    if not shape or message.spec != _SPEC or message.layout.shape != _frames(shape):
        raise CorruptStream(
            f"a batch of shape {shape} is announced, there is a message of {message.layout} by {message.spec!r}"
        )
    order, frames = _order(shape), decode(message)
    try:
        return frames.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
    except ValueError as error:  # too long for numpy, and without elements
        raise CorruptStream(f"a batch of shape {shape} can't be: {error}") from error


def _packed(x: ArrayLike, what: str) -> bytes:
    try:
        batch = as_array(x)
    except DTypeError as error:
        raise DTypeError(f"{what}{error}") from None
    if not batch.ndim:
        raise ShapeError(f"{what}a batch is an array [n, *shape], got a single number: write x[None]")
    frames = np.ascontiguousarray(batch.transpose(_order(batch.shape))).reshape(_frames(batch.shape))
    message = encode(frames, _SPEC).to_bytes()
    return _HEAD.pack(len(message), batch.ndim) + struct.pack(f"<{batch.ndim}Q", *batch.shape) + message


def _order(shape: tuple[int, ...]) -> list[int]:
    """The axes in the order of the message, with time right before the two longest others: images that are alike."""
    by_length = sorted(range(1, len(shape)), key=lambda axis: shape[axis])
    return [*sorted(by_length[:-2]), 0, *sorted(by_length[-2:])]


def _frames(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the message: the axes in that order, those up to time as one."""
    order = _order(shape)
    n_before = order.index(0) + 1
    return (math.prod(shape[axis] for axis in order[:n_before]), *(shape[axis] for axis in order[n_before:]))


def _split(rest: memoryview, nbytes: int) -> tuple[memoryview, memoryview]:
    if nbytes > len(rest):
        raise CorruptStream(f"the bytes are truncated: {nbytes} should follow, {len(rest)} are left")
    return rest[:nbytes], rest[nbytes:]
