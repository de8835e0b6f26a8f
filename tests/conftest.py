"""The GPU of the tests that need one: a simulated one, and a real one where `pytest -m gpu` runs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from cuda_on_cpu.fixtures import DEVICES, devices_end
from obscodec.stores import Store
from obscodec_cupy.device import opened
from simulated_tensors import DeviceOfTensors, simulate_tensors

__all__ = ["cuda", "devices_end", "no_host", "torch_device"]


@pytest.fixture(params=DEVICES)
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a device for ``device=``, of torch, too."""
    if request.param != "gpu":
        simulated = DeviceOfTensors(seed=1, eager=True)
        monkeypatch.setattr(opened, "device", lambda name: simulated)
        simulate_tensors(monkeypatch)
    return "cuda"


@pytest.fixture
def torch_device(cuda: str) -> torch.device:
    """Where tensors of torch are that are on the device ``cuda``."""
    return torch.device("cuda:0")


@pytest.fixture
def no_host(cuda: str) -> Callable[[], AbstractContextManager[None]]:
    """A context in which nothing is decoded on the CPU for the device ``cuda``, nor downloaded from it."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a batch visits the host")

    @contextmanager
    def refused() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "_read_via_host", refuse)
            patch.setattr(type(opened.device(cuda)), "download", refuse)
            yield

    return refused
