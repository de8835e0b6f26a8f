"""``delta``: each element minus the one before it along the first axis, modulo the range of the dtype."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from obscodec.codecs.stage import Filter
from obscodec.errors import DTypeError, ShapeError
from obscodec.layout import Layout, Rows


@dataclass(frozen=True)
class Delta(Filter):
    """Differences of unsigned integers; the first ones stay as they are. See ``docs/formats/delta.md``."""

    name: ClassVar[str] = "delta"
    format: ClassVar[str] = "delta@1"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout.dtype.kind != "u":
            raise DTypeError(f"delta takes unsigned integers, got {self.layout.dtype.name}: leave it out of the spec")
        if not self.layout.shape:
            raise ShapeError("delta goes along the first axis, an item of shape () has none: leave it out of the spec")

    @property
    def target(self) -> Layout:
        """The same layout."""
        return self.layout

    def apply(self, rows: Rows, out: Rows) -> None:
        """Subtract."""
        x, differences = self.layout.tensors(rows), self.layout.tensors(out)
        differences[:, :1] = x[:, :1]
        np.subtract(x[:, 1:], x[:, :-1], out=differences[:, 1:])

    def undo(self, rows: Rows, out: Rows) -> None:
        """Sum up."""
        np.cumsum(self.layout.tensors(rows), axis=1, dtype=self.layout.dtype, out=self.layout.tensors(out))
