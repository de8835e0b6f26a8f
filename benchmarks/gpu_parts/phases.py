"""Where the gather spends its time: each thread block notes its multiprocessor, and the clock behind each barrier."""

import re
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from obscodec_cupy import BatchReader
from obscodec_cupy.device import device as devices
from obscodec_cupy.device.sources import OPTIONS, source

from gpu_parts.buffers import Transitions
from gpu_parts.frames import played
from gpu_parts.machine import Array, Machine
from gpu_parts.record import Record

_READS = 8
_MOST_BLOCKS, _MOST_STAMPS = 1024, 100
_FILES = {"g": "gather.cu", "j": "jump.cuh", "p": "patches.cuh", "l": "lz4.cuh", "r": "rle.cuh"}
_BODY = re.compile(r"\bgather\([^{]*\{\n")
_STAMPS = f"""
extern "C" {{ __device__ unsigned long long stamps[{_MOST_BLOCKS}][{2 + 2 * _MOST_STAMPS}]; }}
__device__ __forceinline__ void stamp(unsigned place) {{
    if (threadIdx.x || blockIdx.x >= {_MOST_BLOCKS}) return;
    unsigned long long* mine = stamps[blockIdx.x];
    if (mine[1] < {_MOST_STAMPS}) {{
        mine[2 + 2 * mine[1]] = place;
        mine[3 + 2 * mine[1]++] = clock64();
    }}
}}
__device__ __forceinline__ void begin_stamps() {{
    if (threadIdx.x || blockIdx.x >= {_MOST_BLOCKS}) return;
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    stamps[blockIdx.x][0] = sm, stamps[blockIdx.x][1] = 0;
    stamp(0);
}}
__device__ __forceinline__ int stamped(int x, unsigned place) {{ return stamp(place), x; }}
#define __syncthreads() (__syncthreads(), stamp(__FILE__[0] << 16 | __LINE__))
#define __syncthreads_or(x) stamped(__syncthreads_or(x), __FILE__[0] << 16 | __LINE__)
"""


def run(machine: Machine, record: Record) -> None:
    """Some reads of 256 samples and one of 32 from a heap in device memory."""
    if machine.sizes.tiny:
        record.left_out("all stamps", "the simulated GPU has no clock")
        return
    import cupy

    modules = []

    @cache
    def module(name: str, defines: tuple[tuple[str, int], ...]) -> Any:
        text = source(name, defines)
        made = cupy.RawModule(code=with_stamps(text) if name == "gather.cu" else text, options=OPTIONS)
        if name == "gather.cu":
            modules.append(made)
        return made

    devices._module = module
    sizes, rng = machine.sizes, np.random.default_rng(0)
    name, frames = played(sizes.n // 5, tiny=False)
    transitions = Transitions(frames, sizes.n, sizes.n_envs)
    reader = BatchReader(transitions.compressed("device"))
    reader.sync()
    for batch in (sizes.batch, 32):
        modules.clear()
        outs = [machine.empty((batch, *transitions.shape), np.uint8) for _ in range(2)]
        batches = []
        for _ in range(_READS):
            places = rng.integers(0, transitions.n_steps * transitions.n_envs, batch)
            reader.read(machine.upload(places), outs)
            machine.synchronize()
            (made,) = modules
            shape = _MOST_BLOCKS, 2 + 2 * _MOST_STAMPS
            batches.append(machine.download(cupy.ndarray(shape, np.uint64, made.get_global("stamps"))))
        reader.check()
        for row in rows(batches[1:]):  # the first one waits for its code
            record.row(data=name, batch=batch, reads=_READS - 1, **row)


def with_stamps(text: str) -> str:
    """The text of ``gather.cu`` with a note of the clock at its begin and behind each barrier.

    Raises:
        ValueError: the begin is not found.
    """
    text, n = _BODY.subn(lambda found: found[0].removesuffix("\n") + " begin_stamps();\n", text)
    if n != 1:
        raise ValueError(f"gather.cu has {n} kernels of this name")
    return _STAMPS + text


class _Block(NamedTuple):
    """A thread block: its multiprocessor, and where it was at which cycle."""

    sm: int
    places: list[str]
    clocks: Array  # i64[places]


def rows(batches: list[Array]) -> list[dict[str, Any]]:
    """What the stamps of some launches say.

    Args:
        batches: ``u64[thread blocks, 2 + 2 * stamps]`` of each launch, see the kernel.

    Returns:
        For each place in the order of the cycles, how many thread blocks came by, how often each, and when at first,
        in cycles since its begin. Then, for multiprocessors of so many thread blocks, how many there were and the
        cycles from the first begin to the last end.
    """
    visits: dict[str, list[list[int]]] = {}  # of each place, the cycles of each thread block that came by
    spans: dict[int, list[int]] = {}
    for batch in batches:
        of_sms: dict[int, list[_Block]] = {}
        for block in (_block(row) for row in batch if row[1]):
            of_sms.setdefault(block.sm, []).append(block)
            own: dict[str, list[int]] = {}
            for place, clock in zip(block.places, block.clocks.tolist(), strict=True):
                own.setdefault(place, []).append(clock - int(block.clocks[0]))
            for place, cycles in own.items():
                visits.setdefault(place, []).append(cycles)
        for some in of_sms.values():
            begin, end = min(block.clocks[0] for block in some), max(block.clocks[-1] for block in some)
            spans.setdefault(len(some), []).append(int(end - begin))
    places = []
    for place, of_blocks in visits.items():
        each = round(sum(map(len, of_blocks)) / len(of_blocks), 2)
        first = _cycles([cycles[0] for cycles in of_blocks])
        places.append({"place": place, "thread_blocks": len(of_blocks), "visits_each": each} | first)
    places.sort(key=itemgetter("median_cycles"))
    return places + [
        {"thread_blocks_of_sm": n, "multiprocessors": len(times)} | _cycles(times) for n, times in sorted(spans.items())
    ]


def _name(place: int) -> str:
    """The file and the line of a barrier; of the file, its first letter is known."""
    return f"{_FILES.get(chr(place >> 16), chr(place >> 16))}:{place & 0xFFFF}" if place else "begin"


def _block(row: Array) -> _Block:
    stamps = row[2 : 2 + 2 * int(row[1])].reshape(-1, 2).astype(np.int64)
    names = [_name(place) for place in stamps[:, 0].tolist()]
    return _Block(int(row[0]), names, stamps[:, 1])


def _cycles(times: list[int]) -> dict[str, Any]:
    return {
        "median_cycles": int(np.median(times)),
        "p90_cycles": int(np.percentile(times, 90)),
        "most_cycles": max(times),
    }
