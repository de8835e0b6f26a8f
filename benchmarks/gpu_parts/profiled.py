"""Some reads without a graph, for a profiler to look at."""

import numpy as np
from obscodec_cupy import BatchReader

from gpu_parts.buffers import Transitions
from gpu_parts.frames import played
from gpu_parts.machine import Machine
from gpu_parts.record import Record

_READS = 2  # of each reader: the first one finds nothing in the caches


def run(machine: Machine, record: Record) -> None:
    """Read bytes from both heaps, then float32, then shifted bytes."""
    sizes, rng = machine.sizes, np.random.default_rng(0)
    name, frames = played(sizes.n // 5, tiny=sizes.tiny)
    transitions = Transitions(frames, sizes.n, sizes.n_envs)
    device, pinned = transitions.compressed("device"), transitions.compressed("pinned")
    readers = {
        "device heap, uint8": (BatchReader(device), np.uint8),
        "pinned heap, uint8": (BatchReader(pinned), np.uint8),
        "device heap, float32": (BatchReader(device, dtype="float32"), np.float32),
        "device heap, uint8 shifted": (BatchReader(device, shifted_axes=(1, 2)), np.uint8),
    }
    shifts = [machine.upload(np.ones((sizes.batch, 2), np.int32)) for _ in range(2)]
    for way, (reader, dtype) in readers.items():
        outs = [machine.empty((sizes.batch, *transitions.shape), dtype) for _ in range(2)]
        reader.sync()
        for _ in range(_READS):
            places = rng.integers(0, transitions.n_steps * transitions.n_envs, sizes.batch)
            reader.read(machine.upload(places), outs, shifts if "shifted" in way else None)
        machine.synchronize()
        reader.check()
        record.row(data=name, way=way, launches=_READS)
