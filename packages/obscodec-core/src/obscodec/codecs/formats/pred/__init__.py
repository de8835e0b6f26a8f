"""Images in tiles that are predicted; what codecs of such tiles share."""

from obscodec.codecs.formats.pred.colours import count_colours
from obscodec.codecs.formats.pred.frame_writer import PREDICTED
from obscodec.codecs.formats.pred.geometry import (
    GROUP_STRIDE,
    GROUPS_OF_TILE,
    SIDE,
    Geometry,
    clear_margins,
    geometry_of,
    misread,
    plane_geometry,
    put_frame,
    row_offset,
)
from obscodec.codecs.formats.pred.groups import (
    DICTIONARY_NBYTES,
    Books,
    books_of,
    decode_groups,
    encode_groups,
    new_predicted,
    trained,
)
from obscodec.codecs.formats.pred.heads import (
    head_nbytes,
    n_vectors_of,
    read_head,
    size_bound,
    skip_sizes,
    write_head,
    write_sizes,
)
from obscodec.codecs.formats.pred.pred import N_STREAMS, Pred
from obscodec.codecs.formats.pred.room import Room, divided, new_room
from obscodec.codecs.formats.pred.tiles import (
    MAX_VECTORS,
    N_SPATIAL,
    find_vectors,
    fold_tile,
    is_narrow,
    unfold_tile,
    vector_offset,
)

__all__ = [
    "DICTIONARY_NBYTES",
    "GROUPS_OF_TILE",
    "GROUP_STRIDE",
    "MAX_VECTORS",
    "N_SPATIAL",
    "N_STREAMS",
    "PREDICTED",
    "SIDE",
    "Books",
    "Geometry",
    "Pred",
    "Room",
    "books_of",
    "clear_margins",
    "count_colours",
    "decode_groups",
    "divided",
    "encode_groups",
    "find_vectors",
    "fold_tile",
    "geometry_of",
    "head_nbytes",
    "is_narrow",
    "misread",
    "n_vectors_of",
    "new_predicted",
    "new_room",
    "plane_geometry",
    "put_frame",
    "read_head",
    "row_offset",
    "size_bound",
    "skip_sizes",
    "trained",
    "unfold_tile",
    "vector_offset",
    "write_head",
    "write_sizes",
]
