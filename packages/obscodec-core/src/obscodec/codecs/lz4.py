"""``lz4``: one LZ4 block per item, without a header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import lz4.block

from obscodec.bytes_codec import BytesCodec
from obscodec.errors import CorruptStream, ShapeError
from obscodec.stage import Levels

_MAX_NBYTES = 0x7E000000  # LZ4_MAX_INPUT_SIZE


@dataclass(frozen=True)
class Lz4(BytesCodec):
    """LZ4 blocks: fast without a level, faster with a negative one, smaller with one of 1..12.

    See ``docs/formats/lz4.md``.
    """

    name: ClassVar[str] = "lz4"
    format: ClassVar[str] = "lz4@1"
    levels: ClassVar[Levels] = Levels(((-100, -1), (1, 12)), None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout.nbytes > _MAX_NBYTES:
            raise ShapeError(
                f"an lz4 block holds at most {_MAX_NBYTES} bytes, {self.layout} has {self.layout.nbytes}: use lz4-frame"
            )

    def max_compressed(self, nbytes: int) -> int:
        """LZ4's own bound, ``LZ4_compressBound``."""
        return nbytes + nbytes // 255 + 16

    def compress(self, plain: memoryview) -> bytes:
        """One block."""
        block: bytes
        if self.level is None:
            block = lz4.block.compress(plain, mode="default", store_size=False)
        elif self.level < 0:
            block = lz4.block.compress(plain, mode="fast", acceleration=-self.level, store_size=False)
        else:
            block = lz4.block.compress(plain, mode="high_compression", compression=self.level, store_size=False)
        return block

    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The content of one block that fills the whole stream."""
        try:
            plain: bytes = lz4.block.decompress(stream, uncompressed_size=nbytes)
        except lz4.block.LZ4BlockError as error:
            raise CorruptStream(f"it is no LZ4 block of {nbytes} bytes") from error
        return plain
