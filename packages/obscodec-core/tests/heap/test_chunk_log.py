"""ChunkLog: which chunks streams go to, and which chunks go when streams are dead."""

from __future__ import annotations

import mmap
import re

import numpy as np
import pytest
from obscodec import HeapFull
from obscodec.heap.chunk_log import MIN_CHUNK_NBYTES, ChunkLog
from obscodec.runtime import new_chunk
from obscodec.segments import Segments

LARGER = min(4, mmap.PAGESIZE // 4096)  # so that memory is short where pages are larger, too


def whole_pages(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def written(log: ChunkLog, lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Write streams of such lengths, counted as live; their chunks and offsets."""
    streams = Segments.of([bytes([i % 256]) * length for i, length in enumerate(lengths)])
    numbers, offsets, _ = log.write(streams, log.plan(streams.lengths)).T.astype(np.int64)
    log.enliven(numbers, streams.lengths)
    return numbers, offsets


def state(log: ChunkLog) -> tuple[object, ...]:
    chunks = {number: (chunk.nbytes, chunk.end, chunk.live_bytes, chunk.n_live) for number, chunk in log.chunks.items()}
    return (
        chunks,
        np.trim_zeros(log.addresses, "b").tolist(),
        log.newest,
        log.n_streams,
        log.live_bytes,
        log.written_bytes,
    )


def test_streams_lie_where_the_log_says() -> None:
    log, lengths = ChunkLog(None, new_chunk), [900_000, 0, 700_000, 800_000, 1, 900_000]
    numbers, offsets = written(log, lengths)
    assert numbers.tolist() == [1, 1, 1, 2, 2, 2]
    for i, (number, offset, length) in enumerate(zip(numbers.tolist(), offsets.tolist(), lengths, strict=True)):
        chunk = log.chunks[number]
        assert offset + length <= chunk.end <= chunk.nbytes
        assert set(chunk.memory[offset : offset + length].tolist()) <= {i}
        assert log.memories[number] is chunk.memory
        assert log.addresses[number] == chunk.memory.ctypes.data
    assert (log.n_streams, log.live_bytes, log.written_bytes) == (6, sum(lengths), sum(lengths))
    assert log.reserved_bytes == sum(chunk.nbytes for chunk in log.chunks.values())


def test_a_plan_names_each_stream_once_in_order() -> None:
    log = ChunkLog(None, new_chunk)
    written(log, [100] * 50)
    for lengths in ([10] * 10, [1000] * 5000, [300_000] * 3, [0] * 5000):
        pieces = log.plan(np.array(lengths))
        assert [i for _, part in pieces for i in range(part.start, part.stop)] == list(range(len(lengths)))
        for number, part in pieces:
            assert sum(lengths[part]) <= log.chunks[number].nbytes - log.chunks[number].end
        assert log.newest == pieces[-1][0]


def test_a_chunk_takes_so_many_streams_only() -> None:
    """A chunk of millions of empty streams would be moved as a whole."""
    log = ChunkLog(None, new_chunk)
    assert [part.stop - part.start for _, part in log.plan(np.zeros(5000, np.int64))] == [2048, 2048, 904]


def test_streams_go_to_the_newest_chunk_while_it_has_room() -> None:
    log = ChunkLog(None, new_chunk)
    first, _ = written(log, [10])
    again, offsets = written(log, [10, 20])
    assert first[0] == again[0] == again[1] == 1
    assert offsets.tolist() == [10, 20]
    room = log.chunks[1].nbytes - log.chunks[1].end
    assert written(log, [room])[0].tolist() == [1]
    assert written(log, [1])[0].tolist() == [2]


def test_chunks_are_whole_pages() -> None:
    log = ChunkLog(None, new_chunk)
    written(log, [MIN_CHUNK_NBYTES + 1, 3_000_001])
    assert [chunk.nbytes % mmap.PAGESIZE for chunk in log.chunks.values()] == [0] * len(log.chunks)


def test_a_full_log_refuses_and_adds_nothing() -> None:
    log = ChunkLog(100_000, new_chunk)
    written(log, [4000] * 15)
    before = state(log)
    assert log.reserved_bytes == 65_536
    text = (  # the first one fits into a chunk of all bytes that are left
        "50000 bytes do not fit: the heap has reserved 100000 bytes for 60000 live ones, max_bytes is 100000: "
        "free slots, or allow more"
    )
    with pytest.raises(HeapFull, match=f"^{re.escape(text)}$"):
        log.plan(np.array([10_000, 40_000]))
    assert state(log) == before
    log.plan(np.array([10_000, 40_000]), above=20_000)  # while another chunk is emptied
    # The first chunk gives back what it will never fill.
    assert log.reserved_bytes == 100_000 + 20_000 - (65_536 - whole_pages(60_000))


def test_the_last_chunk_is_as_small_as_the_room_that_is_left() -> None:
    log = ChunkLog(100_000, new_chunk)
    written(log, [4000] * 15)
    written(log, [30_000])
    assert [chunk.nbytes for chunk in log.chunks.values()] == [whole_pages(60_000), 100_000 - 65_536]


def test_pages_that_are_never_written_do_not_count() -> None:
    log = ChunkLog(None, new_chunk)
    written(log, [1_500_000, 1_000_000])  # does not fit behind the first one
    written(log, [1, 1_500_000])
    ends = [chunk.end for chunk in log.chunks.values()]
    assert [*log.chunks] == [1, 2, 3]
    for number, end in zip((1, 2), ends[:2], strict=True):
        assert 0 <= log.chunks[number].nbytes - end < mmap.PAGESIZE
    assert log.reserved_bytes == sum(chunk.nbytes for chunk in log.chunks.values())


def up_to_50_000(nbytes: int) -> np.ndarray:
    """Times ``LARGER``."""
    if nbytes > 50_000 * LARGER:
        raise HeapFull(f"there are {50_000 * LARGER} bytes, {nbytes} are asked for")
    return new_chunk(nbytes)


def test_where_memory_is_short_chunks_are_smaller() -> None:
    log = ChunkLog(None, up_to_50_000)
    numbers, _ = written(log, [20_000 * LARGER, 20_000 * LARGER, 40_000 * LARGER])
    assert numbers.tolist() == [1, 1, 2]
    most = 50_000 * LARGER
    assert max(chunk.nbytes for chunk in log.chunks.values()) <= most
    before = state(log)
    text = f"^{most + 1} bytes do not fit: there are {most} bytes, {most + 1} are asked for$"
    with pytest.raises(HeapFull, match=text):
        log.plan(np.array([most + 1]))
    assert state(log) == before


def test_the_dead_are_counted_and_their_chunks_go() -> None:
    log, lengths = ChunkLog(None, new_chunk), np.array([900_000, 700_000, 1_000_000, 800_000])
    numbers, _ = written(log, lengths.tolist())
    assert numbers.tolist() == [1, 1, 2, 2]
    assert log.enliven(numbers[[0, 3]], lengths[[0, 3]], -1) == {1, 2}
    assert (log.n_streams, log.live_bytes, log.written_bytes) == (2, 1_700_000, 3_400_000)
    log.drop_dead({1, 2})
    assert set(log.chunks) == {1, 2}  # each has a live stream
    assert log.enliven(numbers[[1]], lengths[[1]], -1) == {1}
    log.drop_dead({1})
    assert set(log.chunks) == {2}
    log.enliven(numbers[[2]], lengths[[2]], -1)
    log.drop_dead({2})
    assert set(log.chunks) == {log.newest} == {2}  # which is still written to
    log.drop(2)
    assert (log.chunks, log.newest, log.reserved_bytes, log.written_bytes) == ({}, 0, 0, 0)
    assert all(len(memory) == 0 for memory in log.memories)
    assert not log.addresses.any()


def test_numbers_are_used_again_and_who_reads_keeps_the_memory() -> None:
    log = ChunkLog(None, new_chunk)
    written(log, [1_000_000])
    memories, addresses = log.memories, log.addresses
    content = memories[1][:3].tobytes()
    written(log, [2_000_000])
    log.enliven(np.array([1]), np.array([1_000_000]), -1)
    log.drop_dead({1})
    assert len(log.memories[1]) == 0
    numbers, _ = written(log, [2_000_000])
    assert numbers.tolist() == [1]
    assert memories[1][:3].tobytes() == content  # those of before were replaced, not changed
    assert addresses[1] == memories[1].ctypes.data
    assert log.addresses[1] == log.memories[1].ctypes.data


def test_the_deadest_chunk_has_the_most_dead_bytes() -> None:
    log = ChunkLog(None, new_chunk)
    sizes = np.array([1_500_000, 1_600_000, 1_700_000])
    numbers = np.concatenate([written(log, [size])[0] for size in sizes.tolist()])
    assert numbers.tolist() == [1, 2, 3]
    log.enliven(numbers[1:2], sizes[1:2], -1)
    assert log.deadest() == 2
    log.enliven(numbers[2:], sizes[2:], -1)
    assert log.deadest() == 3


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
