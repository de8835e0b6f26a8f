"""``zstd``: one Zstandard frame (RFC 8878) per item, optionally with a trained dictionary."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
import zstandard

from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.stage import Levels
from obscodec.errors import CorruptStream, DictionaryMissing, ShapeError, SpecError
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments

_DICTIONARY_NBYTES = 16 * 1024
_EMPTY_BLOCK = b"\x01\x00\x00"  # the last block, raw, of 0 bytes


@dataclass(frozen=True)
class Zstd(BytesCodec):
    """Zstandard with its content size in the frame and no checksum. See ``docs/formats/zstd.md``."""

    name: ClassVar[str] = "zstd"
    format: ClassVar[str] = "zstd@1"
    levels: ClassVar[Levels] = Levels(((-100, -1), (1, 22)), 3)

    dictionary: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dictionary and not self._frame_dictionary_id:
            raise SpecError(
                f"{self.spec} takes dictionaries that zstd trained and that carry an id, "
                f"got {len(self.dictionary)} other bytes: use fit"
            )
        if self.dictionary:
            try:  # a damaged one is refused here: at the first item, zstd says that there is no memory
                self._compressor().compress(b"")
            except zstandard.ZstdError as error:
                zstandard.ZstdCompressor(level=cast("int", self.level)).compress(b"")  # raises if there is no memory
                raise SpecError(
                    f"{self.spec} can't use a dictionary of {len(self.dictionary)} bytes, which is damaged: use fit"
                ) from error

    def train(self, samples: Segments) -> Self:
        """A codec with a dictionary of 16 KiB or less, trained on ``samples``.

        Raises:
            ShapeError: the samples are too few or too small to learn from.
        """
        try:
            dictionary = zstandard.train_dictionary(_DICTIONARY_NBYTES, [s.tobytes() for s in samples])
        except (zstandard.ZstdError, ValueError) as error:
            raise ShapeError(
                f"zstd can't learn a dictionary from {len(samples)} samples with {samples.nbytes} bytes in all "
                f"({error}): give it some hundred typical items"
            ) from error
        return self.with_dictionary(dictionary.as_bytes())

    def max_compressed(self, nbytes: int) -> int:
        """Zstandard's own bound, ``ZSTD_compressBound``, and the id of a dictionary."""
        return nbytes + (nbytes >> 8) + (max(0, (1 << 17) - nbytes) >> 11) + 32

    def compress(self, plain: memoryview) -> bytes:
        """One frame."""
        return self.per_thread("compressor", self._compressor).compress(plain)

    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The content of one frame that fills the whole stream.

        Raises:
            CorruptStream: the frame can't be read, or announces another size than ``nbytes``.
            DictionaryMissing: the frame names another dictionary.
        """
        try:
            self._check_frame(stream, nbytes)
            return self.per_thread("decompressor", self._decompressor).decompress(stream, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CorruptStream(str(error)) from error

    def decode_beginnings(self, src: Segments, rows: Rows, wanted: Ints) -> None:
        """Decompress each stream as far as the wanted bytes."""
        for stream, row, nbytes in zip(src, rows, wanted.tolist(), strict=True):
            if nbytes == len(row):
                row[:] = np.frombuffer(self.decompress_exactly(stream.data, nbytes), np.uint8)
            else:
                self._decompress_beginning(stream.data, row, nbytes)

    def _decompress_beginning(self, stream: memoryview, row: Bytes, nbytes: int) -> None:
        try:
            self._check_frame(stream, len(row))
            reader = self.per_thread("decompressor", self._decompressor).stream_reader(stream)
            done = reader.readinto(row[:nbytes].data)
        except zstandard.ZstdError as error:
            raise CorruptStream(str(error)) from error
        if done < nbytes:
            raise CorruptStream(f"it holds {done} bytes, expected {nbytes} or more")

    def _check_frame(self, stream: memoryview, nbytes: int) -> None:
        frame = zstandard.get_frame_parameters(stream)
        if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
            raise CorruptStream("its frame does not say how many bytes it holds")
        if frame.content_size != nbytes:  # checked before that much is allocated
            raise CorruptStream(f"its frame says {frame.content_size} bytes, expected {nbytes}")
        if frame.dict_id != self._frame_dictionary_id:
            raise DictionaryMissing(
                f"frame needs zstd dictionary {frame.dict_id:#x}, this codec has {self._frame_dictionary_id:#x}: "
                "decode it with the fitted codec that encoded it"
            )
        if nbytes == 0 and stream[zstandard.frame_header_size(stream) :] != _EMPTY_BLOCK:  # the library does not check
            raise CorruptStream("its frame of 0 bytes is not one empty block")

    @cached_property
    def _frame_dictionary_id(self) -> int:
        """The id that zstd itself writes into each frame, 0 for none."""
        return zstandard.ZstdCompressionDict(self.dictionary).dict_id() if self.dictionary else 0

    def _compressor(self) -> zstandard.ZstdCompressor:
        return zstandard.ZstdCompressor(level=cast("int", self.level), dict_data=self._dict_data())

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(dict_data=self._dict_data())

    def _dict_data(self) -> zstandard.ZstdCompressionDict | None:
        return zstandard.ZstdCompressionDict(self.dictionary) if self.dictionary else None
