"""The GPU of the tests that need one: a simulated one, and a real one where `pytest -m gpu` runs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import cuda
from obscodec.stores import Store
from obscodec_cupy.device import opened

__all__ = ["cuda"]


@pytest.fixture
def torch_device(cuda: str) -> torch.device:
    """Where tensors of torch are that are on the device ``cuda``: those of the simulated one are on the CPU."""
    is_simulated = isinstance(opened.device(cuda), SimulatedDevice)
    return torch.device("cpu" if is_simulated else "cuda:0")


@pytest.fixture
def no_host(cuda: str) -> Callable[[], AbstractContextManager[None]]:
    """A context in which nothing is decoded on the CPU for the device ``cuda``, nor downloaded from it."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a batch visits the host")

    @contextmanager
    def refused() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "read_via_host", refuse)
            patch.setattr(type(opened.device(cuda)), "download", refuse)
            yield

    return refused
