"""``gzip``: one gzip member (RFC 1952) per item, by the zlib of the standard library."""

import zlib
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

from obscodec.codecs.formats.gzip_member import GzipMember
from obscodec.codecs.stage import Levels


@dataclass(frozen=True)
class Gzip(GzipMember):
    """gzip without a name and a time, so that equal items have equal streams. See ``docs/formats/gzip.md``."""

    name: ClassVar[str] = "gzip"
    levels: ClassVar[Levels] = Levels(((0, 9),), 6)
    module: ClassVar[ModuleType] = zlib
