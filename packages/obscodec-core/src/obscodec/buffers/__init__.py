"""Buffers for loops of one's own."""

from obscodec.buffers.array_set import ArraySet
from obscodec.buffers.checks import check_items
from obscodec.buffers.field import Field
from obscodec.buffers.options import BufferOptions
from obscodec.buffers.ring import RingBuffer
from obscodec.buffers.sharing import append_together, by_store, read_together, shared_stores, stats_of
from obscodec.buffers.stats import BufferStats

__all__ = [
    "ArraySet",
    "BufferOptions",
    "BufferStats",
    "Field",
    "RingBuffer",
    "append_together",
    "by_store",
    "check_items",
    "read_together",
    "shared_stores",
    "stats_of",
]
