"""The memories of a device keep the contract, however late the device works."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from obscodec.heap import HeapMemory
from obscodec.testing import HeapMemoryContract
from obscodec_cupy.backend import CudaBackend
from obscodec_cupy.device import opened
from obscodec_cupy.device.copies import move
from obscodec_cupy.device.device import Device


class CudaMemoryContract(HeapMemoryContract):
    heap: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _named(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opened, "device", lambda name: device)

    def make(self) -> HeapMemory[Any]:
        return CudaBackend().heap_memory("cuda", self.heap)

    def load(self, memory: HeapMemory[Any], address: int, nbytes: int) -> bytes:
        """What a kernel copies from there."""
        device = opened.device("cuda")
        out = device.empty((nbytes + 1,), np.uint8)
        with memory.order:
            to = np.array([device.address(out)], np.uint64)
            move(device, np.array([address], np.uint64), to, np.array([nbytes]))
            return device.download(out)[:nbytes].tobytes()


class TestDeviceHeapMemory(CudaMemoryContract):
    heap = "device"


class TestPinnedHeapMemory(CudaMemoryContract):
    heap = "pinned"
