"""Codec: items of one layout to streams and back, a batch at a time."""

import base64
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_elements, check_kind
from obscodec.codecs.encoded import EncodedTensor, check_encoded
from obscodec.codecs.stage import Stage
from obscodec.errors import CorruptStream, DictionaryMissing, DTypeError, ShapeError, SpecError
from obscodec.layout import ArrayLike, Layout, Rows, as_array, as_writable
from obscodec.segments import Bytes, Ints, Segments


@dataclass(frozen=True)
class Codec(Stage):
    """A lossless codec for items of one layout.

    A subclass implements :meth:`bound`, :meth:`encode_rows` and :meth:`decode_rows`, and
    ``obscodec.testing.CodecContract`` tests it. The methods for callers are here; they check their arguments first.
    """

    @abstractmethod
    def bound(self) -> int:
        """The most bytes that the stream of one item can have."""

    def read_bound(self) -> int:
        """The most bytes that a readable stream can have: more than :meth:`bound` if the decoder reads longer ones."""
        return self.bound()

    @abstractmethod
    def encode_rows(self, rows: Rows, out: Bytes) -> Sequence[int] | Ints:
        """Write the streams of ``rows`` into ``out``, one behind the other.

        Args:
            rows: ``u8[n, nbytes]``, contiguous.
            out: at least ``n * bound()`` bytes.

        Returns:
            The length of each stream.
        """

    @abstractmethod
    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Fill ``rows``, ``u8[n, nbytes]`` and contiguous, from ``n`` streams, and write nothing else.

        Raises:
            CorruptStream: :meth:`encode_rows` does not write such a stream for any item of this layout.
        """

    def decode_beginnings(self, src: Segments, rows: Rows, wanted: Ints) -> None:
        """Fill at least the first ``wanted[i] > 0`` bytes of each row, ``i64[n]``; otherwise as :meth:`decode_rows`.

        A codec that can stop early does so, and does not look at what its streams have behind that.
        """
        del wanted
        self.decode_rows(src, rows)

    @property
    def dictionary(self) -> bytes:
        """Trained state without which the streams can't be decoded, empty for none."""
        return b""

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This codec with another dictionary; of a format that has some, it is a field.

        Raises:
            SpecError: the format does not have such a dictionary.
        """
        if any(of.name == "dictionary" for of in fields(self)):
            return replace(self, dictionary=dictionary)  # type: ignore[call-arg]  # of a subclass
        if dictionary:
            raise SpecError(f"{self.spec} has no dictionaries, got one of {len(dictionary)} bytes")
        return self

    @property
    def dictionary_id(self) -> int:
        """The CRC-32 of the dictionary, 0 for none."""
        return zlib.crc32(self.dictionary) or 1 if self.dictionary else 0

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """A codec with a dictionary trained on typical items, ``[n, *shape]``; this one if the format has none."""
        del samples
        return self

    def suits(self, samples: npt.NDArray[np.generic]) -> bool:
        """Whether this codec is worth trying on such items, ``[n, *shape]``; of none, their layout says it.

        It is a quick look, which compiles nothing.
        """
        del samples
        return True

    @property
    def misreads(self) -> str:
        """What this codec takes items of its layout for, such as ``"84 images of 84x4"``, if they look like others.

        ``obscodec.encode`` refuses them then, and a buffer stores their last axis first. "" if they look right.
        """
        return ""

    def encode_batch(self, rows: Rows, out: Bytes) -> Segments:
        """Encode many items.

        Args:
            rows: ``u8[n, nbytes]``, contiguous; see ``Layout.rows``.
            out: ``u8[:]`` of at least ``n * bound()`` bytes.

        Returns:
            The streams, which lie in ``out``.

        Raises:
            ShapeError: ``rows`` or ``out`` has the wrong size.
            DTypeError: ``out`` is read-only, or one of the two is no array.
        """
        self._check_rows(rows)
        check_kind("out", out, np.ndarray, "a numpy array u8[:]")
        if out.dtype != np.uint8 or out.ndim != 1:
            raise ShapeError(f"out is u8[:], got {out.dtype}{list(out.shape)}")
        _check_writable("out", out)
        if out.nbytes < len(rows) * self.bound():
            raise ShapeError(
                f"{len(rows)} streams of {self.spec} need up to {len(rows) * self.bound()} bytes, out has {out.nbytes}"
            )
        return Segments.packed(out, np.asarray(self.encode_rows(rows, out), np.int64))

    def decode_batch(self, src: Segments, rows: Rows) -> None:
        """Decode many items into ``rows``, ``u8[n, nbytes]`` and contiguous.

        Raises:
            ShapeError: ``rows`` has the wrong size.
            DTypeError: ``rows`` is read-only or no array, or ``src`` is not Segments.
            DictionaryMissing: a stream names another dictionary.
            CorruptStream: a stream is truncated, altered or of another format; ``rows`` may be partly written.
        """
        self._check_rows(rows)
        _check_writable("rows", rows)
        check_kind("src", src, Segments, "Segments, such as Segments.of([b'abc'])")
        if len(src) != len(rows):
            raise ShapeError(f"{len(src)} streams decode into {len(src)} rows, got {len(rows)}")
        try:
            self.decode_rows(src, rows)
        except CorruptStream as error:
            raise CorruptStream(f"{self.spec} stream of {self.layout} can't be decoded: {error}") from error

    def encode(self, x: ArrayLike) -> EncodedTensor:
        """Encode one tensor of this layout; see :func:`obscodec.encode`."""
        out = np.empty(self.bound(), np.uint8)
        streams = self.encode_batch(self.layout.rows(as_array(x)[None]), out)
        return EncodedTensor(streams[0].copy(), self.layout, self.spec, self.dictionary_id)

    def decode(self, encoded: EncodedTensor, out: ArrayLike | None = None) -> npt.NDArray[np.generic]:
        """Decode one tensor of this layout that an equal codec encoded; see :func:`obscodec.decode`.

        A bool that is stored as a byte other than 0 and 1 becomes True.
        """
        check_encoded(encoded)
        if encoded.dictionary_id != self.dictionary_id:
            raise DictionaryMissing(
                f"stream needs dictionary {encoded.dictionary_id:#x}, this codec has {self.dictionary_id:#x}: "
                "decode it with the fitted codec that encoded it"
            )
        self._check_layout("encoded tensor", encoded.layout)
        target = np.empty(self.layout.shape, self.layout.dtype) if out is None else as_writable(out)
        self._check_layout("out", Layout.of(target))
        in_place = target.flags.c_contiguous and target.dtype == self.layout.dtype
        filled = target if in_place else np.empty(self.layout.shape, self.layout.dtype)
        rows = self.layout.rows(filled[None])
        self.decode_batch(Segments.packed(encoded.stream, np.array([encoded.stream.size])), rows)
        if self.layout.dtype.kind == "b":
            np.minimum(rows, 1, out=rows)  # numpy relies on it
        if not in_place:
            target[...] = filled
        return target

    def config(self) -> dict[str, object]:
        """Plain JSON values; ``obscodec.codecs.codec_from_config`` builds an equal codec from them."""
        config: dict[str, object] = {"spec": self.spec, "layout": self.layout.config()}
        if self.dictionary:
            config["dictionary"] = base64.b64encode(self.dictionary).decode()
        return config

    def _check_rows(self, rows: Rows) -> None:
        if type(rows) is not np.ndarray:
            check_kind("rows", rows, np.ndarray, f"a numpy array u8[n, {self.layout.nbytes}]")
            check_elements(rows)
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != self.layout.nbytes:
            raise ShapeError(f"rows are u8[n, {self.layout.nbytes}], got {rows.dtype}{list(rows.shape)}")
        if not rows.flags.c_contiguous:
            raise ShapeError("rows must be contiguous, use Layout.rows")

    def _check_layout(self, what: str, found: Layout) -> None:
        if found.shape != self.layout.shape:
            raise ShapeError(f"{what} has shape {found.shape}, the codec is for {self.layout.shape}")
        if found.dtype != self.layout.dtype:
            raise DTypeError(f"{what} has dtype {found.dtype}, the codec is for {self.layout.dtype}")


def _check_writable(what: str, array: Bytes) -> None:
    if not array.flags.writeable:
        raise DTypeError(f"{what} is read-only, pass an array that can be written")
