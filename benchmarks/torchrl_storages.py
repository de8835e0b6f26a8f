"""Compare TorchRL's storages with ours on recorded Atari games: sample, extend, slices, resident bytes.

Calls are interleaved in one process; each ratio is the median of the ratios of all rounds. Resident bytes are the
growth of a fresh process while a buffer is filled.

uv run --group benchmarks benchmarks/torchrl_storages.py [--game MsPacman] [--n 20000] [--threads 1]
"""

import ctypes
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice, permutations
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
import typer
from obscodec_torchrl import CompressedStorage
from recorded_steps import STACK, read_steps, record
from tensordict import TensorDict
from torchrl.data import (
    CompressedListStorage,
    LazyMemmapStorage,
    LazyTensorStorage,
    RandomSampler,
    SliceSampler,
    TensorDictReplayBuffer,
)

STORAGES: dict[str, Callable[[int], Any]] = {
    "CompressedStorage": CompressedStorage,
    "LazyTensorStorage": LazyTensorStorage,
    "LazyMemmapStorage": LazyMemmapStorage,
    "CompressedListStorage": CompressedListStorage,
}
OURS = "CompressedStorage"
BATCH = 256
N_SLICES, SLICE = 32, 64

Buffers = dict[str, TensorDictReplayBuffer]


def batches(game: str, n: int) -> Iterator[TensorDict]:
    """The first ``n`` transitions of a game, 256 at a time, each batch in memory of its own."""
    steps = ([column.copy() for column in step] for step in read_steps(record(game, 1, n)))
    while chunk := list(islice(steps, BATCH)):
        yield as_tensordict([torch.from_numpy(np.concatenate(column)) for column in zip(*chunk, strict=True)])


def as_tensordict(columns: list[torch.Tensor]) -> TensorDict:
    """Transitions, by the attributes of ``Step``, as TorchRL's collectors give them."""
    obs, next_obs, number, reward, terminated, truncated = columns
    ends = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
    following = {"pixels": next_obs, "reward": reward[:, None]} | {key: end[:, None] for key, end in ends.items()}
    return TensorDict({"pixels": obs, "action": number, "next": TensorDict(following, [len(obs)])}, [len(obs)])


def single_frames(steps: TensorDict) -> TensorDict:
    """The same steps with the newest frame only."""
    single = steps.copy()
    single["pixels"] = steps["pixels"][:, -1:].clone()
    single["next", "pixels"] = steps["next", "pixels"][:, -1:].clone()
    return single


def new_buffer(storage: str, n: int, *, sliced: bool = False) -> TensorDictReplayBuffer:
    """A buffer for ``n`` steps that samples 256 of them, or slices."""
    sampler = SliceSampler(num_slices=N_SLICES, end_key=("next", "done"), strict_length=False)
    return TensorDictReplayBuffer(
        storage=STORAGES[storage](n),
        sampler=sampler if sliced else RandomSampler(),
        batch_size=N_SLICES * SLICE if sliced else BATCH,
    )


def compared(title: str, buffers: Buffers, call: Callable[[TensorDictReplayBuffer], object], rounds: int) -> None:
    """Time interleaved calls, and print the medians, and ours against each of the others."""
    times: dict[str, list[float]] = {name: [] for name in buffers}
    orders = cycle(permutations(buffers))  # each follows each equally often: what ran before leaves the caches cold
    for i, order in enumerate(islice(orders, rounds + 2)):
        for name in order:
            began = time.perf_counter()
            call(buffers[name])
            if i >= 2:
                times[name].append((time.perf_counter() - began) * 1e3)
    for name, measured in times.items():
        ratio = median(ours / its for ours, its in zip(times[OURS], measured, strict=True))
        print(f"| {title} | {name} | {median(measured):.2f} ms | {ratio:.3f}x |", flush=True)


def resident(storage: str, game: str, n: int) -> float:
    """By how many bytes this process grows for each step, while a buffer is filled."""
    steps = batches(game, n)
    warm = new_buffer(storage, 2 * BATCH)  # all is imported, compiled and allocated that is needed once
    for batch in islice(batches(game, n), 6):
        warm.extend(batch)
        warm.sample()
    del batch
    ctypes.CDLL(None).malloc_trim(0)
    before = psutil.Process().memory_info().rss
    filled = new_buffer(storage, n)
    for batch in steps:
        filled.extend(batch)
    del batch, steps
    ctypes.CDLL(None).malloc_trim(0)
    return float(psutil.Process().memory_info().rss - before) / len(filled)


def main(
    game: str = "MsPacman",
    n: int = 20_000,
    n_resident: int = 50_000,
    rounds: int = 48,
    threads: int = 0,
    only: str = "",
    peers: str = "",
) -> None:
    """Measure with so many threads of torch's, 0 for as many as it has by default.

    ``--only STORAGE`` prints the resident bytes of one, in this process.
    """
    logging.getLogger("torchrl").setLevel(logging.ERROR)
    if threads:
        torch.set_num_threads(threads)
    if only:
        print(resident(only, game, n_resident))
        return
    chosen = [name for name in STORAGES if name in (OURS, *(peers.split(",") if peers else STORAGES))]
    print(f"{game}, {n} steps {STACK}, torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print("| | storage | median | ours / this one |\n| --- | --- | --- | --- |")
    buffers = {name: new_buffer(name, n) for name in chosen}
    for batch in batches(game, n):
        for buffer in buffers.values():
            buffer.extend(batch.clone())
    compared("sample(256)", buffers, lambda buffer: buffer.sample(), rounds)
    again = list(islice(batches(game, n), 8))
    numbers = {name: iter(range(10**9)) for name in buffers}
    named = {id(buffer): name for name, buffer in buffers.items()}
    compared("extend(256)", buffers, lambda b: b.extend(again[next(numbers[named[id(b)]]) % len(again)]), rounds)
    del buffers
    sliced = {name: new_buffer(name, n, sliced=True) for name in chosen if name != "CompressedListStorage"}
    for batch in batches(game, n):
        for buffer in sliced.values():
            buffer.extend(single_frames(batch))
    compared(f"{N_SLICES} slices of {SLICE} single frames", sliced, lambda buffer: buffer.sample(), rounds)
    for name in [] if peers else chosen[:1]:
        command = [sys.executable, __file__, "--only", name, "--game", game, "--n-resident", str(n_resident)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"| resident bytes per step of {n_resident} | {name} | {float(done.stdout):.0f} | |")


if __name__ == "__main__":
    typer.run(main)
