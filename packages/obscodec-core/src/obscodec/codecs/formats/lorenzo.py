"""``lorenzo``: numbers as differences from left + above - above left, as in fpzip and SZ."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.stage import Filter
from obscodec.layout import Layout, Rows

_MOST_CHANNELS: Final = 4  # of an image; a longer last axis is its width
_WIDEST: Final = 8  # bytes of an integer; numbers with more are several
_MANY: Final = 512  # numbers, for which a call of numpy is faster than a sum number by number


@dataclass(frozen=True)
class Lorenzo(Filter):
    """Differences of the bits of numbers along both axes of images. See ``docs/formats/lorenzo.md``."""

    name: ClassVar[str] = "lorenzo"
    format: ClassVar[str] = "lorenzo@1"

    @property
    def target(self) -> Layout:
        """Unsigned integers, ``[images, height, width, channels]``."""
        shape, itemsize = self.layout.shape, self.layout.dtype.itemsize
        has_channels = len(shape) >= 3 and shape[-1] <= _MOST_CHANNELS
        *in_front, height, width, n_channels = (1, 1, *shape) if has_channels else (1, 1, *shape, 1)
        nbytes = math.gcd(itemsize, _WIDEST)
        return Layout((math.prod(in_front), height, width, n_channels * itemsize // nbytes), f"uint{8 * nbytes}")

    def apply(self, rows: Rows, out: Rows) -> None:
        """Subtract, and turn the signed differences 0, -1, 1, -2 into 0, 1, 2, 3."""
        x, differences = self._images(rows), self._images(out)
        differences[:] = x
        differences[:, 1:] -= x[:, :-1]
        differences[:, :, 1:] -= differences[:, :, :-1]  # numpy copies what overlaps
        np.bitwise_xor(differences << 1, -(differences >> (8 * x.itemsize - 1)), out=differences)

    def undo(self, rows: Rows, out: Rows) -> None:
        """Sum up, first along the rows of images."""
        folded, x = self._images(rows), self._images(out)
        np.right_shift(folded, 1, out=x)
        x ^= -(folded & 1)
        np.cumsum(x, axis=2, dtype=x.dtype, out=x)
        if x[:, :1].size < _MANY:
            np.cumsum(x, axis=1, dtype=x.dtype, out=x)
        else:
            for y in range(1, x.shape[1]):
                x[:, y] += x[:, y - 1]

    def _images(self, rows: Rows) -> npt.NDArray[np.unsignedinteger[Any]]:
        n, *image = self.target.shape
        numbers: npt.NDArray[Any] = self.target.tensors(rows)
        return numbers.reshape(len(rows) * n, *image)
