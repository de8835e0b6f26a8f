"""The backend ``"cuda"`` of obscodec."""

from __future__ import annotations

from typing import Any

from obscodec import Backend, BackendUnavailable, Layout


class CudaBackend(Backend):
    """NVIDIA GPUs, through CuPy."""

    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        """See ``Backend.codec``."""
        raise BackendUnavailable(f"{device!r} can't be used yet")
