"""Steps and batches between processes: owners of shards, and a process that decodes and pickles its batches.

uv run --group benchmarks benchmarks/shard_batches.py

All processes are on one machine, and talk by its own network. Random batches of 256 transitions of Atari's MsPacman,
with stacks of four frames; the ways take turns, in random order. Processor time is that of all threads of a process,
and of all owners together.
"""

import multiprocessing as mp
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import typer
from atari_frames import frames as played
from obscodec import Field, RingBuffer
from obscodec.shards import Owner, Shards, Writer
from result_tables import circumstances

_RESULTS = Path(__file__).parent / "results" / "shard_batches.md"
_PACKAGES = "obscodec", "numpy", "numba", "ale-py"
_KEY = b"of a benchmark"
_BATCH = 256
_PROCESSES = mp.get_context("spawn")


def ring_of(n: int, n_envs: int = 1) -> RingBuffer:
    """An empty ring for ``n`` steps of all environments together."""
    fields = {
        "obs": Field((84, 84), np.uint8),
        "next_obs": Field((84, 84), np.uint8, next_of="obs"),
        "reward": Field((), np.float32),
        "done": Field((), np.bool_),
    }
    return RingBuffer(-(-n // n_envs), fields, n_envs, stack={"obs": 4}, pad="zeros", episode_end="done")


def step(frames: Any, k: int) -> dict[str, Any]:
    """A step."""
    return {"obs": frames[k], "next_obs": frames[k + 1], "reward": k, "done": k % 700 == 699}


def own(n: int, told: Connection, n_envs: int) -> None:
    """Own a shard."""
    ring = ring_of(n, n_envs)
    with Owner(ring) as owner:
        told.send(owner.serve(("localhost", 0), _KEY))
        told.recv()
        ring.decide()
        told.send(None)
        owner.wait()


def pickle_batches(n: int, told: Connection, _: int) -> None:
    """Decode and pickle batches."""
    ring, frames = ring_of(n), played("MsPacman", n + 1, 0)
    for k in range(n):
        ring.append(**step(frames, k))
    ring.decide()
    told.send(None)
    while (batch := told.recv()) is not None:
        told.send(ring.sample(batch))


def started(
    work: Callable[[int, Connection, int], None], n: int, n_envs: int = 1
) -> tuple[BaseProcess, Connection, Any]:
    """A process, a connection to it, and what it says first."""
    here, there = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=work, args=(n, there, n_envs), daemon=True)
    process.start()
    return process, here, here.recv()


def used(processes: list[BaseProcess]) -> float:
    """Milliseconds of processor time."""
    times = [psutil.Process(process.pid).cpu_times() for process in processes]
    return 1000 * sum(of.user + of.system for of in times)


def written(n: int, n_owners: int, n_writers: int, frames: Any) -> tuple[list[Any], list[float]]:
    """Owners with ``n`` steps; bytes, microseconds of ``append``, processor time here and there, for each step."""
    owners = [started(own, n, n_writers // n_owners) for _ in range(n_owners)]
    processes, nbytes, times = [of[0] for of in owners], 0, list[float]()
    before, used_before = time.process_time(), used(processes)
    for number in range(n_writers):
        with Writer(owners[number % n_owners][2], _KEY, number // n_owners) as writer:
            for k in range(number * n // n_writers, (number + 1) * n // n_writers):
                began = time.perf_counter()
                writer.append(**step(frames, k))
                times.append(time.perf_counter() - began)
            writer.flush()
            nbytes += writer._newest.nbytes
    here, there = (time.process_time() - before) * 1e6, (used(processes) - used_before) * 1e3
    for _, told, _ in owners:
        told.send(None)
        told.recv()
    return owners, [nbytes / n, 1e6 * statistics.median(times), here / n, there / n]


def main(n: int = 100_000, n_rounds: int = 60) -> None:
    """Write, sample, print, and write the results."""
    frames = played("MsPacman", n + 1, 0)
    lines = ["# Shards", ""]
    lines += [f"- {what}: {text}" for what, text in circumstances("benchmarks", _PACKAGES).items()]
    lines += [
        "",
        f"{n:,} steps of MsPacman, as writers send them: for each step bytes, the median of `append`, and",
        "",
    ]
    lines[-2] += " processor time, all in microseconds."
    lines += ["| owners | writers | bytes | `append` | writers' processor | owners' |", "| ---: |" + " ---: |" * 5]
    ways: dict[str, tuple[list[BaseProcess], Callable[[], Any]]] = {}
    shards = list[Shards]()
    for n_owners, n_writers in ((1, 1), (1, 4), (3, 3)):
        owners, numbers = written(n, n_owners, n_writers, frames)
        lines.append(f"| {n_owners} | {n_writers} | {' | '.join(f'{x:.0f}' for x in numbers)} |")
        print(lines[-1], flush=True)
        shards.append(Shards([address for *_, address in owners], _KEY, timeout=None))
        name = f"`Shards` of {n_owners} owner{'s' * (n_owners > 1)}, {n_writers} writer{'s' * (n_writers > 1)}"
        ways[name] = [of[0] for of in owners], lambda of=shards[-1]: of.sample(_BATCH)  # type: ignore[misc]
    process, told, _ = started(pickle_batches, n)

    def unpickled() -> Any:
        told.send(_BATCH)
        return told.recv()

    ways["decoded and pickled by one process"] = [process], unpickled
    found: dict[str, list[list[float]]] = {way: [] for way in ways}
    rng = np.random.default_rng(0)
    for k in range(n_rounds + 5):
        for way in rng.permutation(list(ways)).tolist():
            processes, call = ways[way]
            there, here, began = used(processes), time.process_time(), time.perf_counter()
            call()
            took = 1000 * (time.perf_counter() - began), used(processes) - there, 1000 * (time.process_time() - here)
            if k >= 5:
                found[way].append([*took])
    lines += [
        "",
        f"`sample({_BATCH})`, milliseconds: the median of {n_rounds}, and means of processor time, which comes",
        "",
    ]
    lines[-2] += " in ticks of 10 ms for owners."
    lines += ["| way | until it is here | owners' processor | learner's |", "| --- |" + " ---: |" * 3]
    for way, rows in found.items():
        took, owner, learner = zip(*rows, strict=True)
        lines.append(f"| {way} | {statistics.median(took):.1f} | {np.mean(owner):.1f} | {np.mean(learner):.1f} |")
        print(lines[-1], flush=True)
    _RESULTS.write_text("\n".join(lines) + "\n")
    told.send(None)
    for processes, _ in ways.values():
        for one in processes:
            one.terminate()


if __name__ == "__main__":
    typer.run(main)
