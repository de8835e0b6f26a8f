"""What goes while another stream still works with its memory, which the stream that it came from uses again at once."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import FrameStore, Layout, TensorArray, codec
from obscodec_cupy import BatchReader
from obscodec_cupy.codecs.codec import CudaCodec
from obscodec_cupy.device.array import DeviceArray

LAYOUT = Layout((4, 40, 50), np.uint8)
TENSORS = np.random.default_rng(0).integers(256, size=(8, *LAYOUT.shape), dtype=np.uint8)
On = Callable[[], AbstractContextManager[object]]
SEEDS = range(1, 4)


@pytest.fixture
def late(simulated: Callable[..., SimulatedDevice]) -> Callable[[int], tuple[SimulatedDevice, On, On]]:
    """A device of a seed, and two streams of it."""
    return lambda seed: ((device := simulated(seed=seed)), *on_new_streams(device, 2))


class Cycle:
    """Holds things together with itself, until the garbage collector finds that nobody holds this."""

    def __init__(self, *things: object) -> None:
        self.things = self, *things


GOING = [tuple, Cycle]  # at once, or by the garbage collector, which has finalized all that the thing owns


def check(device: SimulatedDevice, where_it_was: On, where_it_is_read: On, out: DeviceArray) -> None:
    gc.collect()
    with where_it_was():
        device.synchronize()
    with where_it_is_read():
        np.testing.assert_array_equal(device.download(out), TENSORS)
    device.keep(None)  # asks the events of all that was held whether it can go


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("heap", ["device", "pinned"])
@pytest.mark.parametrize("spec", ["rle", "delta-rle", "raw"])
@pytest.mark.parametrize("going", GOING)
def test_a_frame_store(late, going, spec, heap, seed):
    device, ours, theirs = late(seed)
    with ours():
        store = FrameStore(LAYOUT, codec=spec, block_frames=1, device="cuda", heap=heap)
        ids = store.append(TENSORS)
    with theirs():
        out = device.empty(TENSORS.shape, np.uint8)
        store.read_into(ids, out)
    going([store])
    del store
    check(device, ours, theirs, out)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("going", GOING)
def test_a_codec(late, going, seed):
    device, ours, theirs = late(seed)
    with ours():
        made = CudaCodec(codec("delta-rle", LAYOUT), device)
    with theirs():
        streams, out = made.encode_batch(device.upload(TENSORS)), device.empty(TENSORS.shape, np.uint8)
        status = made.decode_batch(streams, out)
    going([made, streams, status])
    del made, streams, status
    check(device, ours, theirs, out)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
@pytest.mark.parametrize("going", GOING)
def test_streams_that_another_stream_decodes(late, going, spec, seed):
    device, ours, theirs = late(seed)
    made = CudaCodec(codec(spec, LAYOUT), device)
    with ours():
        streams = made.encode_batch(device.upload(TENSORS))
        device.synchronize()
    with theirs():
        out = device.empty(TENSORS.shape, np.uint8)
        made.decode_batch(streams, out)
    going([streams])
    del streams
    check(device, ours, theirs, out)


def test_streams_are_downloaded_when_another_stream_has_written_them(late):
    device, ours, theirs = late(1)
    made = CudaCodec(codec("rle", LAYOUT), device)
    with ours():
        streams = made.encode_batch(device.upload(TENSORS))
    with theirs():
        found = list(map(bytes, streams.download()))
    rows = LAYOUT.rows(TENSORS)
    assert found == list(map(bytes, made.cpu.encode_batch(rows, np.empty(len(rows) * made.bound(), np.uint8))))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("goes_with_its_array", [False, True])
@pytest.mark.parametrize("going", GOING)
def test_a_batch_reader(late, going, goes_with_its_array, seed):
    device, ours, theirs = late(seed)
    with ours():
        array = TensorArray.zeros((8,), FrameStore(LAYOUT, device="cuda"))
        array[:] = TENSORS
        reader = BatchReader([array])
        reader.sync()
    with theirs():
        out = device.empty(TENSORS.shape, np.uint8)
        reader.read(device.upload(np.arange(8)), [out])
    going([reader, array] if goes_with_its_array else [reader])
    del reader
    if goes_with_its_array:
        del array
    check(device, ours, theirs, out)


@pytest.mark.parametrize("seed", SEEDS)
def test_arrays_that_go_when_they_are_appended(late, seed):
    device, ours, theirs = late(seed)
    on_cpu, store = FrameStore(LAYOUT), FrameStore(LAYOUT, device="cuda")
    for n_streams, on in [(1, ours), (2, theirs), (8, ours)]:
        with on():
            ids = store.append(device.upload(TENSORS), np.arange(8) % n_streams)
        np.testing.assert_array_equal(ids, on_cpu.append(TENSORS, np.arange(8) % n_streams))
        with ours():
            device.synchronize()
    np.testing.assert_array_equal(store.read(ids), TENSORS)
