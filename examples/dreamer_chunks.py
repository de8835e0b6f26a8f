# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "opencv-python-headless==5.0.0.93",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# ///
"""DreamerV3's replay with compressed observations.

uv run examples/dreamer_chunks.py --steps 20000

``compressed`` makes the class from DreamerV3's own, which its replay knows by this name::

    from dreamer_chunks import compressed
    from embodied.core import chunk

    chunk.Chunk = compressed(chunk.Chunk, n_workers=config.run.envs)

It was tried with DreamerV3 3.3.1, the main branch of May 2026, whose replay gave the same batches. No registry of
packages has that. So the program fills chunks of ``Plain`` here, which has the same arrays and fills and reads them as
DreamerV3 does, but has only what storage needs. Several workers play MsPacman; the program compares all batches, and
prints what both take.
"""

import time
from collections import deque
from collections.abc import Callable
from itertools import cycle
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import typer
from gymnasium.wrappers import AtariPreprocessing
from obscodec import AutoStore, Layout, TensorArray
from obscodec.arrays import DrawnArray, WriteBuffer

MIN_NBYTES = 1024  # of an item; smaller ones stay as they are
LENGTH = 64  # of a sequence
Step = dict[str, Any]


class Rows(TensorArray):
    """A compressed array whose slices are decoded where they are used."""

    def __getitem__(self, index: Any) -> Any:
        return DrawnArray(self, index) if isinstance(index, slice) else super().__getitem__(index)


def compressed(chunk_class: Any, n_workers: int) -> Any:
    """DreamerV3's Chunk with each large array in a store, which all chunks share."""
    stores, workers = dict[str, AutoStore](), cycle(range(n_workers))  # which begin chunks in turns

    def append(self: Any, step: Step) -> None:
        if not self.data:
            data: Step = {key: np.empty((self.size, *np.shape(x)), x.dtype) for key, x in step.items()}
            self.data, worker = data, next(workers)
            for key, x in step.items():
                if x.nbytes >= MIN_NBYTES:
                    store = stores.setdefault(key, AutoStore(Layout(x.shape, x.dtype)))
                    data[key] = Rows.zeros((self.size,), store, WriteBuffer(store, n_envs=1, first=worker))
        chunk_class.append(self, step)

    return type("CompressedChunk", (chunk_class,), {"append": append, "stores": stores})


class Plain:
    """The arrays of DreamerV3's Chunk."""

    def __init__(self, size: int = 1024) -> None:
        self.length, self.size = 0, size
        self.data: Step | None = None

    def append(self, step: Step) -> None:
        """Add a step, arrays by name."""
        if not self.data:
            self.data = {key: np.empty((self.size, *value.shape), value.dtype) for key, value in step.items()}
        for key, value in step.items():
            self.data[key][self.length] = value
        self.length += 1

    def update(self, begin: int, n: int, values: Step) -> None:
        """Replace some arrays of ``n`` steps, such as latents."""
        assert self.data
        for key, value in values.items():
            self.data[key][begin : begin + n] = value

    def slice(self, begin: int, n: int) -> Step:
        """Views of ``n`` steps."""
        assert self.data
        return {key: x[begin : begin + n] for key, x in self.data.items()}


class Replay:
    """Chunks of several workers, the oldest of which go, and random sequences of them."""

    def __init__(self, chunk_class: Any, n_workers: int, capacity: int, chunk_size: int = 1024) -> None:
        self.new_chunk: Callable[[], Any] = lambda: chunk_class(chunk_size)
        most = max(2, -(-capacity // (n_workers * chunk_size)))
        self.chunks: list[deque[Any]] = [deque([self.new_chunk()], most) for _ in range(n_workers)]

    def add(self, step: Step, worker: int) -> None:
        """Add a step of a worker."""
        if (chunk := self.chunks[worker][-1]).length == chunk.size:
            self.chunks[worker].append(chunk := self.new_chunk())
        chunk.append(step)

    def sample(self, n: int, rng: np.random.Generator) -> Step:
        """``[n, LENGTH, *shape]`` by name."""
        batch: Step = {}
        for i in range(n):
            chunks = self.chunks[rng.integers(len(self.chunks))]
            first, n_steps = chunks[0].size, sum(chunk.length for chunk in chunks)
            k, begin = divmod(int(rng.integers(n_steps - LENGTH + 1)), first)
            n_here = min(LENGTH, first - begin)
            parts = [chunks[k].slice(begin, n_here)]
            if n_here < LENGTH:
                parts.append(chunks[k + 1].slice(0, LENGTH - n_here))
            for key in parts[0]:
                rows = batch.setdefault(key, np.empty((n, LENGTH, *parts[0][key].shape[1:]), parts[0][key].dtype))
                rows[i, :n_here] = parts[0][key]
                if n_here < LENGTH:
                    rows[i, n_here:] = parts[1][key]
        return batch

    @property
    def n_steps(self) -> int:
        """How many steps it has."""
        return sum(chunk.length for chunks in self.chunks for chunk in chunks)


def play(replays: dict[str, Replay], steps: int, n_workers: int, spent: dict[str, list[float]]) -> None:
    """Add steps of games to all replays."""
    gym.register_envs(ale_py)
    envs = [AtariPreprocessing(gym.make("ALE/MsPacman-v5", frameskip=1)) for _ in range(n_workers)]
    rng, reward, is_first = np.random.default_rng(0), np.zeros(n_workers, np.float32), np.ones(n_workers, np.bool_)
    images = [env.reset(seed=worker)[0] for worker, env in enumerate(envs)]
    for _ in range(steps // n_workers):
        for worker, env in enumerate(envs):
            step = {"image": images[worker], "reward": reward[worker], "is_first": is_first[worker]}
            for name, replay in replays.items():
                began = time.perf_counter()
                replay.add(step, worker)
                spent[name].append(time.perf_counter() - began)
            images[worker], found, *ends, _ = env.step(int(rng.integers(9)))
            reward[worker], is_first[worker] = found, any(ends)
            if any(ends):
                images[worker] = env.reset()[0]


def main(steps: int = 20_000, capacity: int = 100_000, n_workers: int = 4, rounds: int = 50) -> None:
    """Fill both, compare batches, and print what each takes."""
    made = {"plain": Plain, "compressed": compressed(Plain, n_workers)}
    replays = {name: Replay(kind, n_workers, capacity) for name, kind in made.items()}
    adding: dict[str, list[float]] = {name: [] for name in replays}
    sampling: dict[str, list[float]] = {name: [] for name in replays}
    play(replays, steps, n_workers, adding)
    (store,) = made["compressed"].stores.values()
    store.decide()
    for k in range(rounds):
        batches = []
        for name in sorted(replays, reverse=bool(k % 2)):
            began = time.perf_counter()
            batches.append(replays[name].sample(16, np.random.default_rng(k)))
            sampling[name].append(time.perf_counter() - began)
        for key in batches[0]:
            np.testing.assert_array_equal(batches[0][key], batches[1][key], strict=True)
    n, frame = replays["compressed"].n_steps, store.layout.nbytes
    nbytes = {"plain": float(frame), "compressed": store.stats().total_bytes / n + 4}
    print(f"{f'MsPacman, frames of {n:,} steps':<30} {'bytes':>9} {'add, µs':>9} {f'sample(16 x {LENGTH}), ms':>20}")
    for name in replays:
        add, sample = 1e6 * np.median(adding[name]), 1e3 * np.median(sampling[name])
        print(f"{name:<30} {nbytes[name]:9,.0f} {add:9.1f} {sample:20.2f}")


if __name__ == "__main__":
    typer.run(main)
