"""``raw``: the bytes as they are."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from obscodec.codecs.codec import Codec
from obscodec.errors import CorruptStream
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments


@dataclass(frozen=True)
class Raw(Codec):
    """Stores an item as its bytes, in C order and little-endian. See ``docs/formats/raw.md``."""

    name: ClassVar[str] = "raw"
    format: ClassVar[str] = "raw@1"

    def bound(self) -> int:
        """The bytes of an item."""
        return self.layout.nbytes

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        """Copy the rows."""
        out[: rows.size] = rows.reshape(-1)
        return np.full(len(rows), self.layout.nbytes, np.int64)

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Copy the rows back."""
        for stream, row in zip(src, rows, strict=True):
            if len(stream) != len(row):
                raise CorruptStream(f"it has {len(stream)} bytes, expected {len(row)}")
            row[:] = stream
