"""The current device of a thread is what it was, when another thread works on the same GPU meanwhile."""

from __future__ import annotations

import importlib
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from obscodec_cupy.device.device import Device

_CURRENT = threading.local()


class FakeDevice:
    """Remembers what was current as CuPy's does: in the object, whichever thread that is."""

    def __init__(self, number: int) -> None:
        self._number, self._before = number, list[int]()

    def __enter__(self) -> None:
        self._before.append(_CURRENT.number)
        _CURRENT.number = self._number

    def __exit__(self, *error: object) -> None:
        _CURRENT.number = self._before.pop()


def fake_cupy(meet: threading.Barrier) -> Any:
    def current_stream() -> Any:
        meet.wait(10)  # both threads are in the context now
        return SimpleNamespace(is_capturing=lambda: True)

    runtime = SimpleNamespace(deviceGetAttribute=lambda *of: 0, cudaDevAttrMaxSharedMemoryPerBlockOptin=0)
    return SimpleNamespace(cuda=SimpleNamespace(Device=FakeDevice, get_current_stream=current_stream, runtime=runtime))


def test_two_threads_with_other_current_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_cupy(threading.Barrier(2))
    monkeypatch.setattr(importlib, "import_module", lambda name: fake)
    device, found = Device(5), dict[int, list[int]]()

    def work(number: int) -> None:
        _CURRENT.number, found[number] = number, []
        for _ in range(50):
            device.mark()
            found[number].append(_CURRENT.number)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: [0] * 50, 1: [1] * 50}
