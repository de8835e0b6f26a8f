"""A device whose memory is full from some moment on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cuda_on_cpu.device import SimulatedDevice
from obscodec import HeapFull


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
