"""The time of a call of a store, whatever it stores or reads: ``uv run benchmarks/layers.py``.

Steps are stored, and stacks read, in calls of several sizes. A straight line through the times gives the time of an
empty call, and the time of each step or stack. It is processor time of one thread, so that other processes count
little.
"""

import time
from collections.abc import Callable
from itertools import islice

import numpy as np
from obscodec import FrameStack, FrameStore, Layout
from recorded_steps import STACK, read_steps, record

GAMES = ("MsPacman", "Pong", "Breakout")
STEPS = (1, 2, 4, 8, 16)  # at a time
STACKS = (16, 32, 64, 128, 256, 512)
N_STEPS = 6_000
N_ROUNDS = 100


def append_us(game: str) -> tuple[FrameStore, np.ndarray, float, float]:
    """A filled store and its ids; microseconds of an empty call, and of each step: an observation and the next one."""
    stack, layout = FrameStack(STACK[0]), Layout(STACK, np.uint8)
    store = FrameStore(layout, frame_stack=stack, threads=1)
    steps = islice(read_steps(record(game, 1, N_STEPS)), N_STEPS)
    times_us: dict[int, list[float]] = {n: [] for n in STEPS}
    ids: list[np.ndarray] = []
    rng = np.random.default_rng(0)
    while pieces := list(islice(steps, int(n := rng.choice(STEPS)))):
        tensors = np.concatenate([observations for step in pieces for observations in (step.obs, step.next_obs)])
        start = time.thread_time()
        ids.append(store.append(tensors))
        if len(pieces) == n and len(ids) > 1:  # the first one compiles
            times_us[n].append((time.thread_time() - start) * 1e6)
    return store, np.concatenate(ids), *_line(times_us, np.mean)  # blocks are encoded now and then


def read_us(store: FrameStore, ids: np.ndarray) -> tuple[float, float]:
    """Microseconds of an empty call, and of each stack."""
    rng = np.random.default_rng(0)
    times_us: dict[int, list[float]] = {n: [] for n in STACKS}
    out = np.empty((max(STACKS), *STACK), np.uint8)
    for _ in range(N_ROUNDS):
        for n in rng.permutation(STACKS).tolist():
            wanted = rng.choice(ids, n)
            start = time.thread_time()
            store.read(wanted, out[:n])
            times_us[n].append((time.thread_time() - start) * 1e6)
    return _line(times_us, np.median)


def _line(times_us: dict[int, list[float]], middle: Callable[[list[float]], np.floating]) -> tuple[float, float]:
    """Where a straight line through the times begins, and by how much it rises with each item."""
    rise, begin = np.polyfit(list(times_us), [middle(times) for times in times_us.values()], 1)
    return float(begin), float(rise)


def main() -> None:
    """Measure, and print a line for each game."""
    for game in GAMES:
        store, ids, call_us, step_us = append_us(game)
        read_call_us, stack_us = read_us(store, ids)
        print(
            f"{game:10} append: {call_us:5.1f} us a call, {step_us:5.1f} us a step;   "
            f"read: {read_call_us:5.1f} us a call, {stack_us:5.2f} us a stack"
        )


if __name__ == "__main__":
    main()
