"""A slot heap in the memory of a device, or in pinned memory, which several streams read and write."""

import copy
import pickle

import numpy as np
import pytest
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import HeapFull, SlotError, SpecError
from obscodec.heap import SlotHeap
from obscodec.segments import Segments
from obscodec_cupy.backend import CudaBackend
from obscodec_cupy.device.copies import move
from obscodec_cupy.device.device import Device
from obscodec_cupy.memory.heap_memory import DeviceHeapMemory, PinnedHeapMemory, PlacedStreams, heap_memory

KINDS = pytest.mark.parametrize("kind", [DeviceHeapMemory, PinnedHeapMemory])


def heap_on(device: Device, kind=DeviceHeapMemory, n_slots: int = 100, **options) -> SlotHeap:
    return SlotHeap(n_slots, memory=kind(device, (heap_memory, ("cuda", "device"))), **options)


def random_streams(rng: np.random.Generator, n: int, largest: int) -> list[bytes]:
    return [rng.bytes(length) for length in rng.integers(largest + 1, size=n).tolist()]


def contents(heap: SlotHeap) -> dict[int, bytes]:
    slots = np.flatnonzero(heap.holds(range(heap.n_slots)))
    return {int(slot): stream.tobytes() for slot, stream in zip(slots, heap.get(slots), strict=True)}


class Reader:
    """Reads streams as kernels do: queues a copy on the current stream, to look at later."""

    def __init__(self, heap: SlotHeap) -> None:
        self.heap = heap
        self.reads = []

    def read(self, slots: np.ndarray, expected: list[bytes]) -> None:
        device = self.heap.memory.device
        out = device.empty((sum(map(len, expected)) + 1,), np.uint8)
        with self.heap.lock, self.heap.memory.order:
            places = self.heap.place(slots)
            begins = np.uint64(device.address(out)) + (np.cumsum(places.lengths) - places.lengths).astype(np.uint64)
            move(device, places.addresses, begins, places.lengths)
            self.reads.append((out, b"".join(expected), device.mark()))

    def check(self) -> None:
        for out, expected, mark in self.reads:
            mark.wait()
            assert self.heap.memory.device.download(out)[:-1].tobytes() == expected


@KINDS
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_bytes", [None, 200_000])
def test_a_heap_equals_a_dict_whichever_streams_work_on_it(device, kind, seed, max_bytes):
    rng = np.random.default_rng(seed)
    heap, model = heap_on(device, kind, 40, max_bytes=max_bytes), {}
    reader = Reader(heap)
    streams = on_new_streams(device, 3)
    for _ in range(60):
        with streams[rng.integers(3)]():
            slots = rng.integers(40, size=rng.integers(1, 12))
            match rng.integers(5):
                case 0 | 1:
                    new = random_streams(rng, len(slots), int(rng.choice([20, 3000, 30_000])))
                    try:
                        heap.put(slots, Segments.of(new))
                        model.update(zip(slots.tolist(), new, strict=True))
                    except HeapFull:
                        assert max_bytes is not None
                case 2:
                    heap.free(slots)
                    for slot in slots.tolist():
                        model.pop(slot, None)
                case 3:
                    heap.compact()
                case 4:
                    held = rng.permutation(np.array(sorted(model), np.int64))[:10]
                    reader.read(held, [model[slot] for slot in held.tolist()])
    with streams[0]():
        assert contents(heap) == model
    reader.check()
    assert heap.stats().live_bytes == sum(map(len, model.values()))


def test_what_is_freed_while_kernels_read_it_stays_until_they_have(device):
    heap = heap_on(device)
    reader = Reader(heap)
    one, other = on_new_streams(device, 2)
    with one():
        heap.put(range(100), Segments.of([bytes([i]) * 1000 for i in range(100)]))
    with other():
        reader.read(np.arange(100), [bytes([i]) * 1000 for i in range(100)])
    with one():
        heap.free(range(100))
        heap.compact()
        assert heap.stats().reserved_bytes == 0
        for value in range(5):
            heap.put(range(100), Segments.of([bytes([value]) * 1000] * 100))
    reader.check()


@KINDS
@pytest.mark.parametrize("by_kernel", [False, True])
def test_streams_on_the_device_are_put_without_the_host(device, kind, by_kernel):
    heap = heap_on(device, kind)
    streams = [b"first", b"second", b"", b"fourth" * 1000]
    lengths = np.array([len(stream) for stream in streams])
    one, other = on_new_streams(device, 2)
    with one():
        there = device.upload(np.frombuffer(b"".join(streams), np.uint8))
        begins = np.uint64(device.address(there)) + (np.cumsum(lengths) - lengths).astype(np.uint64)
        heap.put([3, 0, 9, 3], PlacedStreams(begins, lengths, there))
        del there
    with other():
        if by_kernel:
            reader = Reader(heap)
            reader.read(np.array([3, 0, 9]), [b"fourth" * 1000, b"second", b""])
            reader.check()
        assert contents(heap) == {0: b"second", 9: b"", 3: b"fourth" * 1000}


def test_a_put_is_one_copy_and_no_launch(device, monkeypatch):
    heap = heap_on(device)
    writes = []
    write = device.write
    monkeypatch.setattr(device, "write", lambda host, out: (writes.append(host.nbytes), write(host, out)))
    heap.put(range(100), Segments.of([bytes(i) for i in range(100)]))
    assert writes == [4950]
    assert getattr(device, "n_launches", 0) == 0


def test_a_slot_that_holds_nothing_is_an_empty_stream(device):
    heap = heap_on(device)
    heap.put([1, 2], Segments.of([b"abc", b""]))
    assert [stream.tobytes() for stream in heap.locate(np.array([0, 1, 2]))] == [b"", b"abc", b""]
    with pytest.raises(SlotError, match=r"^slot 0 holds nothing$"):
        heap.get([2, 0])


@KINDS
def test_a_large_heap_is_downloaded_in_pieces(device, kind):
    heap = heap_on(device, kind)
    streams = [np.random.default_rng(i).bytes(700_000) for i in range(15)]
    heap.put(range(15), Segments.of(streams))
    assert contents(heap) == dict(enumerate(streams))


def test_a_full_device_refuses_and_loses_nothing():
    device = SimulatedDevice(seed=1, capacity=1 << 20)
    heap, model = heap_on(device), {}
    while device.free > 20_000:
        model[len(model)] = bytes([len(model)]) * 20_000
        heap.put([len(model) - 1], Segments.of([model[len(model) - 1]]))
    n = len(model)
    text = r"^1500000 bytes do not fit: cuda:0 has [\d,]+ bytes free, [\d,]+ are asked for$"
    before = heap.stats()
    with pytest.raises(HeapFull, match=text):
        heap.put(range(100), Segments.of([bytes(15_000)] * 100))
    assert contents(heap) == model
    assert heap.stats() == before
    heap.free(range(0, n, 2))  # what is left can't be moved together
    model = {slot: stream for slot, stream in model.items() if slot % 2}
    with pytest.raises(HeapFull, match=r"bytes do not fit"):
        heap.compact()
    assert contents(heap) == model
    device.free += 1 << 20
    heap.compact()
    assert contents(heap) == model
    assert heap.stats().reserved_bytes < 1.5 * heap.stats().live_bytes


def test_an_upload_that_is_refused_changes_nothing(device, monkeypatch):
    def refuse(host, out):
        raise HeapFull("the host can't pin 3 more bytes")

    heap = heap_on(device)
    with monkeypatch.context() as patch:
        patch.setattr(device, "write", refuse)
        with pytest.raises(HeapFull, match=r"^the host can't pin 3 more bytes$"):
            heap.put([0], Segments.of([b"abc"]))
    assert contents(heap) == {}
    heap.put([0], Segments.of([b"def"]))
    assert contents(heap) == {0: b"def"}


def test_what_was_dropped_goes_back_when_the_device_has_come_so_far(device):
    if not isinstance(device, SimulatedDevice):
        pytest.skip("CuPy keeps the memory for what is allocated next")
    heap, free = heap_on(device), device.free
    heap.put(range(100), Segments.of([bytes(5000)] * 100))
    heap.free(range(100))
    heap.compact()
    assert device.free < free - 500_000
    device.synchronize()
    heap.put([0], Segments.of([b"abc"]))
    assert device.free == free - heap.stats().reserved_bytes


def test_what_was_dropped_is_waited_for_before_the_heap_is_full():
    device = SimulatedDevice(seed=1, capacity=100_000)
    heap = heap_on(device)
    for value in range(5):  # nothing of it is done before there is no other room
        heap.put([0], Segments.of([bytes([value]) * 60_000]))
        assert device.free < 60_000
        heap.free([0])
        heap.compact()
        assert device.free < 60_000
    heap.put([0], Segments.of([b"last" * 15_000]))
    assert contents(heap) == {0: b"last" * 15_000}


@KINDS
@pytest.mark.parametrize("rebuild", [lambda heap: pickle.loads(pickle.dumps(heap)), copy.deepcopy])
def test_a_rebuilt_heap_is_on_the_same_device(cuda, kind, rebuild):
    heap = SlotHeap(9, memory=CudaBackend().heap_memory(cuda, "device" if kind is DeviceHeapMemory else "pinned"))
    heap.put([3, 8], Segments.of([b"abc", b"d" * 5000]))
    rebuilt = rebuild(heap)
    heap.free([3, 8])
    assert type(rebuilt.memory) is kind
    assert rebuilt.memory is not heap.memory
    assert rebuilt.memory.device is heap.memory.device
    assert contents(rebuilt) == {3: b"abc", 8: b"d" * 5000}


def test_an_unknown_heap_is_refused():
    with pytest.raises(SpecError, match=r"^heap is 'device' or 'pinned', got 'host'$"):
        heap_memory("cuda", "host")
