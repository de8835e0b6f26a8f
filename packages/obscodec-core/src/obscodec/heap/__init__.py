"""Streams in memory that grows and shrinks with them."""

from obscodec.heap.memory import HOST, HeapMemory, Places, Streams
from obscodec.heap.slot_heap import HeapStats, SlotHeap

__all__ = [
    "HOST",
    "HeapMemory",
    "HeapStats",
    "Places",
    "SlotHeap",
    "Streams",
]
