"""BytesCodec: a codec that sees an item as plain bytes, as most compression libraries do."""

import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from obscodec.codecs.codec import Codec
from obscodec.errors import CorruptStream
from obscodec.layout import Rows
from obscodec.segments import Bytes, Segments, put_streams

T = TypeVar("T")


class Lz4Encoder(NamedTuple):
    """What a kernel encodes LZ4 blocks with; no other call uses it meanwhile.

    Attributes:
        scratch: ``u8[dictionary_nbytes + nbytes + 8]``, which begins with the dictionary.
        dictionary_nbytes: the bytes of the dictionary.
        heads: see ``streams.lz4``, as the next two.
        recent: ``i32[N_HEADS]``.
        chain: ``u16[dictionary_nbytes + nbytes]``.
        n_attempts: how many earlier positions each position is compared with.
    """

    scratch: Bytes
    dictionary_nbytes: int
    heads: npt.NDArray[np.int32]
    recent: npt.NDArray[np.int32]
    chain: npt.NDArray[np.uint16]
    n_attempts: int


@dataclass(frozen=True)
class BytesCodec(Codec):
    """Compresses each row with one call of a library. In a chain it may also follow another codec."""

    _local: threading.local = field(default_factory=threading.local, init=False, repr=False, compare=False)

    @abstractmethod
    def max_compressed(self, nbytes: int) -> int:
        """The most bytes that ``nbytes`` bytes compress to."""

    @abstractmethod
    def compress(self, plain: memoryview) -> bytes:
        """The stream of ``plain``, contiguous bytes."""

    @abstractmethod
    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The inverse of :meth:`compress`, for a stream that should hold ``nbytes`` bytes.

        If it holds more or fewer, this may return another number of bytes, but must not allocate many more.

        Raises:
            CorruptStream: the stream can't be read.
        """

    def lz4_scratch(self, nbytes: int) -> tuple[Bytes, int, int, int] | None:
        """Memory of this thread for kernels that decode ``nbytes`` bytes or less; None if streams are no LZ4 blocks.

        Returns memory that begins with the dictionary, the address behind that, its bytes, and ``nbytes``.
        """
        del nbytes
        return None

    def lz4_encoder(self, nbytes: int) -> Lz4Encoder | None:
        """What kernels encode up to ``nbytes`` bytes with, in this thread; None if only :meth:`compress` can."""
        del nbytes
        return None

    def train(self, samples: Segments) -> Self:
        """A codec with a dictionary trained on byte strings; this one if the format has no dictionaries."""
        del samples
        return self

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """A codec with a dictionary trained on the bytes of ``samples``, ``[n, *shape]``."""
        rows = self.layout.rows(samples)
        return self.train(Segments.packed(rows.reshape(-1), np.full(len(rows), self.layout.nbytes)))

    def per_thread(self, name: str, make: Callable[[], T]) -> T:
        """The result of ``make``, called once in each thread: threads can't share compression contexts."""
        if not hasattr(self._local, name):
            setattr(self._local, name, make())
        return cast("T", getattr(self._local, name))

    def bound(self) -> int:
        """The most bytes that the stream of one item can have."""
        return self.max_compressed(self.layout.nbytes)

    def encode_rows(self, rows: Rows, out: Bytes) -> list[int]:
        """Compress the rows one by one."""
        return put_streams((self.compress(row.data) for row in rows), out)

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decompress the rows one by one."""
        for stream, row in zip(src, rows, strict=True):
            row[:] = np.frombuffer(self.decompress_exactly(stream.data, len(row)), np.uint8)

    def decompress_exactly(self, stream: memoryview, nbytes: int) -> bytes:
        """:meth:`decompress`, which refuses a stream that does not hold exactly ``nbytes`` bytes."""
        plain = self.decompress(stream, nbytes)
        if len(plain) > nbytes:  # most decompressors stop soon after
            raise CorruptStream(f"it holds more than {nbytes} bytes")
        if len(plain) < nbytes:
            raise CorruptStream(f"it holds {len(plain)} bytes, expected {nbytes}")
        return plain
