"""How many colours frames have: what tells ``palette`` and ``pred`` apart before either is tried."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.geometry import Geometry
from obscodec.layout import Rows
from obscodec.segments import Ints

_N_FRAMES: Final = 16  # to look at
_N_PIXELS: Final = 1 << 14  # of each
_PIXELS_OF_COLOUR: Final = 16  # fewer of each on average, and a palette says nothing


class Colours(NamedTuple):
    """How many colours frames have.

    Attributes:
        numbers: ``i64[m]``, of each frame.
        are_grey: whether all colours are greys.
        most: more of them say nothing, with so few pixels.
    """

    numbers: Ints
    are_grey: bool
    most: int


def count_colours(rows: Rows, n_frames: int, geometry: Geometry) -> Colours:
    """Look at 16 frames of these items at most, and at 16,384 pixels of each, spread over all."""
    frames = rows.reshape(len(rows) * n_frames, geometry.frame_nbytes)
    seen = [_pixels(frame, geometry) for frame in frames[:: max(1, -(-len(frames) // _N_FRAMES))]]
    places = 256 ** np.arange(geometry.n_channels)
    numbers = np.array([len(np.unique(pixels @ places)) for pixels in seen], np.int64)
    are_grey = all((pixels == pixels[:, :1]).all() for pixels in seen)
    return Colours(numbers, are_grey, geometry.height * geometry.width // _PIXELS_OF_COLOUR)


def _pixels(frame: npt.NDArray[np.uint8], geometry: Geometry) -> npt.NDArray[np.uint8]:
    """``u8[n, n_channels]``."""
    interleaved = geometry.channel_step == 1
    pixels = frame.reshape(-1, geometry.n_channels) if interleaved else frame.reshape(geometry.n_channels, -1).T
    return pixels[:: len(pixels) // _N_PIXELS | 1]  # an odd number: not one column of an image
