"""How much memory of a GPU compressed transitions take, as its driver reports it."""

from itertools import islice

import numpy as np
import torch
from gpu_readers import assign, compressed_arrays
from obscodec_cupy import BatchReader
from recorded_steps import read_steps, record

_PIECE = 512  # steps to assign at a time
_WARM = 2_000


def vram_per_transition(game: str, n: int, heap: str) -> float:
    """The growth of this process in GPU memory, in bytes for each of ``n`` transitions. Call it in a fresh process.

    Two smaller sets of arrays are filled and read first, so that kernels and other one-time memory do not count.
    """
    kept = [_fill(game, n, _WARM, heap) for _ in range(2)]
    before = _free_nbytes()
    kept.append(_fill(game, n, n, heap))
    return (before - _free_nbytes()) / n


def _fill(game: str, n_recorded: int, n: int, heap: str) -> object:
    """Arrays of ``n`` transitions, all of them uploaded to the GPU, and their reader."""
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
