"""``gzip``: one gzip member (RFC 1952) per item, by the zlib of the standard library."""

import struct
import zlib
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.stage import Levels
from obscodec.errors import CorruptStream

_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, no operating system
_STORED_NBYTES = 0xFFFF
_GZIP_WBITS = 31


@dataclass(frozen=True)
class Gzip(BytesCodec):
    """gzip without a name and a time, so that equal items have equal streams. See ``docs/formats/gzip.md``.

    What does not compress is stored, so that it grows by 5 bytes in 65,535, and 18. ``module`` is zlib, or a library
    with its functions.
    """

    name: ClassVar[str] = "gzip"
    format: ClassVar[str] = "gzip@1"
    levels: ClassVar[Levels] = Levels(((0, 9),), 6)
    module: ClassVar[ModuleType] = zlib

    def max_compressed(self, nbytes: int) -> int:
        """The size of a stored member."""
        return nbytes + 18 + 5 * max(1, -(-nbytes // _STORED_NBYTES))

    def compress(self, plain: memoryview) -> bytes:
        """One gzip member, stored where that is smaller."""
        member: bytes = self.module.compress(plain, self.level, _GZIP_WBITS)
        return member if len(member) <= self.max_compressed(len(plain)) else _stored(plain)

    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        """The content of one member that fills the whole stream, at most one byte more than ``nbytes`` of it."""
        member = self.module.decompressobj(_GZIP_WBITS)
        try:
            plain: bytes = member.decompress(stream, nbytes + 1)
        except self.module.error as error:
            raise CorruptStream(f"it is no gzip member: {error}") from error
        if len(plain) <= nbytes and not member.eof:
            raise CorruptStream("its gzip member has no end")
        if member.unused_data:
            raise CorruptStream(f"{len(member.unused_data)} bytes follow its gzip member")
        return plain


def _stored(plain: memoryview) -> bytes:
    """A gzip member of stored blocks. The libraries may need more bytes, igzip:0 a quarter more."""
    parts = [_HEAD]
    for start in range(0, max(1, len(plain)), _STORED_NBYTES):
        block = plain[start : start + _STORED_NBYTES]
        is_last = start + _STORED_NBYTES >= len(plain)
        parts += [struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF), bytes(block)]
    return b"".join([*parts, struct.pack("<II", zlib.crc32(plain), len(plain) & 0xFFFFFFFF)])
