"""Tiles of 8x8 pixels, and how they are predicted.

Pixels become residuals and back. A tile never knows how its residuals are written.
"""

from obscodec.codecs.formats.images.tiles.colour_transform import transform_bits, undo_transform
from obscodec.codecs.formats.images.tiles.half_tiles import fold_tile, is_half, unfold_tile
from obscodec.codecs.formats.images.tiles.prediction import (
    MAX_VECTORS,
    N_MODES,
    N_SPATIAL,
    apply_tiles,
    undo_tile,
    vector_offset,
)
from obscodec.codecs.formats.images.tiles.vectors import N_TRIED, find_vectors

__all__ = [
    "MAX_VECTORS",
    "N_MODES",
    "N_SPATIAL",
    "N_TRIED",
    "apply_tiles",
    "find_vectors",
    "fold_tile",
    "is_half",
    "transform_bits",
    "undo_tile",
    "undo_transform",
    "unfold_tile",
    "vector_offset",
]
