"""The building blocks of compiled kernels: the compiler, and memory by its address."""

from obscodec.kernels.compiler import compiled, inlined
from obscodec.kernels.memory import (
    LINE_NBYTES,
    address,
    copy,
    copy_line_past_caches,
    fence,
    fill_zeros,
    load_u8,
    load_u16,
    load_u64,
    move,
    prefetch,
    signed,
    store_u8,
    store_u16,
    store_u64,
    trailing_zeros,
    unsigned,
)

__all__ = [
    "LINE_NBYTES",
    "address",
    "compiled",
    "copy",
    "copy_line_past_caches",
    "fence",
    "fill_zeros",
    "inlined",
    "load_u8",
    "load_u16",
    "load_u64",
    "move",
    "prefetch",
    "signed",
    "store_u8",
    "store_u16",
    "store_u64",
    "trailing_zeros",
    "unsigned",
]
