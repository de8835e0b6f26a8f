"""HeapMemoryContract: the laws of a memory for the chunks of a heap."""

import copy
import pickle
from typing import Any

import numpy as np

from obscodec.heap import HeapMemory, SlotHeap
from obscodec.segments import Segments
from obscodec.testing.law import accepted, check

_CHUNK_NBYTES = 1 << 14
_N_SLOTS = 30
_N_STEPS = 60

Located = list[tuple[int, int, int]]  # of each stream the number of its chunk, from 1 on, its first byte, its bytes


class HeapMemoryContract:
    """The laws that every memory of a heap keeps. A subclass gives :meth:`make` and :meth:`load`."""

    def make(self) -> HeapMemory[Any]:
        """A memory for one heap."""
        raise NotImplementedError(f"{type(self).__name__} has to say how a memory is made: override make()")

    def load(self, memory: HeapMemory[Any], address: int, nbytes: int) -> bytes:
        """What a kernel reads at an address, after all work that is queued now."""
        raise NotImplementedError(f"{type(self).__name__} has to say how a kernel reads: override load()")

    def test_what_is_written_is_what_streams_gives(self) -> None:
        """``streams`` returns any parts of what was written to chunks, in any order, repeatedly, and empty ones."""
        rng, written = np.random.default_rng(0), _Chunks(self.make(), 3)
        for _ in range(12):
            written.write(int(rng.integers(3)), _streams(rng, int(rng.integers(5))))
            located = written.located(rng, 20)
            found = written.streams(located)
            check(found == written.expected(located), written.memory, "streams() gives other bytes than were written")

    def test_streams_move_between_chunks(self) -> None:
        """The streams that ``within`` finds in a chunk are written into another chunk as they are, all or some."""
        rng, written = np.random.default_rng(1), _Chunks(self.make(), 2)
        memory = written.memory
        written.write(0, _streams(rng, 12))
        offsets, lengths = np.array([40, 0, 300, 7, 7]), np.array([11, 30, 500, 0, 90])
        found = memory.within(written.chunks[0], offsets, lengths)
        sizes = len(found), found.nbytes, found.lengths.tolist()
        check(sizes == (5, 631, lengths.tolist()), memory, f"within() of [11, 30, 500, 0, 90] bytes gives {sizes}")
        for some in (slice(None), slice(1, 3), np.array([4, 0])):
            memory.write(written.chunks[1], len(written.contents[1]), found.take(some))
            for offset, length in zip(offsets[some].tolist(), lengths[some].tolist(), strict=True):
                written.contents[1] += written.contents[0][offset : offset + length]
            check(written.alone(1) == written.contents[1], memory, "moving streams changes them")
        check(written.alone(0) == written.contents[0], memory, "moving streams changes where they were")

    def test_an_address_is_where_the_bytes_are(self) -> None:
        """A kernel finds the bytes of a chunk at its address, which stays the same; chunks do not overlap."""
        rng, written = np.random.default_rng(2), _Chunks(self.make(), 4)
        memory = written.memory
        before = [memory.address(chunk) for chunk in written.chunks]
        for i in range(4):
            written.write(i, _streams(rng, 6))
        addresses = [memory.address(chunk) for chunk in written.chunks]
        check(addresses == before, memory, f"the addresses of chunks change from {before} to {addresses}")
        ordered = np.sort(addresses)
        check(bool((np.diff(ordered) >= _CHUNK_NBYTES).all()), memory, f"chunks overlap at the addresses {addresses}")
        for address, content in zip(addresses, written.contents, strict=True):
            for begin, nbytes in ((0, len(content)), (13, 50)):
                found = self.load(memory, address + begin, nbytes)
                check(found == content[begin : begin + nbytes], memory, "there are other bytes at the address")

    def test_no_chunk_has_empty_streams(self) -> None:
        """Streams in chunk 0, which stands for no chunk, are empty, alone and among others."""
        written = _Chunks(self.make(), 1)
        written.write(0, [b"first", b"second"])
        for located in ([(0, 0, 0)] * 3, [(0, 0, 0), (1, 5, 6), (0, 0, 0), (1, 0, 5)], []):
            found = written.streams(located)
            check(found == written.expected(located), written.memory, f"streams() gives {found} for {located}")

    def test_what_streams_gave_stays(self) -> None:
        """Streams in host memory stay as they are while chunks are written to, dropped and made."""
        rng, written = np.random.default_rng(3), _Chunks(self.make(), 2)
        memory = written.memory
        written.write(0, _streams(rng, 5))
        located = written.located(rng, 8)
        found, expected = written.segments(located), written.expected(located)
        written.write(0, _streams(rng, 5))
        memory.drop(written.chunks.pop(0), used=True)
        memory.drop(written.chunks.pop(0), used=False)
        for _ in range(3):
            again = _Chunks(memory, 1)
            again.write(0, [b"\xff" * _CHUNK_NBYTES])
        memory.wait()
        check([bytes(stream) for stream in found] == expected, memory, "streams that were given change later")

    def test_a_heap_equals_a_dict(self) -> None:
        """A heap over this memory holds what a dict of bytes holds, through put, free and compact."""
        rng, memory = np.random.default_rng(4), self.make()
        heap, model = SlotHeap(_N_SLOTS, memory=memory), dict[int, bytes]()
        for _ in range(_N_STEPS):
            slots = rng.integers(_N_SLOTS, size=int(rng.integers(1, 10)))
            action = rng.integers(5)
            with accepted(memory, "working with a heap"):
                if action < 3:
                    streams = _streams(rng, len(slots), int(rng.choice([20, 3000, 30_000])))
                    heap.put(slots, Segments.of(streams))
                    model.update(zip(slots.tolist(), streams, strict=True))
                elif action == 3:
                    heap.free(slots)
                    model = {slot: stream for slot, stream in model.items() if slot not in set(slots.tolist())}
                else:
                    heap.compact()
                check(_contents(heap) == model, memory, "a heap over it holds other streams than a dict")
                for slot in list(model)[:2]:
                    places = heap.place(np.array([slot]))
                    found = self.load(memory, int(places.addresses[0]), int(places.lengths[0]))
                    check(found == model[slot], memory, "a heap over it has other streams at their addresses")

    def test_a_rebuilt_heap_holds_the_same(self) -> None:
        """A pickled or copied heap over this memory holds the same streams, and shares nothing with the first."""
        rng, memory = np.random.default_rng(5), self.make()
        for how in ("pickling", "deepcopy"):
            heap = SlotHeap(_N_SLOTS, memory=memory)
            heap.put(range(9), Segments.of(_streams(rng, 9, 5000)))
            before = _contents(heap)
            with accepted(memory, f"rebuilding a heap by {how}"):
                rebuilt = pickle.loads(pickle.dumps(heap)) if how == "pickling" else copy.deepcopy(heap)
                check(_contents(rebuilt) == before, memory, f"{how} changes what a heap holds")
                rebuilt.put([3], Segments.of([b"there"]))
                heap.put([4], Segments.of([b"here"]))
                check(_contents(heap) == {**before, 4: b"here"}, memory, f"after {how} one heap writes into the other")
                heap.free(range(9))
                heap.compact()
                after = {**before, 3: b"there"}
                check(_contents(rebuilt) == after, memory, f"after {how} one heap changes with the other")


class _Chunks:
    """Chunks of a memory, and the bytes that were written to each."""

    def __init__(self, memory: HeapMemory[Any], n: int) -> None:
        self.memory = memory
        self.chunks = [memory.new(_CHUNK_NBYTES) for _ in range(n)]
        self.contents = [b""] * n

    def write(self, i: int, streams: list[bytes]) -> None:
        self.memory.write(self.chunks[i], len(self.contents[i]), Segments.of(streams))
        self.contents[i] += b"".join(streams)

    def located(self, rng: np.random.Generator, n: int) -> Located:
        """Streams anywhere in the written bytes."""
        located = []
        for number in rng.integers(1, len(self.chunks) + 1, size=n).tolist():
            begin, end = sorted(rng.integers(len(self.contents[number - 1]) + 1, size=2).tolist())
            located.append((number, begin, end - begin))
        return located

    def segments(self, located: Located) -> Segments:
        chunks = (self.memory.no_chunk, *self.chunks)
        bases = np.array([0, *map(self.memory.address, self.chunks)], np.int64)
        which, offsets, lengths = np.array(located, np.int64).reshape(-1, 3).T.copy()
        return self.memory.streams(chunks, which, offsets, lengths, bases)

    def streams(self, located: Located) -> list[bytes]:
        return [bytes(stream) for stream in self.segments(located)]

    def alone(self, i: int) -> bytes:
        """All bytes that were written to a chunk, read as if there were no other chunk."""
        chunks, bases = (self.memory.no_chunk, self.chunks[i]), np.array([0, self.memory.address(self.chunks[i])])
        all_of_it = np.ones(1, np.int64), np.zeros(1, np.int64), np.array([len(self.contents[i])])
        return bytes(self.memory.streams(chunks, *all_of_it, bases)[0])

    def expected(self, located: Located) -> list[bytes]:
        return [(b"", *self.contents)[number][begin : begin + nbytes] for number, begin, nbytes in located]


def _streams(rng: np.random.Generator, n: int, most_nbytes: int = 200) -> list[bytes]:
    """Noise of random lengths."""
    return [rng.bytes(nbytes) for nbytes in rng.integers(most_nbytes + 1, size=n).tolist()]


def _contents(heap: SlotHeap) -> dict[int, bytes]:
    slots = np.flatnonzero(heap.holds(range(heap.n_slots)))
    return {slot: bytes(stream) for slot, stream in zip(slots.tolist(), heap.get(slots), strict=True)}
