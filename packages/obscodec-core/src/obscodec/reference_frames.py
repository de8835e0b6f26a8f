"""Which frames become reference frames: those that the first frame of a block is a patch of."""

from __future__ import annotations

from typing import Final

import numpy as np

from obscodec.segments import Ints

MAX_REFERENCES: Final = 33  # the first one is the frame of zeros

# A frame becomes a reference if its patch against all others takes more than this part of it. Measured:
# docs/performance.md.
JOIN_PART: Final = 8


def first_to_join(patch_nbytes: Ints, nbytes: int, n_references: int) -> int:
    """Which of several first frames of blocks becomes a reference frame next.

    Args:
        patch_nbytes: ``i64[n]``, bytes of the patch of each, runs and literals, of the nearest reference frame.
        nbytes: bytes of a frame.
        n_references: how many reference frames there are, that of zeros included.

    Returns:
        The first one that is far from all of them, ``n`` if none is or there is no room.
    """
    far = np.flatnonzero(patch_nbytes * JOIN_PART > nbytes)
    return int(far[0]) if len(far) and n_references < MAX_REFERENCES else len(patch_nbytes)
