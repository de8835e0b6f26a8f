"""The fixtures for tests that run on the simulated GPU, and on a real one where there is one."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
from obscodec import HeapFull
from obscodec_cupy.device import opened
from obscodec_cupy.device.device import Device

from cuda_on_cpu.device import SimulatedDevice

DEVICES = ["simulated", pytest.param("gpu", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def devices_end() -> Iterator[None]:
    """Simulated devices go with the test that made them."""
    yield
    for device in [*SimulatedDevice.made]:
        device.end()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    """A device to call directly; on the simulated one, work is done late."""
    if request.param == "gpu":
        return opened.device("cuda")
    return SimulatedDevice(seed=1)


@pytest.fixture(params=DEVICES)
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a device for ``device=``; on the simulated one, tensors of torch are those of the CPU."""
    if request.param != "gpu":
        simulated = SimulatedDevice(seed=1, eager=True)
        monkeypatch.setattr(opened, "device", lambda name: simulated)
    return "cuda"


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimulatedDevice]:
    """Makes a simulated device, which ``device="cuda"`` stands for then."""

    def make(**options: Any) -> SimulatedDevice:
        made = SimulatedDevice(**options)
        monkeypatch.setattr(opened, "device", lambda name: made)
        return made

    return make


def on_new_streams(device: Device, n: int) -> list[Callable[[], AbstractContextManager[object]]]:
    """Streams, each as a function whose context makes it the current one."""
    if isinstance(device, SimulatedDevice):
        return [partial(device.on_stream, device.streams.new()) for _ in range(n)]
    import cupy

    return [partial(_same, cupy.cuda.Stream(non_blocking=True)) for _ in range(n)]


def _same(stream: AbstractContextManager[object]) -> AbstractContextManager[object]:
    return stream


@contextmanager
def full_after(device: SimulatedDevice, calls: int) -> Iterator[None]:
    """Have the device allocate so often, and no more."""
    left = itertools.count(calls, -1)

    def fails(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*of: Any) -> Any:
            if next(left) <= 0:
                raise HeapFull("the device is full")
            return method(*of)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("empty", "staging"):
            patch.setattr(device, name, fails(getattr(device, name)))
        yield
