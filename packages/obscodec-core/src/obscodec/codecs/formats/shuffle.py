"""``shuffle``: the first bytes of all elements, then all second bytes, and so on, as in HDF5 and Blosc."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from obscodec.codecs.stage import Filter
from obscodec.layout import Layout, Rows


@dataclass(frozen=True)
class Shuffle(Filter):
    """Transposes the bytes of an item, ``u8[size, itemsize]``. See ``docs/formats/shuffle.md``."""

    name: ClassVar[str] = "shuffle"
    format: ClassVar[str] = "shuffle@1"

    @property
    def target(self) -> Layout:
        """``u8[itemsize, images, height, width, channels]``."""
        itemsize, shape = self.layout.dtype.itemsize, self.layout.shape
        return Layout((itemsize, math.prod(shape[:-3]), *shape[-3:]), "uint8")

    def apply(self, rows: Rows, out: Rows) -> None:
        """Transpose."""
        for k, plane in enumerate(self._planes(out)):
            plane[:] = self._numbers(rows)[:, :, k]

    def undo(self, rows: Rows, out: Rows) -> None:
        """Transpose back."""
        for k, plane in enumerate(self._planes(rows)):
            self._numbers(out)[:, :, k] = plane

    def _numbers(self, rows: Rows) -> npt.NDArray[np.uint8]:
        itemsize = self.layout.dtype.itemsize
        return rows.reshape(len(rows), self.layout.nbytes // itemsize, itemsize)

    def _planes(self, rows: Rows) -> list[Rows]:
        return np.split(rows, self.layout.dtype.itemsize, axis=1)
