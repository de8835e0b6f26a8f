"""ChunkLog: which chunks streams go to, and which chunks go when streams are dead."""

import mmap

import numpy as np
import pytest
from obscodec.heap.chunk_log import ChunkLog
from obscodec.runtime import new_chunk
from obscodec.segments import Segments


def written(log: ChunkLog, lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Write streams of such lengths, counted as live; their chunks and offsets."""
    streams = Segments.of([bytes([i % 256]) * length for i, length in enumerate(lengths)])
    numbers, offsets, _ = log.write(streams, log.plan(streams.lengths)).T.astype(np.int64)
    log.enliven(numbers, streams.lengths)
    return numbers, offsets


def test_a_chunk_takes_so_many_streams_only() -> None:
    """A chunk of millions of empty streams would be moved as a whole."""
    log = ChunkLog(None, new_chunk)
    assert [part.stop - part.start for _, part in log.plan(np.zeros(5000, np.int64))] == [2048, 2048, 904]


def test_pages_that_are_never_written_do_not_count() -> None:
    log = ChunkLog(None, new_chunk)
    written(log, [1_500_000, 1_000_000])  # does not fit behind the first one
    written(log, [1, 1_500_000])
    ends = [chunk.end for chunk in log.chunks.values()]
    assert [*log.chunks] == [1, 2, 3]
    for number, end in zip((1, 2), ends[:2], strict=True):
        assert 0 <= log.chunks[number].nbytes - end < mmap.PAGESIZE
    assert log.reserved_bytes == sum(chunk.nbytes for chunk in log.chunks.values())


@pytest.mark.parametrize("page_nbytes", [4096, 16384, 65536])
def test_the_newest_chunk_counts_in_whole_pages(page_nbytes, monkeypatch) -> None:
    monkeypatch.setattr(mmap, "PAGESIZE", page_nbytes)
    log = ChunkLog(None, new_chunk)
    for n_bytes, n_pages in ((100, 1), (page_nbytes - 100, 1), (1, 2)):
        written(log, [n_bytes])
        assert log.memory_bytes == n_pages * page_nbytes
    scarce = ChunkLog(70_000, new_chunk)  # less than a page more than its first chunk
    written(scarce, [65_000])
    written(scarce, [4_000])
    assert 69_000 <= scarce.memory_bytes <= scarce.reserved_bytes <= 70_000


def test_a_recount_follows_the_table_of_slots() -> None:
    """After a call that ended in the middle: written, but not counted, or counted, but not in the table."""
    log = ChunkLog(None, new_chunk)
    numbers, _ = written(log, [1_000_000, 900_000])
    written(log, [1_500_000])
    log.write(Segments.of([b"never counted"]), [(log.newest, slice(0, 1))])
    log.written_bytes -= len(b"never counted")  # as if the last line of that was never reached
    log.recount(numbers[:1], np.array([1_000_000]))
    assert (log.n_streams, log.live_bytes) == (1, 1_000_000)
    assert set(log.chunks) == {int(numbers[0])}
    assert log.written_bytes == log.chunks[int(numbers[0])].end
    numbers, _ = written(log, [2_000_000])
    assert log.chunks[int(numbers[0])].n_live == 1
