"""Chunks in files: what goes there, what comes back, and who may read meanwhile."""

import os
from functools import partial

import numpy as np
import pytest
from forked import exit_status, forked
from obscodec.heap import SlotHeap
from obscodec.segments import Segments
from together import meanwhile

N, NBYTES = 200, 30_000


def filled(first: int = 0) -> tuple[SlotHeap, list[bytes]]:
    heap, streams = SlotHeap(N), [np.random.default_rng(i).bytes(NBYTES) for i in range(first, first + N)]
    for slot, stream in enumerate(streams):
        heap.put([slot], Segments.of([stream]))
    return heap, streams


def test_the_oldest_chunks_go_first_and_the_newest_never(tmp_path):
    heap, streams = filled()
    reserved = heap.stats().reserved_bytes
    freed = heap.spill(tmp_path, 1)
    assert 0 < freed < 1 << 22
    addresses = heap.get(range(N)).addresses()
    heap.spill(tmp_path, 1 << 20)
    moved = heap.get(range(N)).addresses() != addresses
    assert 0 < moved.sum() < N
    assert (np.diff(moved.astype(int)) >= 0).sum() > 0
    n_before = int(np.flatnonzero(moved)[0])  # these went with the first call
    assert moved[n_before : n_before + int(moved.sum())].all()
    assert n_before > 0
    assert heap.spill(tmp_path, 1 << 30) > 0
    assert heap.spill(tmp_path, 1 << 30) == 0
    stats = heap.stats()
    assert 0 < stats.reserved_bytes < reserved
    assert stats.live_bytes <= stats.reserved_bytes + stats.disk_bytes
    assert [bytes(stream) for stream in heap.get(range(N))] == streams


def test_a_chunk_in_a_file_is_dropped_with_its_last_stream_and_not_moved_before(tmp_path):
    heap, _ = filled()
    heap.spill(tmp_path, 1 << 30)
    before = heap.stats()
    some = [slot for slot in range(100) if slot % 4]
    heap.free(some)  # files may be half dead, and memory need not be
    assert heap.stats().disk_bytes == before.disk_bytes
    heap.free(range(100))
    files = [chunk for chunk in heap._log.chunks.values() if chunk.is_spilled]
    assert all(chunk.n_live for chunk in files)
    assert heap.stats().disk_bytes == sum(chunk.end for chunk in files) < before.disk_bytes
    heap.free(range(N))
    assert heap.stats().disk_bytes == 0


def test_files_have_at_most_twice_as_many_bytes_as_are_live(tmp_path):
    heap, streams = filled()
    heap.spill(tmp_path, 1 << 30)
    keep = [*range(0, N, 10)]
    heap.free([slot for slot in range(N) if slot not in keep])
    stats = heap.stats()
    assert stats.disk_bytes <= 2 * stats.live_bytes + (2 << 20)
    assert [bytes(stream) for stream in heap.get(keep)] == [streams[slot] for slot in keep]


def test_a_limit_of_memory_does_not_count_files(tmp_path):
    heap = SlotHeap(N, max_bytes=2_000_000)
    streams = [np.random.default_rng(i).bytes(NBYTES) for i in range(N)]
    for slot, stream in enumerate(streams):
        if heap.stats().reserved_bytes > 1_000_000:
            heap.spill(tmp_path, 1 << 30)
        heap.put([slot], Segments.of([stream]))
        assert heap.stats().reserved_bytes <= 2_000_000
    assert [bytes(stream) for stream in heap.get(range(N))] == streams


def test_threads_put_and_get_while_chunks_move(tmp_path):
    heap, streams = filled()

    def read(rng):
        slots = rng.choice(N // 2, 10)
        assert [bytes(stream) for stream in heap.get(slots)] == [streams[slot] for slot in slots]

    with meanwhile(*(partial(read, np.random.default_rng(seed)) for seed in range(2))):
        for i in range(300):
            heap.put([N // 2 + i % (N // 2)], Segments.of([os.urandom(NBYTES)]))
            heap.spill(tmp_path, 1 << 17)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_forked_process_reads_files_and_drops_none_of_its_parent(tmp_path):
    heap, streams = filled()
    heap.spill(tmp_path, 1 << 30)

    def read_and_free():
        assert [bytes(stream) for stream in heap.get(range(N))] == streams
        heap.free(range(N))

    assert exit_status(forked(read_and_free)) == 0
    assert [bytes(stream) for stream in heap.get(range(N))] == streams
