import copy
import mmap
import pickle
import re
import tempfile
import textwrap
import weakref
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from new_python import run_python
from obscodec import HeapFull, ShapeError, SlotError, SpecError
from obscodec.heap import Chunk, HeapChanges, SlotHeap
from obscodec.runtime import new_chunk
from obscodec.segments import Segments
from together import meanwhile

N_SLOTS = 12
SLOTS = st.lists(st.integers(0, N_SLOTS - 1), max_size=2 * N_SLOTS)


class Scarce:
    """Allocates chunks from ``room`` bytes, which grow again when nobody holds a chunk any more."""

    def __init__(self, room: int) -> None:
        self.room = self.all = room

    def __call__(self, nbytes: int) -> np.ndarray:
        if nbytes > self.room:
            raise HeapFull(f"there is room for {self.room} bytes, {nbytes} are wanted")
        chunk = np.full(nbytes, 0xA5, np.uint8)
        self.room -= nbytes
        weakref.finalize(chunk, self.give_back, nbytes)
        return chunk

    def give_back(self, nbytes: int) -> None:
        self.room += nbytes

    def __reduce__(self) -> tuple[object, ...]:
        return Scarce, (self.all,)


Where = tuple[int, Chunk, int, int]


def places(changes: HeapChanges) -> dict[int, Where | None]:
    """The chunk of each stream that has changed, its place there and its bytes, as who copies the chunks knows them."""
    found = zip(changes.slots.tolist(), changes.entries[changes.slots].tolist(), strict=True)
    return {slot: (n, changes.chunks[n], at, nbytes) if n else None for slot, (n, at, nbytes) in found}


def streams_of(lengths: list[int], seed: int) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(length) for length in lengths]


def contents(heap: SlotHeap) -> dict[int, bytes]:
    slots = np.flatnonzero(heap.holds(range(heap.n_slots)))
    return {int(slot): stream.tobytes() for slot, stream in zip(slots, heap.get(slots), strict=True)}


class HeapEqualsDict(RuleBasedStateMachine):
    """Streams up to 40 kB, so that a few of them fill a chunk of the smallest size."""

    @initialize(
        max_bytes=st.sampled_from([None, 10_000, 100_000, 300_000]),
        allocate=st.sampled_from([lambda: new_chunk, lambda: Scarce(200_000)]),
    )
    def make(self, max_bytes, allocate):
        self.is_scarce = isinstance(made := allocate(), Scarce)
        self.heap = SlotHeap(N_SLOTS, max_bytes=max_bytes, allocate=made)
        self.heap.watch()
        self.places: dict[int, Where | None] = {}
        self.model: dict[int, bytes] = {}
        self.given_out: list[tuple[Segments, list[bytes]]] = []

    @rule(slots=SLOTS, seed=st.integers(0, 1000), largest=st.sampled_from([0, 10, 3000, 40_000]))
    def put(self, slots, seed, largest):
        lengths = np.random.default_rng(seed).integers(largest + 1, size=len(slots)).tolist()
        streams = streams_of(lengths, seed)
        try:
            self.heap.put(slots, Segments.of(streams))
        except HeapFull:
            assert self.heap.max_bytes is not None or self.is_scarce
        else:
            self.model.update(zip(slots, streams, strict=True))

    @rule(slots=SLOTS)
    def free(self, slots):
        self.heap.free(slots)
        for slot in slots:
            self.model.pop(slot, None)

    @rule(slots=SLOTS)
    def get(self, slots):
        empty = [slot for slot in slots if slot not in self.model]
        if empty:
            with pytest.raises(SlotError, match=f"^slot {empty[0]} holds nothing$"):
                self.heap.get(slots)
        else:
            streams = [self.model[slot] for slot in slots]
            self.given_out.append((self.heap.get(slots), streams))

    @rule(nbytes=st.sampled_from([1, 100_000, 1 << 30]))
    def spill(self, nbytes):
        if self.is_scarce:
            with pytest.raises(SpecError, match=r"^a GPU reads this heap in pinned memory"):
                self.heap.spill(tempfile.gettempdir(), nbytes)
            return
        before = self.heap.stats()
        freed = self.heap.spill(tempfile.gettempdir(), nbytes)
        after = self.heap.stats()
        assert freed == before.reserved_bytes - after.reserved_bytes
        assert (freed > 0) == (after.disk_bytes > before.disk_bytes)

    @rule(copied=st.sampled_from([lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy]))
    def rebuild(self, copied):
        before = self.heap
        self.heap = SlotHeap(before.n_slots, max_bytes=before.max_bytes, allocate=copied(before._log.allocate))
        self.heap.restore(copied(before.state()))
        self.heap.watch()
        self.places.clear()

    @rule(bad=st.sampled_from([-1, N_SLOTS]), slots=SLOTS)
    def refuse(self, bad, slots):
        slots = [*slots, bad]
        for call in (self.heap.get, self.heap.free, self.heap.holds):
            with pytest.raises(SlotError, match=rf"^slots are in 0\.\.11, got {bad}$"):
                call(slots)
        with pytest.raises(SlotError, match=rf"^slots are in 0\.\.11, got {bad}$"):
            self.heap.put(slots, Segments.of([b"new"] * len(slots)))
        with pytest.raises(ShapeError, match=rf"^{len(slots)} slots take {len(slots)} streams, got 0$"):
            self.heap.put([0] * len(slots), Segments.of([]))

    @invariant()
    def equal(self):
        assert contents(self.heap) == self.model
        for segments, streams in self.given_out:
            assert [stream.tobytes() for stream in segments] == streams

    @invariant()
    def places_are_those_that_changed(self):
        changes = self.heap.changes()
        self.places.update(places(changes))
        for slot in range(N_SLOTS):
            place = self.places.get(slot)
            assert (place is not None) == (slot in self.model)
            if place is not None:
                number, chunk, at, nbytes = place
                assert changes.chunks.get(number) is chunk
                assert chunk.memory[at : at + nbytes].tobytes() == self.model[slot]

    @invariant()
    def statistics_add_up(self):
        stats = self.heap.stats()
        assert stats.n_streams == len(self.model)
        assert stats.live_bytes == sum(map(len, self.model.values()))
        assert stats.reserved_bytes + stats.disk_bytes >= stats.live_bytes
        room_bytes = 0 if self.is_scarce else stats.room_bytes
        unused = self.heap.memory_bytes - (stats.reserved_bytes - room_bytes + stats.table_bytes)
        assert 0 <= unused < (1 if self.is_scarce else mmap.PAGESIZE)  # of the last page that is written
        assert self.heap.max_bytes is None or stats.reserved_bytes <= self.heap.max_bytes


TestHeapEqualsDict = HeapEqualsDict.TestCase
TestHeapEqualsDict.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_full_heap_keeps_what_it_has():
    heap = SlotHeap(10, max_bytes=8192)
    heap.put([0, 1], Segments.of([b"a" * 3000, b"b" * 3000]))
    before = contents(heap), heap.stats()
    text = (
        r"^9000 bytes do not fit: the heap has reserved 8192 bytes for 6000 live ones, max_bytes is 8192: "
        r"free slots, or allow more$"
    )
    with pytest.raises(HeapFull, match=text):
        heap.put([0, 5], Segments.of([b"c" * 1000, b"d" * 8000]))
    assert (contents(heap), heap.stats()) == before


def test_a_stream_fits_if_the_live_ones_leave_room():
    heap = SlotHeap(4, max_bytes=12_288)
    for i in range(50):
        heap.put([i % 2], Segments.of([bytes([i]) * 3000]))
    assert contents(heap) == {0: bytes([48]) * 3000, 1: bytes([49]) * 3000}


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([50, 1000, 20_000]))
@settings(max_examples=10, deadline=None)
def test_reserved_bytes_stay_in_proportion_under_endless_overwriting(seed, mean_nbytes):
    rng = np.random.default_rng(seed)
    heap = SlotHeap(2_000)
    content = np.frombuffer(rng.bytes(8 * mean_nbytes * 64), np.uint8)
    for _ in range(600):
        lengths = rng.integers(2 * mean_nbytes, size=64)
        heap.put(rng.integers(heap.n_slots, size=64), Segments.packed(content, lengths))
        stats = heap.stats()
        assert stats.reserved_bytes <= 2 * stats.live_bytes + (1 << 18)


def test_reserved_bytes_stay_in_proportion_for_many_small_streams():
    heap = SlotHeap(200_000)
    content = np.zeros(1000 * 100, np.uint8)
    for first in range(0, heap.n_slots, 1000):
        heap.put(np.arange(first, first + 1000), Segments.packed(content, np.full(1000, 100)))
    stats = heap.stats()
    assert stats.live_bytes == 20_000_000
    assert stats.reserved_bytes <= 1.5 * stats.live_bytes


def test_a_memory_without_room_loses_nothing():
    larger = min(4, mmap.PAGESIZE // 4096)  # so that memory is short where pages are larger, too
    scarce, nbytes = Scarce(larger << 16), 40_000 * larger
    heap = SlotHeap(10, allocate=scarce)
    heap.put([0, 1], Segments.of([b"a" * 30_000 * larger, b"b" * 30_000 * larger]))
    before = contents(heap), heap.stats()
    text = f"^{nbytes} bytes do not fit: there is room for {scarce.room} bytes, {nbytes} are wanted$"
    with pytest.raises(HeapFull, match=text):
        heap.put([0], Segments.of([b"c" * nbytes]))
    assert (contents(heap), heap.stats()) == before
    heap.free([1])
    with pytest.raises(HeapFull, match=text):
        heap.put([1], Segments.of([b"d" * nbytes]))
    heap.put([1], Segments.of([b"e" * 400]))  # the rest of the chunk is still used
    assert contents(heap) == {0: before[0][0], 1: b"e" * 400}
    scarce.room = larger << 17
    heap.put([2], Segments.of([b"d" * nbytes]))
    assert contents(heap) == {0: before[0][0], 1: b"e" * 400, 2: b"d" * nbytes}


def test_freeing_needs_no_room():
    scarce = Scarce(1 << 21)
    heap = SlotHeap(2000, allocate=scarce)
    heap.put(range(2000), Segments.of([bytes(500)] * 2000))
    room, scarce.room = scarce.room, 0
    heap.free(range(1, 2000, 2))
    assert heap.stats().live_bytes == 500_000
    scarce.room, before = room, heap.stats().reserved_bytes
    heap.free([1])  # which is free, but now the heap can clean up
    assert heap.stats().reserved_bytes < before
    assert contents(heap) == dict.fromkeys(range(0, 2000, 2), bytes(500))


def test_two_threads_read_while_one_writes():
    """Each stream consists of one byte value, so a reader sees at once if one was changed under it."""
    heap = SlotHeap(200)
    heap.put(range(200), Segments.of([bytes([i]) * 500 for i in range(200)]))

    def read(rng):
        for stream in heap.get(rng.integers(200, size=50)):
            assert len(stream) > 0
            assert (stream == stream[0]).all()

    rng = np.random.default_rng(2)
    with meanwhile(*(partial(read, np.random.default_rng(seed)) for seed in range(2))):
        for _ in range(1500):
            drawn = rng.integers(1, 256, size=(20, 2)) * [1, 20]
            heap.put(rng.integers(200, size=20), Segments.of([bytes([value]) * n for value, n in drawn]))


@pytest.mark.needs("/proc")
def test_memory_goes_back_to_the_operating_system():
    program = """
        import mmap
        import numpy as np
        from obscodec.heap import Chunk, HeapChanges, SlotHeap
        from obscodec.segments import Segments

        def resident():  # without the pages of files: code, which is read in by and by
            with open("/proc/self/statm") as statm:
                pages, of_files = map(int, statm.read().split()[1:3])
            return (pages - of_files) * mmap.PAGESIZE

        content = np.ones(1000 * 1200, np.uint8)
        heap = SlotHeap(100_000)
        heap.put([0, 1], Segments.of([b"warm", b"up"]))
        heap.free([0, 1])
        before = resident()
        for first in range(0, 100_000, 1000):
            heap.put(np.arange(first, first + 1000), Segments.packed(content, np.full(1000, 1200)))
        filled = resident()
        for first in range(0, 100_000, 1000):
            heap.free(np.arange(first, first + 1000, 2))
        half = resident()
        for first in range(0, 100_000, 1000):
            heap.free(np.arange(first, first + 1000))
        print(*(round((at - before) / 1e6) for at in (filled, half, resident())))
    """
    filled, half, freed = map(int, run_python("-c", textwrap.dedent(program)).split())
    assert 115 <= filled <= 140
    assert half <= 90
    assert freed <= 10


@pytest.mark.parametrize(("slots", "text"), [
    ([3, 10, -1], "slots are in 0..9, got 10"),
    ([10], "slots are in 0..9, got 10"),
    ([-1], "slots are in 0..9, got -1"),
    ([-(2**63)], f"slots are in 0..9, got {-(2**63)}"),
    (np.array([2**63], np.uint64), f"slots are in 0..9, got {-(2**63)}"),
    ([0.0], "slots are integers, got float64"),
    ([True], "slots are integers, got bool"),
])  # fmt: skip
def test_slots_that_are_not_there_are_refused(slots: object, text: str) -> None:
    with pytest.raises(SlotError, match=f"^{re.escape(text)}$"):
        SlotHeap(10).holds(slots)


def test_slots_in_range_are_taken_in_any_form() -> None:
    heap = SlotHeap(10)
    heap.put(9, Segments.of([b"a"]))
    for slots in ([9, 0], np.array([[9], [0]], np.uint8), (9, 0), np.array([9, 0])):
        assert heap.holds(slots).tolist() == [True, False]
    assert SlotHeap(0).holds([]).shape == (0,)
