"""The backend ``"cuda"`` keeps the contract of a device; stores there that of a store, for tensors of the host."""

import pytest
from device_contract import DeviceContract
from obscodec import FrameStore, Layout
from obscodec.stores import Store
from obscodec.testing import StoreContract

SMALL = Layout((6, 5), "uint8")


@pytest.fixture(autouse=True)
def _simulated(cuda: str) -> None:
    """The name stands for the simulated device, or for a GPU."""


class TestCuda(DeviceContract):
    device = "cuda"


class TestStoreOfSingleFrames(StoreContract):
    def make(self) -> Store:
        return FrameStore(SMALL, codec="rle", block_frames=1, device="cuda")


class TestStoreOfCompressedPatches(StoreContract):
    def make(self) -> Store:
        return FrameStore(SMALL, codec="delta-rle|lz4", block_frames=4, device="cuda")


class TestFrameStore(StoreContract):
    def make(self) -> Store:
        return FrameStore(SMALL, block_frames=4, device="cuda", heap="pinned")
