"""``bitpack``: eight bools in a byte, the first in its lowest bit."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from obscodec.codecs.stage import Filter
from obscodec.errors import CorruptStream, DTypeError
from obscodec.layout import Layout, Rows


@dataclass(frozen=True)
class BitPack(Filter):
    """Packs bools. See ``docs/formats/bitpack.md``."""

    name: ClassVar[str] = "bitpack"
    format: ClassVar[str] = "bitpack@1"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout.dtype != np.bool_:
            raise DTypeError(f"bitpack takes bool, got {self.layout.dtype.name}: leave it out of the spec")

    @property
    def target(self) -> Layout:
        """``u8[ceil(size / 8)]``."""
        return Layout((-(-self.layout.nbytes // 8),), "uint8")

    def apply(self, rows: Rows, out: Rows) -> None:
        """Pack; DTypeError if a bool is stored as a byte other than 0 and 1, which would be lost."""
        if (highest := rows.max(initial=0)) > 1:
            raise DTypeError(f"bitpack takes bools that are stored as 0 or 1, found one stored as {highest}")
        out[:] = np.packbits(rows, axis=1, bitorder="little")

    def undo(self, rows: Rows, out: Rows) -> None:
        """Unpack."""
        if (used := self.layout.nbytes % 8) and (padding := rows[:, -1] >> used).any():
            raise CorruptStream(f"the {8 - used} unused bits of its last byte are {padding.max():#b}, expected 0")
        out[:] = np.unpackbits(rows, axis=1, count=self.layout.nbytes, bitorder="little")
