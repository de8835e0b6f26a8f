"""What codecs for images share: the frames of an item, how many colours these have, and when nothing is decoded."""

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar, Final

import numpy as np

from obscodec.codecs.codec import Codec
from obscodec.codecs.formats.images.geometry import SIDE, Geometry, geometry_of
from obscodec.layout import Rows
from obscodec.segments import Ints, Segments
from obscodec.statuses import NO_SUCH_FRAME, OK, OUTSIDE_BUFFER, check

_NO_WIDTHS: Final = (2, 4)  # of images: behind two longer axes, these are channels
_N_FRAMES: Final = 16  # in which to count colours
_N_PIXELS: Final = 1 << 14  # of each
_PIXELS_OF_COLOUR: Final = 16  # fewer of each on average, and a palette says nothing


@dataclass(frozen=True)
class ImageCodec(Codec):
    """A codec of images, with a dictionary; ``takes_depth`` says whether these can be depths, of two bytes."""

    takes_depth: ClassVar[bool] = False

    dictionary: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._frames

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

    def _some(self, rows: Rows, n_frames: int) -> Rows:
        """Items with so many frames, or a few more, spread over all; they are contiguous."""
        n_items = max(1, n_frames // self._frames[0])
        return np.ascontiguousarray(rows[:: -(-len(rows) // n_items)])

    def _count_colours(self, rows: Rows) -> tuple[Ints, bool, int]:
        """The numbers of colours in frames, ``i64[m]``; whether all are greys; and how many say nothing.

        It tells ``palette`` and ``pred`` apart before either is tried: by 16 frames at most, and 16,384 pixels of each.
        """
        n_frames, geometry = self._frames
        frames, n_channels = rows.reshape(len(rows) * n_frames, geometry.frame_nbytes), geometry.n_channels
        seen = []
        for frame in frames[:: max(1, -(-len(frames) // _N_FRAMES))]:
            pixels = frame.reshape(-1, n_channels) if geometry.channel_step == 1 else frame.reshape(n_channels, -1).T
            seen.append(pixels[:: len(pixels) // _N_PIXELS | 1])  # an odd number: not one column of an image
        numbers = np.array([len(np.unique(pixels @ 256 ** np.arange(n_channels))) for pixels in seen], np.int64)
        are_grey = all((pixels == pixels[:, :1]).all() for pixels in seen)
        return numbers, are_grey, geometry.height * geometry.width // _PIXELS_OF_COLOUR

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
