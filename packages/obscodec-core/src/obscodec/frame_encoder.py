"""FrameEncoder: compares and encodes frames that are in the memory of a device; a backend makes one for a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from obscodec.frame_stack import FrameStack
from obscodec.layout import Layout, Rows
from obscodec.segments import Bytes, Ints


class FrameKind(IntEnum):
    """What becomes of a frame of a batch."""

    ZEROS = 0  # it is the frame of zeros
    KNOWN = 1  # it is equal to its source
    PATCH = 2  # it is new, and stored as a patch of its source
    FIRST = 3  # it is new, the first one of a block, and stored as a patch of a reference frame


class FramePlan(NamedTuple):
    """What to do with some frames of a batch.

    Attributes:
        begin: the number of the first one in the batch.
        kinds: ``u8[n]``, the ``FrameKind`` of each.
        sources: ``i64[n]``: what a frame is equal to or a patch of: the number of a frame of the batch, or
            ``-1 - slot`` of a recent frame, ``slot = stream * n_recent + place``. Of other kinds it means nothing.
    """

    begin: int
    kinds: npt.NDArray[np.uint8]
    sources: Ints


class Patches(NamedTuple):
    """Some frames of a batch, encoded; what is of no new frame means nothing.

    Attributes:
        begin: the number of the first one in the batch.
        buffer: ``u8[:]``, for each new frame its runs, then its literals.
        starts: ``i64[n]``, where these begin in the buffer.
        runs_nbytes: ``i64[n]``, how long the runs are.
        literals_nbytes: ``i64[n]``, how long the literals are.
        references: ``i64[n]``, which reference frame a ``FIRST`` frame is a patch of.
        n_references: how many reference frames there were before.
        joined: ``u8[n_joined, nbytes]``, the frames that joined them.
    """

    begin: int
    buffer: Bytes
    starts: Ints
    runs_nbytes: Ints
    literals_nbytes: Ints
    references: Ints
    n_references: int
    joined: Rows


class FrameBatch(ABC):
    """Frames in the memory of a device. As a context: what is done in there is done in the order of all batches."""

    @abstractmethod
    def __enter__(self) -> Self:
        """Begin to work on it."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Nothing else is done with it."""

    @abstractmethod
    def __len__(self) -> int:
        """How many frames there are."""

    @abstractmethod
    def marks(self) -> Ints:
        """``i64[n]``: 0 for a frame of zeros, and for others a fingerprint that is not 0."""

    @abstractmethod
    def encode(self, plan: FramePlan, references: Rows) -> Patches | None:
        """Encode frames.

        Args:
            plan: what to do with some of the frames.
            references: ``u8[n_references, nbytes]``, the reference frames; the first ones are always the same.

        Returns:
            The same bytes that the CPU makes of these frames; None if a ``KNOWN`` frame is not equal to its source.

        Raises:
            HeapFull: the device has not enough free memory.
        """

    @abstractmethod
    def keep(self, slots: Ints, frames: Ints) -> None:
        """Copy frames of the batch, ``i64[n]``, into slots of recent frames, ``i64[n]``."""

    @abstractmethod
    def rows(self) -> Rows:
        """``u8[n, nbytes]``, the frames in the memory of the CPU, a copy."""


class FrameEncoder(ABC):
    """Compares and encodes frames where they are, in the memory of a device, with the recent frames of each stream."""

    @abstractmethod
    def batch(self, tensors: Any, layout: Layout, stack: FrameStack | None) -> FrameBatch:
        """The frames of ``tensors``, an array of any framework with DLPack in the memory of the device.

        Args:
            tensors: ``[n, *shape]``.
            layout: shape and dtype of one of them.
            stack: how each is made of frames, None if it is one.

        Raises:
            DTypeError: it is in the memory of another device, or has another dtype.
            ShapeError: it has another shape.
            HeapFull: the device has not enough free memory.
        """

    @abstractmethod
    def reserve(self, n_streams: int) -> None:
        """Make sure that there are slots for so many streams.

        Raises:
            HeapFull: the device has not enough free memory.
        """

    @abstractmethod
    def send(self, streams: Ints, recent: Rows) -> Ints:
        """Copy recent frames from the CPU into the slots of streams.

        Args:
            streams: ``i64[n]``.
            recent: ``u8[n * n_recent, nbytes]``.

        Returns:
            ``i64[n * n_recent]``, their marks, see ``FrameBatch.marks``.
        """
