"""Ids that behave like the ndarray of the tensors.

Indices and assignments become ids here, and rows wait on their way. An array never knows how its store keeps tensors,
nor which step of which episode a row is.
"""

from obscodec.arrays.deferred_read import OPEN_READ, DeferredRead, Selection, filled
from obscodec.arrays.indexing import Index, Part, has_arrays, index_parts, is_all, n_axes, split_parts
from obscodec.arrays.tensor_array import TensorArray, places_together
from obscodec.arrays.views import BorrowedArray, DrawnArray, PartArray, strided_view, strides_of
from obscodec.arrays.write_buffer import WriteBuffer

__all__ = [
    "OPEN_READ",
    "BorrowedArray",
    "DeferredRead",
    "DrawnArray",
    "Index",
    "Part",
    "PartArray",
    "Selection",
    "TensorArray",
    "WriteBuffer",
    "filled",
    "has_arrays",
    "index_parts",
    "is_all",
    "n_axes",
    "places_together",
    "split_parts",
    "strided_view",
    "strides_of",
]
