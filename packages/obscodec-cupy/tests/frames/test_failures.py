"""What is left after a sync that failed, and what goes with a store."""

import copy
import gc

import numpy as np
import pytest
from cuda_on_cpu.fixtures import full_after
from obscodec import FrameStore, HeapFull, Layout, ShapeError, SpecError, TensorArray
from obscodec.frames.sealer import Sealer
from obscodec_cupy import BatchReader
from stores_in_pairs import read

LAYOUT = Layout((40, 50), np.uint8)
TENSORS = np.random.default_rng(0).integers(256, size=(400, *LAYOUT.shape), dtype=np.uint8)


@pytest.mark.parametrize("calls", range(8))
def test_nothing_is_read_before_a_sync_has_succeeded(simulated, calls):
    device = simulated(seed=1)
    array = TensorArray.zeros((8,), FrameStore(LAYOUT, device="cuda"))
    array[:] = TENSORS[:8]
    reader, places, out = BatchReader([array]), device.upload(np.arange(8)), device.empty((8, *LAYOUT.shape), np.uint8)
    with full_after(device, calls), pytest.raises(HeapFull):
        reader.sync()
    with pytest.raises(SpecError, match=r"^the device knows nothing of the arrays yet: call sync\(\) first$"):
        reader.read(places, [out])
    reader.sync()
    reader.read(places, [out])
    np.testing.assert_array_equal(device.download(out), TENSORS[:8])


def test_what_was_replaced_makes_room(simulated):
    simulated(seed=1, capacity=1_600_000)
    store = FrameStore(LAYOUT, codec="raw", block_frames=4, recent=1, device="cuda")
    ids = store.append(TENSORS[:200])
    np.testing.assert_array_equal(read(store, ids), TENSORS[:200])
    store.release(ids)
    ids = store.append(TENSORS[200:])  # which does not fit beside what was there
    np.testing.assert_array_equal(read(store, ids), TENSORS[200:])


def test_a_block_that_is_stored_and_open_is_written_once(simulated, monkeypatch):
    simulated(seed=1)
    store = FrameStore(LAYOUT, block_frames=4, device="cuda", max_bytes=1 << 20)
    ids = store.append(TENSORS[:4])

    alone = Sealer.alone

    def interrupted(*of):
        alone(*of)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Sealer, "alone", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append(TENSORS[4:5])
    assert store.log.heap.holds(store.log.open.blocks).all()
    np.testing.assert_array_equal(read(store, ids), TENSORS[:4])


@pytest.mark.parametrize("shallow", [False, True])
def test_the_memory_of_a_store_goes_with_it(simulated, shallow):
    device = simulated(seed=1)
    gc.collect()
    gc.disable()  # what only the garbage collector gives back is given back when it runs, or never
    try:
        store = FrameStore(LAYOUT, device="cuda")
        ids = store.append(TENSORS[:40])
        other = copy.copy(store) if shallow else store
        np.testing.assert_array_equal(read(other, ids), TENSORS[:40])
        before, free = device.free, 1 << 40
        del other
        if not shallow:
            del store
        device.synchronize()
        device.keep(None)
        device.synchronize()
        device.keep(None)
        assert before < free
        assert device.free == (free if not shallow else pytest.approx(free, abs=300))  # the header of the other one
    finally:
        gc.enable()


def test_another_number_of_arrays_is_not_taken_for_known_ones(simulated):
    device = simulated(seed=1)
    store = FrameStore(LAYOUT, device="cuda")
    arrays = [TensorArray.zeros((4,), store) for _ in range(2)]
    for array in arrays:
        array[:] = TENSORS[:4]
    reader = BatchReader(arrays)
    reader.sync()
    places, outs = device.upload(np.arange(4)), [device.empty((4, *LAYOUT.shape), np.uint8) for _ in range(2)]
    reader.read(places, outs)
    with pytest.raises(ShapeError, match=r"^outs must have 2 arrays, got 1$"):
        reader.read(places, outs[:1], outs[1:])
