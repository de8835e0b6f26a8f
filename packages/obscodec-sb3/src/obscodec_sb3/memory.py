"""The memory that batches are decoded into: one for all buffers of the process, pinned if samples go to a GPU."""

from __future__ import annotations

from functools import cache

import numpy as np
import obscodec
import torch as th


@cache
def _pinned_memory() -> obscodec.BatchMemory:
    return obscodec.BatchMemory(_pinned)


def batch_memory(device: th.device) -> obscodec.BatchMemory:
    """Where to decode batches that are for ``device``."""
    return _pinned_memory() if device.type == "cuda" else obscodec.BATCH_MEMORY


def _pinned(nbytes: int) -> np.ndarray:
    return th.empty(nbytes, dtype=th.uint8, pin_memory=True).numpy()
