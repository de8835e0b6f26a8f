"""``lz4``: one LZ4 block per item, without a header."""

import threading
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import lz4.block
import numpy as np

from obscodec.codecs.bytes_codec import BytesCodec, Lz4Encoder
from obscodec.codecs.stage import Levels
from obscodec.errors import CorruptStream, ShapeError
from obscodec.runtime import new_table
from obscodec.segments import Bytes, Segments
from obscodec.streams import N_HEADS, index_dictionary

_DICTIONARY_NBYTES = 1 << 16  # no match of LZ4 reaches further back
_BEST_MATCHES = 10  # the least level that compares all ways to divide the bytes into matches
_MAX_NBYTES = 0x7E000000  # LZ4_MAX_INPUT_SIZE


class _Last(threading.local):
    """The encoder that a thread used last, of 400 kB, and what it encodes. Another one takes 0.3 ms to make."""

    encodes: tuple[bytes, int | None, int] | None = None
    encoder: Lz4Encoder | None = None


_last = _Last()


@dataclass(frozen=True)
class Lz4(BytesCodec):
    """LZ4 blocks: fast without a level, faster with a negative one, smaller with one of 1..12.

    See ``docs/formats/lz4.md``.
    """

    name: ClassVar[str] = "lz4"
    format: ClassVar[str] = "lz4@1"
    levels: ClassVar[Levels] = Levels(((-100, -1), (1, 12)), None)

    dictionary: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout.nbytes > _MAX_NBYTES:
            raise ShapeError(
                f"an lz4 block holds at most {_MAX_NBYTES} bytes, {self.layout} has {self.layout.nbytes}: use zstd"
            )

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This codec with the last 64 KiB of other bytes as its dictionary."""
        return replace(self, dictionary=dictionary[-_DICTIONARY_NBYTES:])

    def train(self, samples: Segments) -> Self:
        """A codec whose dictionary is whole ``samples``, evenly spread, 64 KiB in all; parts measured worse."""
        if not samples.nbytes:
            return self
        n = max(1, _DICTIONARY_NBYTES * len(samples) // samples.nbytes)
        chosen = samples.take(slice(None, None, -(-len(samples) // n)))
        return self.with_dictionary(b"".join(sample.tobytes() for sample in chosen))

    def lz4_scratch(self, nbytes: int) -> tuple[Bytes, int, int, int]:
        """See ``BytesCodec.lz4_scratch``."""
        return self.per_thread(f"scratch of {nbytes} bytes", lambda: self._new_scratch(nbytes))

    def lz4_encoder(self, nbytes: int) -> Lz4Encoder | None:
        """See ``BytesCodec.lz4_encoder``. Levels from 10 on are left to liblz4, which compares all ways."""
        if (self.level is not None and self.level >= _BEST_MATCHES) or nbytes > _MAX_NBYTES:
            return None
        encodes = self.dictionary, self.level, nbytes
        if _last.encodes != encodes:
            _last.encodes = _last.encoder = None
            _last.encoder = self._new_encoder(nbytes)
            _last.encodes = encodes
        return _last.encoder

    def _new_scratch(self, nbytes: int) -> tuple[Bytes, int, int, int]:
        n = len(self.dictionary)
        memory = np.empty(n + nbytes, np.uint8)
        memory[:n] = np.frombuffer(self.dictionary, np.uint8)
        return memory, memory.ctypes.data + n, n, nbytes

    def _new_encoder(self, nbytes: int) -> Lz4Encoder:
        n = len(self.dictionary)
        scratch = new_table((n + nbytes + 8,), np.uint8)
        scratch[:n] = np.frombuffer(self.dictionary, np.uint8)
        (heads, recent), chain = new_table((2, N_HEADS), np.int32), new_table((n + nbytes,), np.uint16)
        index_dictionary(scratch[:n], heads, chain)
        return Lz4Encoder(scratch, n, heads, recent, chain, 1 << max(0, (self.level or 0) - 1))

    def max_compressed(self, nbytes: int) -> int:
        """LZ4's own bound, ``LZ4_compressBound``."""
        return nbytes + nbytes // 255 + 16

    def compress(self, plain: memoryview) -> bytes:
        """One block."""
        options: dict[str, object] = {"mode": "default"}
        if self.level is not None and self.level < 0:
            options = {"mode": "fast", "acceleration": -self.level}
        elif self.level is not None:
            options = {"mode": "high_compression", "compression": self.level}
        block: bytes = lz4.block.compress(plain, store_size=False, dict=self.dictionary, **options)
        return block

    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The content of one block that fills the whole stream."""
        try:
            plain: bytes = lz4.block.decompress(stream, uncompressed_size=nbytes, dict=self.dictionary)
        except lz4.block.LZ4BlockError as error:
            raise CorruptStream(f"it is no LZ4 block of {nbytes} bytes") from error
        return plain
