"""The memory of the host keeps the contract: these are the laws of the room."""

from __future__ import annotations

import ctypes
from typing import Any

from obscodec.heap import HOST, HeapMemory
from obscodec.testing import HeapMemoryContract


class TestHostMemory(HeapMemoryContract):
    def make(self) -> HeapMemory[Any]:
        return HOST

    def load(self, memory: HeapMemory[Any], address: int, nbytes: int) -> bytes:
        return ctypes.string_at(address, nbytes)
