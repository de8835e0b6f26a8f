"""``shuffle``: the first bytes of all elements, then all second bytes, and so on, as in HDF5 and Blosc."""

from dataclasses import dataclass
from typing import ClassVar

from obscodec.codecs.stage import Filter
from obscodec.layout import Layout, Rows


@dataclass(frozen=True)
class Shuffle(Filter):
    """Transposes the bytes of an item, ``u8[size, itemsize]``. See ``docs/formats/shuffle.md``."""

    name: ClassVar[str] = "shuffle"
    format: ClassVar[str] = "shuffle@1"

    @property
    def target(self) -> Layout:
        """``u8[itemsize, size]``."""
        itemsize = self.layout.dtype.itemsize
        return Layout((itemsize, self.layout.nbytes // itemsize), "uint8")

    def apply(self, rows: Rows, out: Rows) -> None:
        """Transpose."""
        itemsize, size = self.target.shape
        out.reshape(len(rows), itemsize, size)[:] = rows.reshape(len(rows), size, itemsize).swapaxes(1, 2)

    def undo(self, rows: Rows, out: Rows) -> None:
        """Transpose back."""
        itemsize, size = self.target.shape
        out.reshape(len(rows), size, itemsize)[:] = rows.reshape(len(rows), itemsize, size).swapaxes(1, 2)
