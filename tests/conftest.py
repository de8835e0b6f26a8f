"""The GPU of the tests that need one: a simulated one, and a real one where `pytest -m gpu` runs."""

import obscodec_cupy.backend
import pytest
import torch
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import cuda
from obscodec import Store

__all__ = ["cuda"]


@pytest.fixture
def torch_device(cuda: str) -> torch.device:
    """Where tensors of torch are that are on the device ``cuda``: those of the simulated one are on the CPU."""
    is_simulated = isinstance(obscodec_cupy.backend.device(cuda), SimulatedDevice)
    return torch.device("cpu" if is_simulated else "cuda:0")


@pytest.fixture
def no_host(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decoded on the CPU for the device ``cuda``, nor downloaded from it."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a batch visits the host")

    monkeypatch.setattr(Store, "read_on_cpu", refuse)
    monkeypatch.setattr(type(obscodec_cupy.backend.device(cuda)), "download", refuse)
