"""Stores on a device keep the contract of a store, for tensors of the host."""

from __future__ import annotations

import pytest
from obscodec import FrameStore, Layout
from obscodec.stores import Store
from obscodec.testing import StoreContract

SMALL = Layout((6, 5), "uint8")


class CudaContract(StoreContract):
    @pytest.fixture(autouse=True)
    def _simulated(self, cuda: str) -> None:
        """The name stands for the simulated device, or for a GPU."""


class TestStoreOfSingleFrames(CudaContract):
    def make(self) -> Store:
        return FrameStore(SMALL, codec="rle", block_frames=1, device="cuda")


class TestStoreOfCompressedPatches(CudaContract):
    def make(self) -> Store:
        return FrameStore(SMALL, codec="delta-rle|lz4", block_frames=4, device="cuda")


class TestFrameStore(CudaContract):
    def make(self) -> Store:
        return FrameStore(SMALL, block_frames=4, device="cuda", heap="pinned")
