"""How long single calls of ``SlotHeap.put`` take while a heap grows, and while its slots are overwritten.

A heap cleans up inside of ``put``, one chunk at a time; the longest call is the pause that an environment loop notices.
On a busy machine, look at the longest processor time: the clock also counts the time of other programs.
Run it with ``uv run benchmarks/heap_pauses.py``; it takes a minute.
"""

import time

import numpy as np
import numpy.typing as npt
from obscodec.heap import SlotHeap
from obscodec.segments import Segments


def pauses_us(
    heap: SlotHeap, slots: npt.NDArray[np.int64], mean_nbytes: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Microseconds of each put of one stream, of random length: by the clock, and of processor time; ``f64[2, n]``."""
    content = np.frombuffer(rng.bytes(2 * mean_nbytes), np.uint8)
    lengths = rng.integers(1, 2 * mean_nbytes, size=len(slots))
    times_us = np.empty((2, len(slots)))
    for i in range(len(slots)):
        stream = Segments.packed(content, lengths[i : i + 1])
        start = time.perf_counter(), time.thread_time()
        heap.put(slots[i : i + 1], stream)
        times_us[:, i] = (time.perf_counter() - start[0]) * 1e6, (time.thread_time() - start[1]) * 1e6
    return times_us


def main() -> None:
    """Print a table for streams of several sizes: first each slot is put once, then random slots again and again."""
    rng = np.random.default_rng(0)
    times = f"{'median us':>10} {'p99 us':>8} {'max us':>8} {'max cpu us':>11}"
    print(f"{'mean bytes':>10} {'slots':>8} {'':>12} {times} {'live MB':>8}")
    for mean_nbytes, n_slots in ((100, 1_000_000), (300, 300_000), (1200, 100_000), (7000, 30_000)):
        heap = SlotHeap(n_slots)
        for phase, slots in (
            ("growing", np.arange(n_slots)),
            ("overwriting", rng.integers(n_slots, size=n_slots)),
        ):
            times_us = pauses_us(heap, slots, mean_nbytes, rng)
            (median, p99, longest), longest_cpu = np.percentile(times_us[0], [50, 99, 100]), times_us[1].max()
            row = f"{mean_nbytes:>10} {n_slots:>8} {phase:>12} {median:>10.1f} {p99:>8.1f} {longest:>8.0f}"
            print(f"{row} {longest_cpu:>11.0f} {heap.stats().live_bytes / 1e6:>8.1f}")


if __name__ == "__main__":
    main()
