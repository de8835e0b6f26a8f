"""What codecs for images share: the frames of an item, and when there is nothing to decode."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import ClassVar, Final, Self

import numpy as np

from obscodec.codecs.codec import Codec
from obscodec.codecs.formats.images.geometry import SIDE, Geometry, geometry_of
from obscodec.layout import Rows
from obscodec.segments import Ints, Segments
from obscodec.statuses import NO_SUCH_FRAME, OK, OUTSIDE_BUFFER, check

_NO_WIDTHS: Final = (2, 4)  # of images: behind two longer axes, these are channels


@dataclass(frozen=True)
class ImageCodec(Codec):
    """A codec of images, with a dictionary; ``takes_depth`` says whether these can be depths, of uint16."""

    takes_depth: ClassVar[bool] = False

    dictionary: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._frames

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This codec with another dictionary.

        Raises:
            SpecError: the bytes are no dictionary of this format, or one for other images.
        """
        return replace(self, dictionary=dictionary)

    @cached_property
    def _frames(self) -> tuple[int, Geometry]:
        """How many frames an item has, none if it has no bytes; and their geometry."""
        n_frames, geometry = geometry_of(self.layout, self.spec, takes_depth=self.takes_depth)
        return n_frames if self.layout.nbytes else 0, geometry

    @property
    def misreads(self) -> str:
        """See ``Codec.misreads``: images of two or four channels, or so many frames behind each other."""
        *in_front, height, width, channels = self.layout.shape if len(self.layout.shape) >= 3 else (0, 0, 0)
        if channels not in _NO_WIDTHS or min(height, width) < SIDE:
            return ""
        return f"{prod(in_front) * height} images of {width}x{channels}"

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decode all items together."""
        self.decode_beginnings(src, rows, np.full(len(rows), self.layout.nbytes))

    def decode_beginnings(self, src: Segments, rows: Rows, wanted: Ints) -> None:
        """Decode the frames in which the wanted bytes are."""
        check(OK if src.inside().all() else OUTSIDE_BUFFER)
        if rows.size:
            self._decode(src.contiguous(), rows, -(-wanted * self._frames[0] // rows.shape[1]))
        else:
            check(NO_SUCH_FRAME if src.lengths.any() else OK)

    @abstractmethod
    def _decode(self, src: Segments, rows: Rows, n_wanted: Ints) -> None:
        """Decode the first frames of each item, as many as ``n_wanted`` says."""
