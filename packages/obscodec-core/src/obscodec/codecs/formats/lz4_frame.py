"""``lz4-frame``: one LZ4 frame per item, as the ``lz4`` command line tool reads it."""

from dataclasses import dataclass
from typing import ClassVar

import lz4.frame

from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.stage import Levels
from obscodec.errors import CorruptStream

_BLOCK_NBYTES = 64 * 1024
_HEAD_AND_END_NBYTES = 19 + 4


@dataclass(frozen=True)
class Lz4Frame(BytesCodec):
    """LZ4 frames with their content size, linked blocks of 64 KiB, no checksum. See ``docs/formats/lz4-frame.md``."""

    name: ClassVar[str] = "lz4-frame"
    format: ClassVar[str] = "lz4-frame@1"
    levels: ClassVar[Levels] = Levels(((-100, 16),), 0)

    def max_compressed(self, nbytes: int) -> int:
        """The size of a frame of stored blocks, each behind 4 bytes."""
        return nbytes + 4 * (nbytes // _BLOCK_NBYTES + 1) + _HEAD_AND_END_NBYTES

    def compress(self, plain: memoryview) -> bytes:
        """One frame."""
        frame: bytes = lz4.frame.compress(
            plain, compression_level=self.level, block_size=lz4.frame.BLOCKSIZE_MAX64KB, store_size=True
        )
        return frame

    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The content of one frame that fills the whole stream, at most one byte more than ``nbytes`` of it."""
        frame = lz4.frame.LZ4FrameDecompressor()
        try:
            plain: bytes = frame.decompress(stream, max_length=nbytes + 1)
        except RuntimeError as error:
            raise CorruptStream(f"it is no LZ4 frame: {error}") from error
        if len(plain) <= nbytes and not frame.eof:
            raise CorruptStream("its LZ4 frame has no end")
        if frame.unused_data:
            raise CorruptStream(f"{len(frame.unused_data)} bytes follow its LZ4 frame")
        return plain
