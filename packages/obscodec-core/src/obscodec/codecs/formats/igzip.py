"""``igzip``: one gzip member (RFC 1952) per item, by Intel's ISA-L, which is faster than zlib."""

from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

from isal import isal_zlib

from obscodec.codecs.formats.gzip import Gzip
from obscodec.codecs.stage import Levels


@dataclass(frozen=True)
class Igzip(Gzip):
    """The format of ``gzip``, written and read by ISA-L. See ``docs/formats/gzip.md``."""

    name: ClassVar[str] = "igzip"
    levels: ClassVar[Levels] = Levels(((0, 3),), 2)
    module: ClassVar[ModuleType] = isal_zlib
