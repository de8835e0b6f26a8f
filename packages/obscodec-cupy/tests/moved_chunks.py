"""Streams on their way to other chunks."""

from obscodec.heap import SlotHeap


def move_chunks(heap: SlotHeap) -> None:
    """Move the streams of all chunks in memory to new ones, as a heap does by itself if many streams are dead."""
    with heap.lock:
        for number, chunk in list(heap._log.chunks.items()):
            if not chunk.is_spilled:
                heap._empty(number)
