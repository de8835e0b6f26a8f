"""Shown: which of the first tensors show how to keep all of them."""

from collections.abc import Iterable
from typing import Self

import numpy as np
import numpy.typing as npt

from obscodec.layout import Layout
from obscodec.segments import Ints

_MIN, _MAX, _MAX_NBYTES = 16, 256, 1 << 24
_MORE_ALIKE = 8  # times as many, if most of them are alike
_MAX_ALIKE_NBYTES = 1 << 30

Tensors = npt.NDArray[np.generic]


class Shown:
    """Tensors by their numbers, in the order of their arrival, until enough of them were seen.

    Args:
        n: how many are enough, if half of these differ from all before them.
        most: how many are in any case, no fewer than ``n``.

    Attributes:
        n_needed: how many of the first tensors are looked at, as far as is known; not more.
    """

    def __init__(self, n: int, most: int) -> None:
        self.n, self.most = n, most
        self._new: dict[int, int] = {}  # by the hash of a tensor, the number of the first one that had it
        self.n_needed = most

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """256 tensors, or as many as have 16 MB, but 16 at least; eight times as many if most are alike."""
        n = int(np.clip(_MAX_NBYTES // max(1, layout.nbytes), _MIN, _MAX))
        return cls(n, max(n, min(_MORE_ALIKE * n, _MAX_ALIKE_NBYTES // max(1, layout.nbytes))))

    def look(self, number: int, tensors: Iterable[Tensors]) -> None:
        """Remember which tensors, from a number on, differ from those before them, if that matters."""
        if self.n == self.most or number >= self.most:
            return
        for k, tensor in enumerate(tensors):
            self._new.setdefault(hash(tensor.tobytes()), number + k)
            if 2 * len(self._new) >= self.n:  # for the first time
                self.n_needed = min(self.n_needed, max(self.n, number + k + 1))

    def are_enough(self, n: int) -> bool:
        """Whether ``n`` tensors, which were looked at, show how to keep all of them."""
        return n >= self.n_needed

    def numbers(self, n: int) -> Ints:
        """Those that show it, of ``n`` tensors: all that differ from those before them, and the first others."""
        n = min(n, self.n_needed)  # an interrupted call may have looked at more
        new = np.array([number for number in self._new.values() if number < n], np.int64)
        others = np.setdiff1d(np.arange(n), new)[: max(0, self.n - len(new))]
        return np.sort(np.append(new, others))

    def forget(self) -> None:
        """Free the memory: all has been shown."""
        self._new = {}


def shown_first(layout: Layout, tensors: Iterable[Tensors]) -> Tensors:
    """Those of some tensors, in the order of time, that a store would look at before it decides."""
    shown, first = Shown.of(layout), list[Tensors]()
    for tensor in tensors:
        shown.look(len(first), tensor[None])
        first.append(tensor)
        if shown.are_enough(len(first)):
            break
    kept = [first[number] for number in shown.numbers(len(first)).tolist()]
    return np.array(kept, layout.dtype).reshape(len(kept), *layout.shape)
