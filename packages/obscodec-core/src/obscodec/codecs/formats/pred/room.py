"""Memory that kernels work in."""

from typing import Final, NamedTuple

import numpy as np

from obscodec.codecs.formats.pred.geometry import (
    GROUP_NBYTES,
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    Geometry,
)
from obscodec.codecs.formats.pred.group_writer import bits_nbytes
from obscodec.codecs.formats.pred.groups import N_MARKS, SLACK
from obscodec.codecs.formats.pred.tiles import MAX_VECTORS
from obscodec.codecs.formats.pred.vectors import N_TRIED
from obscodec.segments import Bytes, Ints

_MOST_OF_TILE: Final = 3 * GROUPS_OF_TILE * GROUP_NBYTES


class Room(NamedTuple):
    """Memory that a call of a kernel works in.

    Attributes:
        work: two frames in planes.
        residuals: of a frame.
        labels: ``u8[n_groups]``, the class or the width of each group.
        order: ``u32[n_groups]`` as bytes.
        modes: ``u8[n_tiles]``.
        vectors: ``i8[MAX_VECTORS, 2]``.
        bits: a frame as it is stored.
        marks: ``i64[N_MARKS]``.
        saved: ``i64[N_TRIED]``.
        sizes: ``i64[n_frames]``, the bytes of each frame.
    """

    work: Bytes
    residuals: Bytes
    labels: Bytes
    order: Bytes
    modes: Bytes
    vectors: Bytes
    bits: Bytes
    marks: Ints
    saved: Ints
    sizes: Ints


def new_room(geometry: Geometry, n_frames: int) -> Room:
    """Room for items of ``n_frames`` frames."""
    n_groups, n_tiles = geometry.n_groups, geometry.n_tiles
    bits = max(geometry.frame_nbytes, bits_nbytes(n_groups, n_tiles)) + _MOST_OF_TILE + SLACK
    sizes = 2 * geometry.work_nbytes, GROUP_STRIDE * (n_groups + 1), n_groups, 4 * n_groups, n_tiles, 2 * MAX_VECTORS
    work, residuals, labels, order, modes, vectors, frame = (np.empty(nbytes, np.uint8) for nbytes in (*sizes, bits))
    marks, saved, frame_sizes = (np.empty(n, np.int64) for n in (N_MARKS, N_TRIED, n_frames))
    return Room(work, residuals, labels, order, modes, vectors, frame, marks, saved, frame_sizes)
