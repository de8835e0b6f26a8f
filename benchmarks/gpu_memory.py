"""What compressed transitions take of the memory of a GPU, as its driver tells it."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch
from gpu_readers import assign, compressed_arrays
from obscodec_cupy import BatchReader
from recorded_steps import read_steps, record

_PIECE = 512  # steps to assign at a time
_WARM = 2_000


def vram_per_transition(game: str, n: int, heap: str) -> float:
    """Bytes of GPU memory that this process takes more for each of ``n`` transitions; for a process of its own.

    All that is needed once, kernels included, is there before: two smaller sets of arrays were filled and read.
    """
    kept = [_fill(game, n, _WARM, heap) for _ in range(2)]
    before = _free_nbytes()
    kept.append(_fill(game, n, n, heap))
    return (before - _free_nbytes()) / n


def _fill(game: str, n_recorded: int, n: int, heap: str) -> object:
    """Arrays of ``n`` transitions, all of them known to the GPU, and what reads them."""
    arrays = compressed_arrays(n, heap)
    steps = islice(read_steps(record(game, 1, n_recorded)), n)
    first = 0
    while chunk := [(step.obs.copy(), step.next_obs.copy()) for step in islice(steps, _PIECE)]:
        assign(arrays, first, [np.concatenate(column) for column in zip(*chunk, strict=True)])
        first += len(chunk)
    reader = BatchReader(arrays)
    reader.sync()
    places = torch.zeros(1, dtype=torch.int64, device="cuda")
    reader.read(places, [torch.empty((1, *array.layout.shape), dtype=torch.uint8, device="cuda") for array in arrays])
    return arrays, reader


def _free_nbytes() -> int:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]
