"""Streams in memory that grows and shrinks with them.

It knows slots, chunks and files without names. It never looks into a stream.
"""

from obscodec.heap.chunk_log import Allocate, Chunk
from obscodec.heap.slot_heap import HeapChanges, HeapStats, SlotHeap

__all__ = ["Allocate", "Chunk", "HeapChanges", "HeapStats", "SlotHeap"]
