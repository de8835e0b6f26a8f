"""Chains, ``|`` in a spec: filters, then a codec, then codecs that compress its streams further."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.codec import Codec
from obscodec.codecs.stage import Filter
from obscodec.errors import CorruptStream
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments, put_streams
from obscodec.varint import MAX_VARINT_NBYTES, decode_varint, encode_varint


@dataclass(frozen=True)
class FilteredCodec(Codec):
    """A filter in front of a codec: ``shuffle|zstd:3``."""

    filter: Filter = field(kw_only=True)
    inner: Codec = field(kw_only=True)

    @property
    def spec(self) -> str:
        """The canonical text that builds this chain."""
        return f"{self.filter.spec}|{self.inner.spec}"

    @property
    def misreads(self) -> str:
        """See ``Codec.misreads``."""
        return self.inner.misreads

    @property
    def dictionary(self) -> bytes:
        """The dictionary of the codec behind the filter."""
        return self.inner.dictionary

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This chain with another dictionary in the codec behind the filter."""
        return replace(self, inner=self.inner.with_dictionary(dictionary))

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """Train the codec behind the filter on filtered samples."""
        filtered = self._apply(self.layout.rows(samples))
        return replace(self, inner=self.inner.fit(self.filter.target.tensors(filtered)))

    def suits(self, samples: npt.NDArray[np.generic]) -> bool:
        """Whether the codec behind the filter suits items of its layout: the numbers are others there."""
        del samples
        target = self.filter.target
        return self.inner.suits(np.empty((0, *target.shape), target.dtype))

    def bound(self) -> int:
        """The most bytes that the stream of one item can have."""
        return self.inner.bound()

    def read_bound(self) -> int:
        """The most bytes that a readable stream can have."""
        return self.inner.read_bound()

    def encode_rows(self, rows: Rows, out: Bytes) -> Sequence[int] | Ints:
        """Apply the filter, then encode."""
        return self.inner.encode_rows(self._apply(rows), out)

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decode, then undo the filter."""
        filtered = np.empty((len(rows), self.filter.target.nbytes), np.uint8)
        self.inner.decode_rows(src, filtered)
        self.filter.undo(filtered, rows)

    def _apply(self, rows: Rows) -> Rows:
        filtered = np.empty((len(rows), self.filter.target.nbytes), np.uint8)
        self.filter.apply(rows, filtered)
        return filtered


@dataclass(frozen=True)
class TailedCodec(Codec):
    """A codec whose streams another codec, the tail, compresses: ``rle|zstd:3``.

    A stream is a varint, the length of the inner stream, and then the inner stream as the tail compresses it.
    """

    inner: Codec = field(kw_only=True)
    tail: BytesCodec = field(kw_only=True)

    @property
    def spec(self) -> str:
        """The canonical text that builds this chain."""
        return f"{self.inner.spec}|{self.tail.spec}"

    @property
    def misreads(self) -> str:
        """See ``Codec.misreads``."""
        return self.inner.misreads

    @property
    def dictionary(self) -> bytes:
        """The dictionary of the tail."""
        return self.tail.dictionary

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This chain with another dictionary in its tail."""
        return replace(self, tail=self.tail.with_dictionary(dictionary))

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """Train the tail on the streams of the codec before it."""
        return replace(self, tail=self.tail.train(self._inner_streams(self.layout.rows(samples))))

    def bound(self) -> int:
        """The most bytes that the stream of one item can have."""
        return MAX_VARINT_NBYTES + self.tail.max_compressed(self.inner.bound())

    def read_bound(self) -> int:
        """The most bytes that a readable stream can have."""
        return MAX_VARINT_NBYTES + self.tail.max_compressed(self.inner.read_bound())

    def encode_rows(self, rows: Rows, out: Bytes) -> list[int]:
        """Encode the rows, then compress each stream."""
        inner = self._inner_streams(rows)
        return put_streams((encode_varint(len(stream)) + self.tail.compress(stream.data) for stream in inner), out)

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decompress each stream, then decode the rows."""
        self.inner.decode_rows(Segments.of([self._decompress(stream) for stream in src]), rows)

    def _inner_streams(self, rows: Rows) -> Segments:
        scratch = np.empty(len(rows) * self.inner.bound(), np.uint8)
        return Segments.packed(scratch, np.asarray(self.inner.encode_rows(rows, scratch), np.int64))

    def _decompress(self, stream: Bytes) -> bytes:
        nbytes, start = decode_varint(stream)
        if nbytes > (most := self.inner.read_bound()):
            raise CorruptStream(f"its inner stream has {nbytes} bytes, at most {most} are possible")
        return self.tail.decompress_exactly(stream[start:].data, nbytes)
