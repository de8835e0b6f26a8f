"""A slot heap stays as it was, whatever ends a call of it, at any line."""

from functools import partial

import numpy as np
import pytest
from faults import at_every_line
from obscodec.heap import SlotHeap
from obscodec.segments import Segments

N_SLOTS = 40


def check(heap: SlotHeap, model: dict[int, bytes], place: str) -> None:
    """The heap holds what ``model`` does, and counts that and nothing else."""
    held = np.flatnonzero(heap.holds(np.arange(N_SLOTS))).tolist()
    assert held == sorted(model), place
    assert [stream.tobytes() for stream in heap.get(held)] == [model[slot] for slot in held], place
    stats = heap.stats()
    assert stats.n_streams == len(model), place
    assert stats.live_bytes == sum(map(len, model.values())), place
    assert stats.reserved_bytes + stats.disk_bytes >= stats.live_bytes, place


@pytest.mark.parametrize("max_bytes", [None, 2_500_000])
@pytest.mark.parametrize("nbytes", [100, 40_000, 120_000])  # many in a chunk, one or two, a chunk for each
def test_a_put_that_is_interrupted_stores_all_or_nothing(nbytes, max_bytes):
    rng = np.random.default_rng(nbytes)
    heap, model, given = SlotHeap(N_SLOTS, max_bytes=max_bytes), {}, {}

    def prepare():
        slots = rng.choice(N_SLOTS, 5, replace=False)
        given.clear()
        given.update({int(slot): rng.bytes(int(rng.integers(nbytes))) for slot in slots})
        streams = Segments.of(list(given.values()))
        return lambda: heap.put(list(given), streams)

    for _ in range(6 if nbytes < 1000 else 2):  # so that chunks are cleaned up, too
        for place in at_every_line(prepare):
            slots = list(given)
            found = {slot: stream.tobytes() for slot, stream in zip(slots, heap.locate(np.array(slots)), strict=True)}
            if found == given:
                model.update(given)
            check(heap, model, place)


def test_streams_that_are_freed_are_gone_all_or_none():
    rng = np.random.default_rng(0)
    heap, model = SlotHeap(N_SLOTS), {}
    freed = []

    def prepare():
        model.update({slot: rng.bytes(30_000) for slot in range(N_SLOTS)})
        heap.put(list(model), Segments.of(list(model.values())))
        freed[:] = rng.choice(N_SLOTS, 12, replace=False).tolist()
        return lambda: heap.free(freed)

    for place in at_every_line(prepare):
        if not heap.holds(freed).any():
            for slot in freed:
                del model[slot]
        check(heap, model, place)


def test_a_spill_that_is_interrupted_moves_a_chunk_or_leaves_it(tmp_path):
    rng = np.random.default_rng(2)
    heap, model = SlotHeap(N_SLOTS), {}

    def prepare():
        for slot in rng.choice(N_SLOTS, 10, replace=False).tolist():
            model[slot] = rng.bytes(int(rng.integers(60_000)))
            heap.put([slot], Segments.of([model[slot]]))
        readers.append((heap.get(list(model)), list(model.values())))
        return lambda: heap.spill(tmp_path, 1 << 18)

    readers: list[tuple[Segments, list[bytes]]] = []
    for place in at_every_line(prepare):
        check(heap, model, place)
        for segments, streams in readers:
            assert [stream.tobytes() for stream in segments] == streams, place
        del readers[:-2]
        assert not any(tmp_path.iterdir()), place
    assert heap.stats().disk_bytes > 0


def test_a_heap_that_grows_keeps_its_streams():
    heap, model = SlotHeap(N_SLOTS), {3: b"abc", 7: b"de"}
    heap.put(list(model), Segments.of(list(model.values())))
    for place in at_every_line(lambda: partial(heap.grow, heap.n_slots + 1)):
        check(heap, model, place)
    assert heap.n_slots > N_SLOTS
    heap.put([heap.n_slots - 1], Segments.of([b"f"]))
