"""How many colours frames have: what tells ``palette`` and ``pred`` apart before either is tried."""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.pred.geometry import Geometry
from obscodec.layout import Rows
from obscodec.segments import Ints

_N_FRAMES: Final = 16  # to look at


def numbers_of_colours(rows: Rows, n_frames: int, geometry: Geometry) -> Ints:
    """How many colours frames of these items have, ``i64[m]``, of at most 16 of them, spread over all."""
    frames = rows.reshape(len(rows) * n_frames, geometry.frame_nbytes)
    chosen = frames[:: max(1, -(-len(frames) // _N_FRAMES))]
    return np.array([_n_colours(frame, geometry) for frame in chosen], np.int64)


def _n_colours(frame: npt.NDArray[np.uint8], geometry: Geometry) -> int:
    interleaved = geometry.channel_step == 1
    channels = frame.reshape((-1, geometry.n_channels) if interleaved else (geometry.n_channels, -1))
    places = 256 ** np.arange(geometry.n_channels)
    colours = channels @ places if interleaved else places @ channels
    return len(np.unique(colours))
