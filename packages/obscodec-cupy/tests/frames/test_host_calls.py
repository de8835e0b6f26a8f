"""How many Python functions a step of training calls on the host, around kernels of some microseconds."""

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
from cuda_on_cpu.device import SimulatedDevice
from obscodec import AutoStore, FrameStack, Layout, TensorArray
from obscodec_cupy import BatchReader

LAYOUT = Layout((4, 12, 10), np.uint8)


def calls(work: Callable[[], object]) -> list[str]:
    """The Python functions that are called, without those within a method of the simulated GPU."""
    called: list[str] = []
    depth = 0  # within the simulated GPU, or what notes that memory of it is freed

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        if event == "call":
            name, path = frame.f_code.co_qualname, frame.f_code.co_filename
            if not depth and "weakref" not in path and name != "SimulatedMark.done":  # in C, of CuPy
                called.append(name)
            depth += bool(depth or "cuda_on_cpu" in path or "weakref" in path)
        elif event == "return" and depth:
            depth -= 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called


@pytest.fixture
def device(simulated: Callable[..., SimulatedDevice]) -> SimulatedDevice:
    return simulated(eager=True)


def test_a_step_calls_few_functions(device: SimulatedDevice) -> None:
    store = AutoStore(LAYOUT, codec="delta-rle", frame_stack=FrameStack(4), device="cuda")
    arrays = [TensorArray.zeros((400, 1), store) for _ in range(2)]
    frames = np.zeros((320, 12, 10), np.uint8)  # no two are alike, so that no stack has to be listed
    frames[:, 3, 4], frames[:, 7, 8] = np.divmod(np.arange(320), 200)

    def step(t: int) -> None:
        for k, array in enumerate(arrays):
            array[t] = frames[t + k : t + k + 4][None]

    for t in range(300):
        step(t)
    reader = BatchReader(arrays)
    reader.sync()
    assert len(calls(reader.sync)) <= 15
    n_calls = []
    for t in range(300, 307):  # one block is full
        step(t)
        n_calls.append(len(calls(reader.sync)))
    *most, for_a_full_block = sorted(n_calls)
    assert max(most) <= 60
    assert for_a_full_block <= 165
    places = device.upload(np.arange(4))
    outs = [device.empty((4, *LAYOUT.shape), np.uint8) for _ in range(2)]
    reader.read(places, outs)
    before = device.n_launches
    assert len(calls(lambda: reader.read(places, outs))) <= 30
    assert device.n_launches == before + 1
    for array, out in zip(arrays, outs, strict=True):
        np.testing.assert_array_equal(device.download(out), array[np.arange(4), 0])
