"""A replay buffer with a limit of memory: what it keeps in memory and on disk, and how long it takes to sample.

uv run --group benchmarks benchmarks/limits.py
uv run --group benchmarks benchmarks/limits.py --transitions 100000 --envs 8 --folder /var/tmp

Each table is measured in a process of its own. The steps are those of ``scale.py``: frames that were recorded, in each
lap a little different.

- ``memory``: a buffer is filled, then the oldest nine tenths of its blocks go to files; resident memory before and
  after, and when 100 batches were sampled.
- ``time``: two equal buffers, one of which has nine tenths of its blocks in files, are sampled in turns.
- ``limit``: a buffer with half of the memory that it needs gets three times as many steps as it has room for.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from gymnasium import spaces
from obscodec_sb3 import CompressedReplayBuffer
from result_tables import Row, circumstances
from rich.console import Console
from scale import recorded, steps

_RESULTS = Path(__file__).with_name("results") / "limits"
_PART = 0.9
_BATCH, _ROUNDS = 256, 100
_QUANTILES = (("median", 0.5), ("p99", 0.99))
_TABLES = ("memory", "time", "limit")
console = Console(stderr=True)


def resident() -> dict[str, int]:
    """Resident bytes of this process: of its own, and of files."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {words[0][3:-1]: 1024 * int(words[1]) for words in lines if words[0] in ("RssAnon:", "RssFile:")}


def new_buffer(size: int, n_envs: int, **limit: Any) -> CompressedReplayBuffer:
    """A buffer of stacks of four frames."""
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    return CompressedReplayBuffer(size, space, spaces.Discrete(18), "cpu", n_envs, threads=1, decide_after=64, **limit)


def fill(buffers: list[CompressedReplayBuffer], source: Iterator[Any], n: int) -> None:
    """Add ``n`` steps of all environments to each buffer."""
    obs, rng = next(source), np.random.default_rng(0)
    for _ in range(n):
        next_obs = next(source)
        action, reward = rng.integers(18, size=len(obs)), rng.integers(-1, 2, size=len(obs)).astype(np.float32)
        for buffer in buffers:
            buffer.add(obs, next_obs, action, reward, np.zeros(len(obs), np.bool_), [{}] * len(obs))
        obs = next_obs


def spill(buffer: CompressedReplayBuffer, folder: str) -> None:
    """Move nine tenths of the blocks to files."""
    buffer.observation_store.spill(folder, round(_PART * buffer.observation_store.stats().reserved_bytes))


def row(what: str, buffer: CompressedReplayBuffer, before: dict[str, int]) -> Row:
    """What a process has more than before, in MB, and what the buffer says."""
    now, stats = resident(), buffer.stats()
    more: Row = {f"{kind} MB": round((now[kind] - before[kind]) / 1e6, 1) for kind in now}
    said: Row = {"said MB": round(stats.total_bytes / 1e6, 1), "disk MB": round(stats.disk_bytes / 1e6, 1)}
    return {"what": what, "steps": buffer.size() * buffer.n_envs, **more, **said}


def measured_memory(source: Iterator[Any], size: int, n_envs: int, folder: str) -> Iterator[Row]:
    """Resident memory before and after a spill, and after some batches."""
    before, buffer = resident(), new_buffer(size, n_envs)
    fill([buffer], source, size // n_envs)
    yield row("in memory", buffer, before)
    spill(buffer, folder)
    yield row("nine tenths spilled", buffer, before)
    for _ in range(_ROUNDS):
        buffer.sample(_BATCH)
    yield row(f"after {_ROUNDS} batches", buffer, before)


def measured_time(source: Iterator[Any], size: int, n_envs: int, folder: str) -> Iterator[Row]:
    """How long batches take in memory and from files, in turns."""
    buffers = {"in memory": new_buffer(size, n_envs), "nine tenths spilled": new_buffer(size, n_envs)}
    fill([*buffers.values()], source, size // n_envs)
    spill(buffers["nine tenths spilled"], folder)
    rng, seconds = np.random.default_rng(0), {name: list[float]() for name in buffers}
    for _ in range(_ROUNDS):
        for i in rng.permutation(len(buffers)):
            name = list(buffers)[i]
            began = time.perf_counter()
            buffers[name].sample(_BATCH)
            seconds[name].append(time.perf_counter() - began)
    for name, of in seconds.items():
        ms = {f"sample({_BATCH}) {what}, ms": round(1e3 * float(np.quantile(of, q)), 2) for what, q in _QUANTILES}
        yield {"what": name, "steps": size, **ms}


def measured_limit(source: Iterator[Any], size: int, n_envs: int, folder: str) -> Iterator[Row]:
    """Resident memory, steps and time of a buffer that has reached its limit."""
    del folder
    whole = new_buffer(size, n_envs)
    fill([whole], source, size // n_envs)
    limit = whole.stats().total_bytes // 2
    before, buffer = resident(), new_buffer(size, n_envs, max_bytes=limit)
    for part in range(1, 11):
        began = time.perf_counter()
        fill([buffer], source, 3 * size // n_envs // 10)
        add_us = 1e6 * (time.perf_counter() - began) / (3 * size // 10)
        yield {
            **row(f"{part * 30} % added, limit {limit / 1e6:.1f} MB", buffer, before),
            "add of a transition, µs": round(add_us, 2),
        }


def main(
    transitions: Annotated[int, typer.Option(help="of all environments")] = 100_000,
    envs: int = 8,
    game: str = "MsPacman",
    folder: Annotated[str, typer.Option(help="of the files")] = tempfile.gettempdir(),
    table: Annotated[str, typer.Option(help="measure this table here, and print it")] = "",
) -> None:
    """Measure all tables, each in a process of its own, and write them to results/limits."""
    if table:
        warnings.simplefilter("ignore")
        n = min(4000, transitions // envs)
        of_envs = np.stack([recorded(game, seed, n, (84, 84)) for seed in range(envs)], axis=1)
        source = steps(of_envs)
        warm_up = new_buffer(600 * envs, envs)
        fill([warm_up], source, 600)
        spill(warm_up, folder)
        for _ in range(3):
            warm_up.sample(_BATCH)
        measures = [measured_memory, measured_time, measured_limit]
        measure = dict(zip(_TABLES, measures, strict=True))[table]
        print(json.dumps([*measure(source, transitions, envs, folder)]))
        return
    own = [f"--transitions={transitions}", f"--envs={envs}", f"--game={game}", f"--folder={folder}"]
    text = f"# Limits of memory: {game}, {envs} environments, {transitions:,} transitions\n"
    text += "\n" + "\n".join(f"- {name}: {told}" for name, told in circumstances().items()) + "\n"
    for name in _TABLES:
        console.log(name)
        command = [sys.executable, __file__, *own, f"--table={name}"]
        rows = json.loads(
            subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
        )
        lines = [[*rows[0]], ["---"] * len(rows[0]), *([str(value) for value in of.values()] for of in rows)]
        text += f"\n## {name}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
    _RESULTS.mkdir(parents=True, exist_ok=True)
    (_RESULTS / f"{game}-{envs}-envs-{transitions}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    typer.run(main)
