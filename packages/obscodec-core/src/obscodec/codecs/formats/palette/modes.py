"""How a tile is predicted: from the pixel above or that of the frame before, and for some from another one, too."""

from typing import Final

from obscodec.codecs.formats.pred import (
    N_SPATIAL,
)
from obscodec.kernels import (
    inlined,
)
from obscodec.statuses import NO_SUCH_MODE, OK

ABOVE: Final = 0
ABOVE_LEFT: Final = 1
BEFORE: Final = 0  # behind N_SPATIAL, and 2 for each vector
BEFORE_ABOVE: Final = 1


@inlined
def mode_status(mode: int) -> int:
    """Whether a mode exists."""
    return OK if mode in (ABOVE, ABOVE_LEFT) or mode >= N_SPATIAL else NO_SUCH_MODE


@inlined
def is_after_two(mode: int) -> bool:
    """Whether the colours of two pixels say what to expect, not of one."""
    return bool((mode - N_SPATIAL if mode >= N_SPATIAL else mode) & 1)
