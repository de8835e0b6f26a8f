"""``igzip``: one gzip member (RFC 1952) per item, by Intel's ISA-L, which is faster than zlib."""

from dataclasses import dataclass
from typing import ClassVar, cast

from isal import isal_zlib

from obscodec.codecs.formats.gzip_member import GZIP_WBITS, GzipMember, Inflate
from obscodec.codecs.stage import Levels


@dataclass(frozen=True)
class Igzip(GzipMember):
    """The bytes of ``gzip``, made and read by ISA-L. See ``docs/formats/gzip.md``."""

    name: ClassVar[str] = "igzip"
    levels: ClassVar[Levels] = Levels(((0, 3),), 2)
    error: ClassVar[type[Exception]] = cast("type[Exception]", isal_zlib.error)

    def deflate(self, plain: memoryview) -> bytes:
        """One gzip member."""
        return isal_zlib.compress(plain, cast("int", self.level), GZIP_WBITS)

    def inflate(self) -> Inflate:
        """A decompressor for one gzip member."""
        return cast("Inflate", isal_zlib.decompressobj(GZIP_WBITS))
