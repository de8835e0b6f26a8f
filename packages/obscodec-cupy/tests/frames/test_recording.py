"""What is refused while a graph is recorded and after a fork, and that finalizers do not touch the device."""

import gc
import os
import signal
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from cuda_on_cpu.device import SimulatedDevice
from obscodec import BackendUnavailable, DTypeError, FrameStore, Layout, SpecError, TensorArray
from obscodec_cupy import BatchReader
from obscodec_cupy.device import opened

LAYOUT = Layout((6, 5), np.uint8)
TENSORS = np.random.default_rng(0).integers(256, size=(40, *LAYOUT.shape), dtype=np.uint8)


@pytest.fixture
def device(simulated: Callable[..., SimulatedDevice]) -> SimulatedDevice:
    return simulated(seed=3)


def filled(heap: str = "device") -> tuple[TensorArray, BatchReader]:
    array = TensorArray.zeros((40,), FrameStore(LAYOUT, device="cuda", heap=heap))
    array[:] = TENSORS
    return array, BatchReader([array])


def test_a_sync_is_refused_if_something_changed(device):
    array, reader = filled()
    reader.sync()
    places, out = device.upload(np.arange(40)), device.empty(TENSORS.shape, np.uint8)
    device.recording = True
    reader.sync()  # nothing has changed
    reader.read(places, [out])
    array[3] = TENSORS[7]
    text = r"^a graph can't record a copy from the host: sync or upload before the recording, and before each replay$"
    for call in (reader.sync, lambda: array.store.read_into(np.zeros(1, np.int64), out[:1])):
        with pytest.raises(SpecError, match=text):
            call()
    device.recording = False
    reader.sync()
    reader.read(places, [out])
    np.testing.assert_array_equal(device.download(out), np.concatenate([TENSORS[:3], TENSORS[7:8], TENSORS[4:]]))


@pytest.mark.parametrize("heap", ["device", "pinned"])
@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_what_is_deleted_while_a_graph_is_recorded_stays_until_it_was_read(device, in_a_cycle, heap, monkeypatch):
    array, reader = filled(heap)
    reader.sync()
    out, ids = device.empty(TENSORS.shape, np.uint8), array.ids.astype(np.int64)
    reader.read(device.upload(np.arange(40)), [out])
    other = device.empty(TENSORS.shape, np.uint8)
    array.store.read_into(ids, other)
    with monkeypatch.context() as patch:
        for name in ("mark", "keep", "synchronize", "pinned", "empty", "launch"):
            patch.setattr(device, name, None)  # a finalizer that calls it warns, which is an error
        if in_a_cycle:
            array.cycle = array, reader
        del array, reader
        gc.collect()
    device.keep(None)
    for read in (out, other):
        np.testing.assert_array_equal(device.download(read), TENSORS)
    device.keep(None)
    device.synchronize()
    del out, other, read
    gc.collect()
    assert device.free == 1 << 40


def test_another_process_is_refused_before_the_device_is_touched(device, monkeypatch):
    array, reader = filled()
    reader.sync()
    places, out = device.upload(np.arange(40)), device.empty(TENSORS.shape, np.uint8)
    array[3] = TENSORS[7]
    process = os.getpid()
    touched = ["on_stream_of", "key", "view", "mark", "launch", "staging", "order"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: process + 1)
        for name in touched:
            patch.setattr(device, name, None)
        for call in (
            reader.sync,
            lambda: reader.read(places, [out]),
            lambda: array.store.read_into(np.zeros(40, np.int64), out),
        ):
            with pytest.raises(
                BackendUnavailable, match=r"^a forked process can't use cuda:0 as the process before it"
            ):
                call()


@pytest.mark.needs("fork")
def test_a_forked_process_frees_nothing_of_the_process_before_it(device):
    array, reader = filled()
    reader.sync()
    out = device.empty(TENSORS.shape, np.uint8)
    reader.read(device.upload(np.arange(40)), [out])
    device.synchronize()
    device.keep(None)
    n_free, copies = device.free, [ids.copy for ids in reader._ids]
    events = weakref.WeakSet([array.store.reader.order.done()])
    child = os.fork()
    if child == 0:
        is_held = False
        signal.alarm(20)
        try:
            reader._known.clear()  # views of arrays of the caller
            del array, reader, copies
            gc.collect()
            is_held = device.free == n_free and len(events) == 1
        finally:
            os._exit(0 if is_held else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_device_is_not_opened_in_a_forked_process(monkeypatch):
    monkeypatch.setattr(opened, "_USERS", {os.getpid() + 1})
    with pytest.raises(BackendUnavailable, match=r"^a forked process can't use cuda as the process before it does: "):
        opened.device("cuda")


def test_arrays_that_are_read_only_are_refused(device):
    array, reader = filled()
    reader.sync()
    out = device.empty(TENSORS.shape, np.uint8)
    out.memory.flags.writeable = False
    with pytest.raises(DTypeError, match=r"^out is a read-only SimulatedArray, pass one that can be written$"):
        reader.read(device.upload(np.arange(40)), [out])
    with pytest.raises(DTypeError, match=r"^out is a read-only SimulatedArray, pass one that can be written$"):
        array.store.read_into(np.zeros(40, np.int64), out)
