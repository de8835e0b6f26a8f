"""The shape, dtype and bytes of an item, in an array of any library.

What comes in becomes a numpy array here, without a changed number. It never knows what becomes of the bytes.
"""

from obscodec.layout.arrays import ArrayLike, are_within, as_array, as_dtype, as_numbers, as_writable, same_values
from obscodec.layout.dtypes import dtype_name, is_common, storable, written_dtype
from obscodec.layout.frame_stack import FrameStack
from obscodec.layout.layout import Layout, Rows

__all__ = [
    "ArrayLike",
    "FrameStack",
    "Layout",
    "Rows",
    "are_within",
    "as_array",
    "as_dtype",
    "as_numbers",
    "as_writable",
    "dtype_name",
    "is_common",
    "same_values",
    "storable",
    "written_dtype",
]
