"""BytesCodec: a codec that takes an item as plain bytes, whatever its layout; most compression libraries are one."""

import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from obscodec.codecs.codec import Codec
from obscodec.errors import CorruptStream
from obscodec.layout import Rows
from obscodec.segments import Bytes, Segments

T = TypeVar("T")


@dataclass(frozen=True)
class BytesCodec(Codec):
    """Compresses each row with one call of a library; can also stand behind another codec in a chain."""

    _local: threading.local = field(default_factory=threading.local, init=False, repr=False, compare=False)

    @abstractmethod
    def max_compressed(self, nbytes: int) -> int:
        """The most bytes that ``nbytes`` bytes compress to."""

    @abstractmethod
    def compress(self, plain: memoryview) -> bytes:
        """The stream of ``plain``, contiguous bytes."""

    @abstractmethod
    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The inverse of :meth:`compress`, for a stream that decompresses to ``nbytes`` bytes.

        May return another number of bytes if the stream says so, but must not allocate many more than ``nbytes``.

        Raises:
            CorruptStream: the stream can't be read.
        """

    def train(self, samples: Segments) -> Self:
        """A codec with a dictionary trained on byte strings; this one if the format has no dictionaries."""
        del samples
        return self

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """A codec with a dictionary trained on the bytes of ``samples``, ``[n, *shape]``."""
        rows = self.layout.rows(samples)
        return self.train(Segments.packed(rows.reshape(-1), np.full(len(rows), self.layout.nbytes)))

    def per_thread(self, name: str, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once for each thread: compression contexts can't be shared between threads."""
        if not hasattr(self._local, name):
            setattr(self._local, name, make())
        return cast("T", getattr(self._local, name))

    def bound(self) -> int:
        """The most bytes that the stream of one item can have."""
        return self.max_compressed(self.layout.nbytes)

    def encode_rows(self, rows: Rows, out: Bytes) -> list[int]:
        """Compress the rows one by one."""
        lengths = []
        end = 0
        for row in rows:
            stream = self.compress(row.data)
            out[end : end + len(stream)] = np.frombuffer(stream, np.uint8)
            lengths.append(len(stream))
            end += len(stream)
        return lengths

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decompress the rows one by one."""
        for stream, row in zip(src, rows, strict=True):
            row[:] = np.frombuffer(self.decompress_exactly(stream.data, len(row)), np.uint8)

    def decompress_exactly(self, stream: memoryview, nbytes: int) -> bytes:
        """:meth:`decompress`, refusing a stream that holds another number of bytes.

        Raises:
            CorruptStream: the stream can't be read, or does not hold exactly ``nbytes`` bytes.
        """
        plain = self.decompress(stream, nbytes)
        if len(plain) > nbytes:  # decompressors stop there
            raise CorruptStream(f"it holds more than {nbytes} bytes")
        if len(plain) < nbytes:
            raise CorruptStream(f"it holds {len(plain)} bytes, expected {nbytes}")
        return plain
