"""``gzip``: one gzip member (RFC 1952) per item, by the zlib of the standard library."""

import zlib
from dataclasses import dataclass
from typing import ClassVar, cast

from obscodec.codecs.formats.gzip_member import GZIP_WBITS, GzipMember, Inflate
from obscodec.codecs.stage import Levels


@dataclass(frozen=True)
class Gzip(GzipMember):
    """gzip without a name and a time, so that equal items have equal streams. See ``docs/formats/gzip.md``."""

    name: ClassVar[str] = "gzip"
    levels: ClassVar[Levels] = Levels(((0, 9),), 6)
    error: ClassVar[type[Exception]] = zlib.error

    def deflate(self, plain: memoryview) -> bytes:
        """One gzip member."""
        return zlib.compress(plain, cast("int", self.level), GZIP_WBITS)

    def inflate(self) -> Inflate:
        """A decompressor for one gzip member."""
        return cast("Inflate", zlib.decompressobj(GZIP_WBITS))
