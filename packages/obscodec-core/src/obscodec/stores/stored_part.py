"""StoredPart: some tensors of a store, as it keeps them, to be decoded elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from obscodec.frames import Portion
from obscodec.layout import FrameStack, Layout
from obscodec.segments import Ints


class StoredPart(NamedTuple):
    """Tensors that one log has the frames of.

    Attributes:
        places: ``i64[n]``, which tensors of a batch these are.
        narrow: the ``Narrow`` of the numbers whose codes the frames have, None if they have the numbers.
        stack: how tensors, or their codes, are made of frames; None if they are.
        portion: the frames.
    """

    places: Ints
    narrow: Any
    stack: FrameStack | None
    portion: Portion

    @classmethod
    def plain(cls, places: Ints, layout: Layout, tensors: npt.NDArray[np.generic]) -> Self:
        """Tensors ``[n, *shape]`` that no log has."""
        return cls(places, None, None, Portion.plain(layout, tensors))

    def at(self, places: Ints) -> StoredPart:
        """The same tensors among those of a larger batch, in which these have ``places``."""
        return self._replace(places=places[self.places])

    def read_into(self, out: npt.NDArray[np.generic], threads: int) -> None:
        """Decode into ``[m, *shape]``, at the places."""
        frame, n = self.portion.frame, len(self.places)
        is_whole = self.narrow is None and n == len(out) and (self.stack is None or self.stack.axis == 0)
        if is_whole and out.flags.c_contiguous and (self.places == np.arange(n)).all():
            self.portion.read(out.reshape(-1).view(np.uint8).reshape(-1, frame.nbytes), threads)
            return
        rows = np.empty((len(self.portion.targets), frame.nbytes), np.uint8)
        self.portion.read(rows, threads)
        tensors = frame.tensors(rows) if self.stack is None else self.stack.join(frame.tensors(rows))
        if self.narrow is None:
            out[self.places] = tensors
        else:
            self.narrow.undo(tensors, out, self.places, threads=threads)

    def fits(self, layout: Layout, n: int) -> bool:
        """Whether these may be tensors of a layout in a batch of ``n``."""
        if self.narrow is not None and self.narrow.dtype != layout.dtype:
            return False
        kept = Layout(layout.shape, self.narrow.code_dtype) if self.narrow else layout
        frame, depth = (self.stack.frame_layout(kept), self.stack.depth) if self.stack else (kept, 1)
        places = self.places
        inside = not len(places) or (places.min() >= 0 and places.max() < n and len(np.unique(places)) == len(places))
        return frame == self.portion.frame and len(self.portion.targets) == depth * len(places) and bool(inside)
