"""Ids that behave like the ndarray of the tensors."""

from obscodec.arrays.deferred_read import DeferredRead, Prefetcher, Selection, open_deferred_read
from obscodec.arrays.drawn_array import DrawnArray, drawn, drawn_together
from obscodec.arrays.geometry import strided_view, strides_of
from obscodec.arrays.indexing import Index, steps_of
from obscodec.arrays.new_array import NewArray
from obscodec.arrays.packing_together import note_of, pack_together, unpack_together
from obscodec.arrays.part_array import PartArray
from obscodec.arrays.tensor_array import TensorArray
from obscodec.arrays.write_buffer import WriteBuffer

__all__ = [
    "DeferredRead",
    "DrawnArray",
    "Index",
    "NewArray",
    "PartArray",
    "Prefetcher",
    "Selection",
    "TensorArray",
    "WriteBuffer",
    "drawn",
    "drawn_together",
    "note_of",
    "open_deferred_read",
    "pack_together",
    "steps_of",
    "strided_view",
    "strides_of",
    "unpack_together",
]
