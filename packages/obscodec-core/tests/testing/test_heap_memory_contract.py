"""The contract finds broken memories: each one here breaks one law, and fails that law.

A heap needs all of a memory, so its law is broken with most others.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np
import pytest
from broken_laws import broken_laws, laws
from obscodec.heap import HeapMemory
from obscodec.heap.memory import HostMemory
from obscodec.segments import Segments
from obscodec.testing import HeapMemoryContract

OF_A_HEAP = "test_a_heap_equals_a_dict"


class Sound(HostMemory):
    def __reduce__(self) -> Any:
        return type(self), ()


class ReadsTheFirstChunk(Sound):
    def streams(self, chunks: Any, which: Any, offsets: Any, lengths: Any, bases: Any) -> Segments:
        return super().streams(chunks, np.minimum(which, 1), offsets, lengths, bases)


class MovesWhatComesFirst(Sound):
    """Gives the first bytes of a chunk."""

    def within(self, chunk: Any, offsets: Any, lengths: Any) -> Segments:
        return super().within(chunk, np.zeros_like(offsets), lengths)


class MovesFromTheWrongEnd(Sound):
    """Clears where a stream was."""

    def within(self, chunk: Any, offsets: Any, lengths: Any) -> Segments:
        found = super().within(chunk, offsets, lengths)
        moved = Segments.of([bytes(stream) for stream in found])
        for stream in found:
            stream[:] = 0
        return moved


class HasOneAddress(Sound):
    """All chunks say that they begin where there is nothing of them; the host does without."""

    nothing = np.zeros(1 << 22, np.uint8)

    def address(self, chunk: Any) -> int:
        return self.nothing.ctypes.data

    def streams(self, chunks: Any, which: Any, offsets: Any, lengths: Any, bases: Any) -> Segments:
        return Segments(chunks, which, offsets, lengths)


class KnowsNoChunk(Sound):
    """Takes the number 0 for the first chunk."""

    def streams(self, chunks: Any, which: Any, offsets: Any, lengths: Any, bases: Any) -> Segments:
        lengths = np.where(which == 0, 1, lengths)
        return super().streams((chunks[-1], *chunks[1:]), which, offsets, lengths, np.append(bases[-1:], bases[1:]))


class ClearsWhatIsDropped(Sound):
    def drop(self, chunk: Any, *, used: bool) -> None:
        chunk[:] = 0


class SharesItsChunks(Sound):
    """Copies of a memory make the same chunks."""

    made: ClassVar[dict[tuple[int, int], Any]] = {}

    def __init__(self) -> None:
        self.n = 0

    def new(self, nbytes: int) -> Any:
        self.n += 1
        return self.made.setdefault((self.n, nbytes), super().new(nbytes))


class FailsInALargeHeap(Sound):
    """Takes 255 for the last byte of a chunk that is larger than most."""

    def write(self, chunk: Any, start: int, streams: Any) -> None:
        super().write(chunk, start, streams)
        if len(chunk) > 1 << 16 and start + streams.nbytes:
            chunk[start + streams.nbytes - 1] = 255


BROKEN = {
    ReadsTheFirstChunk: "test_what_is_written_is_what_streams_gives",
    MovesWhatComesFirst: "test_streams_move_between_chunks",
    MovesFromTheWrongEnd: "test_streams_move_between_chunks",
    HasOneAddress: "test_an_address_is_where_the_bytes_are",
    KnowsNoChunk: "test_no_chunk_has_empty_streams",
    ClearsWhatIsDropped: "test_what_streams_gave_stays",
    FailsInALargeHeap: OF_A_HEAP,
    SharesItsChunks: "test_a_rebuilt_heap_holds_the_same",
}


def contract_of(kind: type[HeapMemory[Any]]) -> HeapMemoryContract:
    class Contract(HeapMemoryContract):
        def make(self) -> HeapMemory[Any]:
            return kind()

        def load(self, memory: HeapMemory[Any], address: int, nbytes: int) -> bytes:
            return ctypes.string_at(address, nbytes)

    return Contract()


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_memory_that_breaks_one_law_fails_that_law(kind: type[HeapMemory[Any]]) -> None:
    broken = broken_laws(HeapMemoryContract, contract_of(kind))
    assert set(broken) - {OF_A_HEAP} == {BROKEN[kind]} - {OF_A_HEAP}
    assert broken


def test_each_law_is_broken_by_some_memory() -> None:
    assert set(BROKEN.values()) == set(laws(HeapMemoryContract))


def test_a_sound_memory_keeps_all_laws() -> None:
    assert broken_laws(HeapMemoryContract, contract_of(Sound)) == []


def test_a_broken_law_is_explained() -> None:
    with pytest.raises(AssertionError) as caught:
        contract_of(ClearsWhatIsDropped).test_what_streams_gave_stays()
    assert str(caught.value).endswith(">: streams that were given change later")


def test_a_contract_that_makes_no_memory_says_so() -> None:
    with pytest.raises(NotImplementedError) as caught:
        HeapMemoryContract().test_no_chunk_has_empty_streams()
    assert str(caught.value) == "HeapMemoryContract has to say how a memory is made: override make()"
    with pytest.raises(NotImplementedError) as caught:
        HeapMemoryContract().load(Sound(), 0, 0)
    assert str(caught.value) == "HeapMemoryContract has to say how a kernel reads: override load()"
