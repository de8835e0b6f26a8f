"""How many bytes the frames of a log take."""

from obscodec.frames.block_coder import Coder
from obscodec.frames.open_blocks import OpenBlocks
from obscodec.heap import HeapStats


def growing_bytes(n_frames: int, heap: HeapStats, open_blocks: OpenBlocks, coder: Coder) -> int:
    """What frames take, those in open blocks as much as the others, as soon as some are in full blocks."""
    n_stored, n_known = n_frames - open_blocks.n_frames, open_blocks.n_reference_frames
    known = bool(heap.n_streams) and n_stored > 0
    lone = open_blocks.lone_references(of_stored=known)
    lone_nbytes = coder.lone_nbytes(open_blocks.reference_frames[:n_known], lone)
    if known:
        taken_bytes = heap.reserved_bytes + heap.disk_bytes - heap.room_bytes
        return round(n_frames / n_stored * (taken_bytes + lone_nbytes))
    return round(n_frames * open_blocks.mean_frame_bytes + lone_nbytes)
