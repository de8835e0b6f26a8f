"""``zstd``: one Zstandard frame (RFC 8878) per item, optionally with a trained dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, cast

import zstandard

from obscodec.bytes_codec import BytesCodec
from obscodec.errors import CorruptStream
from obscodec.segments import Segments
from obscodec.stage import Levels

_DICTIONARY_NBYTES = 16 * 1024


@dataclass(frozen=True)
class Zstd(BytesCodec):
    """Zstandard with its content size in the frame and no checksum. See ``docs/formats/zstd.md``."""

    name: ClassVar[str] = "zstd"
    format: ClassVar[str] = "zstd@1"
    levels: ClassVar[Levels] = Levels(((-100, -1), (1, 22)), 3)

    trained: bytes = field(default=b"", repr=False)

    @property
    def dictionary(self) -> bytes:
        """The trained dictionary, empty for none."""
        return self.trained

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This codec with another dictionary."""
        return replace(self, trained=dictionary)

    def train(self, samples: Segments) -> Self:
        """A codec with a dictionary of 16 KiB or less, trained on ``samples``.

        Raises:
            ShapeError: the samples are too few or too small to learn from.
        """
        raise NotImplementedError

    def max_compressed(self, nbytes: int) -> int:
        """Zstandard's own bound, ``ZSTD_compressBound``."""
        return nbytes + (nbytes >> 8) + (max(0, (1 << 17) - nbytes) >> 11) + 32

    def compress(self, plain: memoryview) -> bytes:
        """One frame."""
        compressor = self.per_thread("compressor", self._compressor)
        return compressor.compress(plain)

    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The content of one frame that fills the whole stream."""
        try:
            header = zstandard.get_frame_parameters(stream)
            if header.content_size != nbytes:
                raise CorruptStream(f"its frame says {header.content_size} bytes, expected {nbytes}")
            decompressor = self.per_thread("decompressor", self._decompressor)
            return decompressor.decompress(stream, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CorruptStream(str(error)) from error

    def _compressor(self) -> zstandard.ZstdCompressor:
        return zstandard.ZstdCompressor(level=cast("int", self.level), dict_data=self._dict_data())

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(dict_data=self._dict_data())

    def _dict_data(self) -> zstandard.ZstdCompressionDict | None:
        return zstandard.ZstdCompressionDict(self.trained) if self.trained else None
