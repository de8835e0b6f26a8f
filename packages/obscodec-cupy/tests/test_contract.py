"""The backend ``"cuda"`` keeps the contract of a device."""

from __future__ import annotations

import pytest
from obscodec.testing import DeviceContract


class TestCuda(DeviceContract):
    device = "cuda"

    @pytest.fixture(autouse=True)
    def _simulated(self, cuda: str) -> None:
        """The name stands for the simulated device, or for a GPU."""
