"""What an item is: its shape, dtype and bytes, whoever holds it."""

from obscodec.layout.arrays import ArrayLike, as_array, as_dtype, as_numbers, as_writable, check_assignable
from obscodec.layout.dtypes import dtype_from_name, is_common, storable
from obscodec.layout.frame_stack import FrameStack, find_frame_stack
from obscodec.layout.hollow import hollow_layouts
from obscodec.layout.layout import Layout, Rows
from obscodec.layout.lent import Lent

__all__ = [
    "ArrayLike",
    "FrameStack",
    "Layout",
    "Lent",
    "Rows",
    "as_array",
    "as_dtype",
    "as_numbers",
    "as_writable",
    "check_assignable",
    "dtype_from_name",
    "find_frame_stack",
    "hollow_layouts",
    "is_common",
    "storable",
]
