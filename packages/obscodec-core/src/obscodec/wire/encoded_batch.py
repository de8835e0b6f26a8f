"""EncodedBatch: a batch whose tensors stay as stores keep them, until somebody elsewhere decodes it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_nbytes, check_kind
from obscodec.arrays import DeferredRead, filled
from obscodec.errors import CorruptStream
from obscodec.frames import Portion, Received, Sent
from obscodec.layout import FrameStack, Layout, same_values
from obscodec.runtime import as_threads, says_memory_error
from obscodec.state import State, array_of, number_of, part_of
from obscodec.stores import BATCH_MEMORY, Narrow, StoredPart
from obscodec.wire.message import OF_OTHERS, format_message, parse_message

_VERSION = 1
_NAME = b"obsb"
_SELECTED: Final = {"$store", "begin", "chosen", "longest"}  # see ``DeferredRead.undecoded``
MAX_BYTES = 1 << 30
_MOST_AXES = 64  # of an array of numpy


class _Leaf(NamedTuple):
    """All tensors of a store that a batch has."""

    layout: Layout
    n: int
    parts: list[StoredPart]


class EncodedBatch:
    """A batch of arrays, those of tensors encoded, as ``RingBuffer.sample(..., to="encoded")`` returns it.

    It takes the bytes of the blocks that have the tensors, where these are fewer, or each of its frames is encoded by
    itself, or left as it is. What decodes them, dictionaries and reference frames, is sent to each client once.

    Example:
        >>> import numpy as np, obscodec
        >>> ring = obscodec.RingBuffer(100, {"obs": obscodec.Field((84, 84), np.uint8, "delta-rle")})
        >>> for k in range(40):
        ...     ring.append(obs=np.full((84, 84), k, np.uint8))
        >>> message = ring.sample(32, 0, to="encoded").to_bytes()
        >>> len(message) < 10_000
        True
        >>> batch = EncodedBatch.from_bytes(message).read()
        >>> np.array_equal(batch["obs"], ring.sample(32, 0)["obs"])
        True
    """

    def __init__(self, batch: Any, leaves: list[_Leaf]) -> None:
        self._batch, self._leaves = batch, leaves

    @classmethod
    @says_memory_error
    def of(cls, read: DeferredRead, more: Mapping[str, Any] | None = None) -> Self:
        """What a read of compressed arrays has selected, as it is stored now.

        Args:
            read: one that is not decoded yet; of arrays and selections, in dictionaries, lists and tuples, which become
                lists.
            more: other arrays of the batch, if that is a dictionary.

        Raises:
            DTypeError: ``read`` is no DeferredRead.
        """
        check_kind("read", read, DeferredRead, "a DeferredRead")
        batch, leaves = read.undecoded(lambda store, ids: _Leaf(store.layout, len(ids), store.parts(ids)))
        return cls({**batch, **more} if more else batch, leaves)

    @says_memory_error
    def to_bytes(self, sent: Sent | None = None, *, threads: int | None = None) -> bytes:
        """The batch as a message, see ``docs/formats/batch.md``.

        Args:
            sent: what the reader has already; None if he has nothing.
            threads: how many threads may decode frames that are then encoded by themselves, None for half of the usable
                processors.

        Raises:
            CorruptStream: a stored block is damaged.
        """
        told = Sent() if sent is None else sent.copy()  # what fails has sent nothing
        leaves: list[State] = []
        for leaf in self._leaves:
            parts = []
            for places, narrow, stack, portion in leaf.parts:
                frames = portion.smallest(told, as_threads(threads)).state(told)
                parts.append({**frames, "at": places.astype(np.int32), "narrow": narrow, "stack": stack})
            leaves.append({"layout": leaf.layout, "n": leaf.n, "parts": parts})
        message = format_message(_NAME, _VERSION, {"batch": self._batch, "leaves": leaves})
        if sent is not None:
            sent.take_over(told)
        return message

    @classmethod
    @says_memory_error
    def from_bytes(
        cls,
        message: bytes | bytearray | memoryview,
        received: Received | None = None,
        *,
        max_bytes: int | None = MAX_BYTES,
    ) -> Self:
        """The batch of a message, possibly from a stranger.

        Args:
            message: the bytes.
            received: what was received from its sender before, all in order; None if the message was for nobody.
            max_bytes: the most bytes that the decoded batch may have, or one of its blocks; None for a friend's.

        Raises:
            CorruptStream: the message is truncated or altered, or the batch has more bytes; or what decodes it was in
                another message.
        """
        known, limit = Received() if received is None else received.copy(), as_nbytes("max_bytes", max_bytes)
        state = parse_message(_NAME, _VERSION, message, "a batch")
        try:
            leaves, left = list[_Leaf](), sys.maxsize if limit is None else limit
            for of in part_of(state, "leaves", list):
                leaves.append(_received(of, known, left))
                left -= leaves[-1].n * leaves[-1].layout.nbytes
            made = cls(state.get("batch"), leaves)
            _each(made._batch, lambda of: _check(of, leaves))
        except OF_OTHERS as error:
            raise CorruptStream(f"no batch: {error}") from error
        if received is not None:
            received.take_over(known)
        return made

    @says_memory_error
    def read(
        self,
        *,
        new_array: Callable[[int, Layout], npt.NDArray[np.generic]] = BATCH_MEMORY.array,
        threads: int | None = None,
    ) -> Any:
        """Decode the batch: what was selected, with a new array in place of each selection.

        Args:
            new_array: called with a number ``n`` and a layout; returns an array ``[n, *shape]`` to decode into. The
                default is memory that is used again when nobody refers to the batch any more.
            threads: how many threads share the work, None for half of the usable processors.

        Raises:
            CorruptStream: a stream is damaged.
        """
        decoded = []
        for leaf in self._leaves:
            out = new_array(leaf.n, leaf.layout)
            for part in leaf.parts:
                part.read_into(out, as_threads(threads))
            decoded.append(out)
        return _each(self._batch, lambda of: _filled(of, decoded))


def _filled(of: State, decoded: list[npt.NDArray[np.generic]]) -> Any:
    return filled(decoded[of["$store"]][of["begin"] :][: math.prod(of["chosen"])], of["chosen"], of["longest"])


def _each(batch: Any, array: Callable[[State], Any]) -> Any:
    """A batch with an array in place of each selection."""
    if isinstance(batch, dict):
        if batch.keys() == _SELECTED:
            return array(batch)
        return {name: _each(value, array) for name, value in batch.items()}
    return [_each(value, array) for value in batch] if isinstance(batch, (list, tuple)) else batch


def _check(of: State, leaves: list[_Leaf]) -> None:
    """Refuse a selection that is none of these tensors."""
    leaf = leaves[number_of(of, "$store", 0, len(leaves) - 1)]
    chosen, longest = part_of(of, "chosen", list), of["longest"]
    if not all(type(n) is int and n >= 0 for n in chosen):
        raise CorruptStream(f"a selection has a shape of whole numbers, got {chosen}")
    shape = *chosen, *leaf.layout.shape
    if len(shape) > _MOST_AXES or math.prod(n or 1 for n in shape) * leaf.layout.dtype.itemsize >= 1 << 63:
        raise CorruptStream(f"no array has the shape {shape}")
    number_of(of, "begin", 0, leaf.n - math.prod(chosen))
    if longest is not None and (not chosen or not leaf.layout.shape):
        raise CorruptStream("items are joined that have no pages")
    if longest is not None:
        number_of(of, "longest", 0, chosen[-1] * leaf.layout.shape[0])


def _received(state: State, received: Received, max_bytes: int) -> _Leaf:
    layout = part_of(state, "layout", Layout)
    n = number_of(state, "n", 0, max_bytes // max(1, layout.nbytes))
    parts, places = list[StoredPart](), [np.empty(0, np.int64)]
    for of in part_of(state, "parts", list):
        narrow, stack = of["narrow"], of["stack"]
        if not isinstance(narrow, (Narrow, NoneType)) or not isinstance(stack, (FrameStack, NoneType)):
            raise CorruptStream(f"tensors have numbers and a frame stack, got {narrow!r} and {stack!r}")
        at = array_of(of, "at", np.int32, (None,)).astype(np.int64)
        parts.append(StoredPart(at, narrow, stack, Portion.from_state(of, received, max_bytes)))
        places.append(at)
        if not parts[-1].fits(layout, n):
            raise CorruptStream(f"frames of {parts[-1].portion.frame} are no {n} tensors of {layout}")
    if not same_values(np.sort(np.concatenate(places)), np.arange(n)):
        raise CorruptStream("tensors of a batch are missing, or there twice")
    return _Leaf(layout, n, parts)
