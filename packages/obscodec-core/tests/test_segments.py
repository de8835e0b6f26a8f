import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obscodec.heap import SlotHeap
from obscodec.segments import Segments

STREAMS = st.lists(st.binary(max_size=20), max_size=12)


def as_bytes(segments: Segments) -> list[bytes]:
    return [stream.tobytes() for stream in segments]


@given(STREAMS)
def test_a_segments_is_the_sequence_of_its_streams(streams):
    segments = Segments.of(streams)
    assert as_bytes(segments) == streams
    assert [segments[i].tobytes() for i in range(len(segments))] == streams
    assert segments.nbytes == sum(map(len, streams))


@given(st.lists(STREAMS, min_size=1, max_size=4))
def test_joined_is_concatenation_without_a_copy(parts):
    segments = [Segments.of(part) for part in parts]
    joined = Segments.joined(segments)
    assert as_bytes(joined) == [stream for part in parts for stream in part]
    assert all(buffer is part.buffers[0] for buffer, part in zip(joined.buffers, segments, strict=True))


@given(STREAMS, STREAMS, st.data())
def test_take_and_pack_copy_the_streams_that_are_asked_for(one, other, data):
    segments = Segments.joined([Segments.of(one), Segments.of(other)])
    streams = one + other
    which = data.draw(st.lists(st.integers(0, len(streams) - 1), max_size=20) if streams else st.just([]))
    taken = segments.take(np.array(which, np.int64))
    assert as_bytes(taken) == [streams[i] for i in which]
    packed = np.zeros(taken.nbytes, np.uint8)
    taken.pack(packed)
    assert packed.tobytes() == b"".join(streams[i] for i in which)
    assert as_bytes(segments.take(slice(1, 3))) == streams[1:3]


def test_addresses_are_where_the_streams_begin():
    segments = Segments.joined([Segments.of([b"ab", b"c"]), Segments.of([b"def"])])
    expected = [stream.ctypes.data for stream in segments]
    assert segments.addresses().tolist() == expected
    assert segments.addresses().dtype == np.int64


@pytest.mark.parametrize(
    "moved",
    [
        lambda segments: pickle.loads(pickle.dumps(segments)),
        copy.deepcopy,
        lambda segments: dataclasses.replace(segments, buffers=tuple(buffer.copy() for buffer in segments.buffers)),
    ],
    ids=["pickle", "deepcopy", "replace"],
)
def test_addresses_follow_the_buffers(moved):
    heap = SlotHeap(4)
    heap.put([0, 3], Segments.of([b"abc", b"de"]))
    found = heap.get([3, 0])
    assert found.addresses().tolist() == [stream.ctypes.data for stream in found]
    twin = moved(found)
    assert as_bytes(twin) == [b"de", b"abc"]
    assert twin.addresses().tolist() == [stream.ctypes.data for stream in twin]
    assert twin.addresses().tolist() != found.addresses().tolist()
