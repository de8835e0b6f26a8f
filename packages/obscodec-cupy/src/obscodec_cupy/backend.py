"""The backend ``"cuda"`` of obscodec."""

from __future__ import annotations

from typing import Any

from obscodec import Backend, BackendUnavailable, HeapMemory, Layout

from obscodec_cupy.device import Device


def device(name: str) -> Device:
    """The device ``"cuda"``, ``"cuda:1"`` and so on; the same one at every call.

    Raises:
        BackendUnavailable: it can't be used; the text names what is missing.
    """
    raise BackendUnavailable(f"{name!r} can't be used yet")


class CudaBackend(Backend):
    """NVIDIA GPUs, through CuPy."""

    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        """See ``Backend.codec``."""
        raise BackendUnavailable(f"{device!r} can't be used yet")

    def empty(self, device: str, n: int, layout: Layout) -> Any:
        """See ``Backend.empty``."""
        raise BackendUnavailable(f"{device!r} can't be used yet")

    def check(self, device: str, *arrays: object) -> None:
        """See ``Backend.check``."""
        raise BackendUnavailable(f"{device!r} can't be used yet")

    def heap_memory(self, device: str, heap: str) -> HeapMemory[Any]:
        """See ``Backend.heap_memory``."""
        raise BackendUnavailable(f"{device!r} can't be used yet")
