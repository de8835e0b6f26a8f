"""``rle``: runs of equal elements, one section of run lengths and one of values; or the item, where that is less."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from obscodec.codecs.codec import Codec
from obscodec.codecs.formats.rle_kernel import decode_items, encode_items, new_scratch
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments
from obscodec.statuses import check


@dataclass(frozen=True)
class Rle(Codec):
    """Run-length coding of whole elements, of 1, 2, 4 or 8 bytes. See ``docs/formats/rle.md``."""

    name: ClassVar[str] = "rle"
    format: ClassVar[str] = "rle@1"

    @property
    def width(self) -> int:
        """Bytes of an element: the largest power of two that divides the dtype's, at most 8."""
        itemsize = self.layout.dtype.itemsize
        return min(itemsize & -itemsize, 8)

    def bound(self) -> int:
        """A count of no runs, and the item."""
        return 1 + self.layout.nbytes

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        """Encode all rows in one compiled call, without the GIL."""
        lengths = np.empty(len(rows), np.int64)
        encode_items(rows, self.width.bit_length() - 1, out, lengths, new_scratch(self.layout.nbytes))
        return lengths

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decode all rows in one compiled call, without the GIL."""
        inside, src = src.inside(), src.contiguous()
        lengths = np.where(inside, src.lengths, -1)
        kind = f"u{self.width}"
        elements = rows.view(kind) if rows.size else np.empty((len(rows), 0), kind)
        check(decode_items(src.addresses(), lengths, elements, rows))
