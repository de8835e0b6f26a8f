"""How much memory of the GPU a compressed transition takes, as its driver reports it."""

from typing import Any

import numpy as np
from obscodec_cupy import BatchReader

from gpu_parts.buffers import Transitions
from gpu_parts.frames import played
from gpu_parts.machine import Machine
from gpu_parts.record import Record


def run(machine: Machine, record: Record) -> None:
    """The growth while arrays are filled and read. Smaller ones come first: kernels and the like do not count."""
    sizes = machine.sizes
    name, frames = played(sizes.n // 5, tiny=sizes.tiny)
    small, large = (Transitions(frames, n, sizes.n_envs) for n in (min(2000, sizes.n), sizes.n))
    kept = [_read(machine, small, heap) for heap in ("device", "pinned") for _ in range(2)]
    for heap in ("device", "pinned"):
        before = machine.free_nbytes()
        kept.append(_read(machine, large, heap))
        nbytes = (before - machine.free_nbytes()) / (large.n_steps * large.n_envs)
        uncompressed = 2 * int(np.prod(large.shape))
        record.row(data=name, heap=heap, bytes_per_transition=round(nbytes, 1), uncompressed=uncompressed)


def _read(machine: Machine, transitions: Transitions, heap: str) -> Any:
    """Arrays, all of them uploaded to the GPU, and their reader."""
    arrays = transitions.compressed(heap)
    reader = BatchReader(arrays)
    reader.sync()
    outs = [machine.empty((1, *transitions.shape), np.uint8) for _ in arrays]
    reader.read(machine.upload(np.zeros(1, np.int64)), outs)
    return arrays, reader, outs
