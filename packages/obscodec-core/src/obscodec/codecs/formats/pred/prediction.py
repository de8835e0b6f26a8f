"""The residuals of whole frames."""

import numpy as np

from obscodec.codecs.formats.pred.geometry import (
    GROUP_STRIDE,
    Geometry,
    clear_margins,
    put_frame,
)
from obscodec.codecs.formats.pred.room import Room, new_room
from obscodec.codecs.formats.pred.tiles import apply_tiles
from obscodec.codecs.formats.pred.vectors import find_vectors
from obscodec.codecs.statuses import OK
from obscodec.kernels import address, compiled, inlined
from obscodec.layout import Rows
from obscodec.segments import Bytes


def residuals_of(rows: Rows, n_frames: int, geometry: Geometry) -> tuple[Bytes, Bytes]:
    """The residuals of all frames of some items, in groups, and their modes ``u8[n]``: see ``books.trained``."""
    modes = np.empty((len(rows) * n_frames, geometry.n_tiles), np.uint8)
    residuals = np.empty((len(modes), GROUP_STRIDE * geometry.n_groups), np.uint8)
    predict_items(rows, n_frames, geometry, residuals, modes, new_room(geometry, n_frames))
    return residuals.reshape(-1), modes.reshape(-1)


@compiled
def predict_items(rows: Rows, n_frames: int, geometry: Geometry, residuals: Rows, modes: Rows, room: Room) -> int:
    """Compute the residuals and modes of each frame of some items, and encode nothing."""
    frame_nbytes = rows.shape[1] // n_frames
    work, source = address(room.work), address(rows)
    before = work + geometry.n_channels * geometry.plane_nbytes
    clear_margins(work, geometry)
    clear_margins(before, geometry)
    for i in range(len(modes)):
        predict_frame(
            work,
            before,
            source,
            i % n_frames > 0,
            geometry,
            address(modes) + i * modes.shape[1],
            address(residuals) + i * residuals.shape[1],
            room,
        )
        source += frame_nbytes
        work, before = before, work
    return OK


@inlined
def predict_frame(
    work: int,
    before: int,
    source: int,
    has_before: bool,
    geometry: Geometry,
    modes: int,
    residuals: int,
    room: Room,
) -> int:
    """Put a frame into planes, choose its vectors and modes, and compute its residuals; returns the largest mode."""
    put_frame(work, source, geometry)
    vectors, n_vectors = address(room.vectors), 0
    if has_before:
        n_vectors = find_vectors(work, before, vectors, room.saved, geometry)
    return apply_tiles(work, before, vectors, n_vectors, modes, residuals, geometry)
