"""Backends: what keeps and codes tensors in the memory of another device than the CPU, found by its entry point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from obscodec.errors import BackendUnavailable, SpecError
from obscodec.layout import Layout

ENTRY_POINT_GROUP = "obscodec.backends"
_INSTALL = {"cuda": "obscodec-cupy[cuda12]' or 'obscodec-cupy[cuda13]"}


class Backend(ABC):
    """One kind of device. A package offers a subclass as an entry point of ``obscodec.backends``."""

    @abstractmethod
    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        """A codec for batches in the memory of ``device``, such as ``"cuda"`` or ``"cuda:1"``.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
            SpecError: the spec is malformed, or no codec that this device has.
        """


@cache
def _made(kind: str) -> Backend:
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in found:
        if kind in _INSTALL:
            raise BackendUnavailable(
                f"device {kind!r} needs obscodec-cupy, which is not installed: pip install '{_INSTALL[kind]}', "
                "for the CUDA version of the driver"
            )
        raise SpecError(f"no backend is named {kind!r}, there are {', '.join(['cpu', *sorted(found)])}")
    made = found[kind].load()()
    assert isinstance(made, Backend)
    return made


def backend(device: str) -> Backend:
    """The backend of a device such as ``"cuda"`` or ``"cuda:1"``, not of the CPU.

    Raises:
        BackendUnavailable: the package that it needs is not installed.
        SpecError: there is no such kind of device.
    """
    return _made(device.partition(":")[0])
