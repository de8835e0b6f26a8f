"""Saving and loading a replay buffer of SB3: all of it, and what is new, beside plain writing and reading.

uv run --group benchmarks benchmarks/snapshots.py
uv run --group benchmarks benchmarks/snapshots.py --transitions 100000 --rounds 3

Full saves and loads take turns with writing and reading as many bytes in one file on the same disk, until they are on
the disk, or without the system's cache. Generations are written after some thousand new steps, while steps go on to be
added and sampled: the longest of these calls shows how long a training stops.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from gymnasium import spaces
from obscodec import Snapshot
from obscodec.snapshots import folder_nbytes
from obscodec_sb3 import CompressedReplayBuffer
from result_tables import Row, as_csv, as_markdown, circumstances
from rich.console import Console
from scale import Frames, recorded, steps

_N_ACTIONS = 18
_RESULTS = Path(__file__).with_name("results") / "snapshots"
console = Console(stderr=True)


class Played:
    """A buffer that is filled with recorded steps."""

    def __init__(self, game: str, transitions: int) -> None:
        self._source: Iterator[Frames] = steps(np.stack([recorded(game, 0, 30_000, (84, 84))], axis=1))
        self._obs, self._rng = next(self._source), np.random.default_rng(0)
        space, actions = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(_N_ACTIONS)
        self.buffer: Any = CompressedReplayBuffer(transitions, space, actions, "cpu", threads=1)
        self.go_on(transitions)

    def go_on(self, n: int) -> None:
        """Add ``n`` transitions."""
        for _ in range(n):
            self.step()

    def step(self) -> None:
        """Add a transition."""
        rng, obs, self._obs = self._rng, self._obs, next(self._source)
        reward, done = rng.integers(-1, 2, size=1).astype(np.float32), np.zeros(1, np.bool_)
        self.buffer.add(obs, self._obs, rng.integers(_N_ACTIONS, size=1), reward, done, [{}])


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def uncached(path: Path) -> None:
    """Have the system forget what it has of files in a folder."""
    for file in path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def whole(played: Played, rounds: int, folder: Path) -> Iterator[Row]:
    """Full saves and loads, in turn with plain ones of as many bytes."""
    saved, plain = folder / "saved", folder / "plain"
    played.buffer.save(saved)
    content = np.random.default_rng(0).bytes(folder_nbytes(saved))

    def write() -> None:
        plain.mkdir()
        with (plain / "bytes").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def read() -> None:
        np.fromfile(plain / "bytes", np.uint8)

    def load_mapped() -> None:
        CompressedReplayBuffer.load(saved, device="cpu", mmap=True).sample(256)

    load = {"load": lambda: CompressedReplayBuffer.load(saved, device="cpu"), "load mapped, sample(256)": load_mapped}
    works = {"plain write": write, "save": lambda: played.buffer.save(saved), "plain read": read, **load}
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(1 + rounds):
        for path in (saved, plain):
            shutil.rmtree(path, ignore_errors=True)
        for name, work in works.items():
            if name == "plain read":
                os.sync()
            if name not in ("plain write", "save"):
                uncached(saved)
                uncached(plain)
            taken[name].append(seconds(work))
    medians = {name: float(np.median(of[1:])) for name, of in taken.items()}
    for name, peer in (
        ("plain write", "plain write"),
        ("save", "plain write"),
        ("plain read", "plain read"),
        ("load", "plain read"),
        ("load mapped, sample(256)", "plain read"),
    ):
        row: Row = {"table": f"all: {len(content) / 1e6:.0f} MB", "buffer": name, "make_s": medians[name]}
        yield row | {"plain_x": medians[name] / medians[peer]}


def generations(played: Played, rounds: int, new_steps: int, folder: Path) -> Iterator[Row]:
    """Generations after ``new_steps`` each; adds and samples go on meanwhile."""
    buffer, path = played.buffer, folder / "generations"
    stops: dict[str, list[float]] = {"write": [], "add": [], "sample(32)": []}
    without: dict[str, list[float]] = {"add": [], "sample(32)": []}
    finished, mb = list[float](), list[float]()
    with Snapshot(path) as snapshot:
        snapshot.write(buffer)
        snapshot.wait()
        for _ in range(rounds):
            played.go_on(new_steps)
            for _ in range(50):
                without["add"].append(seconds(played.step))
                without["sample(32)"].append(seconds(lambda: buffer.sample(32)))
            began = time.perf_counter()
            generation = snapshot.write(buffer)
            stops["write"].append(time.perf_counter() - began)
            while generation not in snapshot.generations:
                stops["add"].append(seconds(played.step))
                stops["sample(32)"].append(seconds(lambda: buffer.sample(32)))
            finished.append(time.perf_counter() - began)
            snapshot.wait()
            mb.append(sum(file.stat().st_size for file in path.glob(f"*-{generation:08}*")) / 1e6)
    table = f"after {new_steps:,} new steps"
    yield {"table": table, "buffer": "until it is finished, beside a training", "make_s": float(np.median(finished))}
    yield {"table": table, "buffer": "written", "make_mb": float(np.median(mb))}
    for name, of in stops.items():
        yield {"table": table, "buffer": f"{name}, median", "make_s": float(np.median(of))}
        yield {"table": table, "buffer": f"{name}, longest", "make_s": max(of)}
    for name, of in without.items():
        yield {"table": table, "buffer": f"{name}, longest without a write", "make_s": max(of)}


def main(
    game: Annotated[str, typer.Option(help="a name such as Pong")] = "MsPacman",
    transitions: Annotated[int, typer.Option(min=10_000, help="in the buffer")] = 1_000_000,
    new_steps: Annotated[int, typer.Option(min=1, help="between two generations")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="how often each is measured")] = 9,
    path: Annotated[Path | None, typer.Option(help="a folder on the disk to measure")] = None,
    out: Annotated[Path, typer.Option(help="folder for the tables")] = _RESULTS,
) -> None:
    """Measure, and write tables."""
    about = circumstances()
    torch.set_num_threads(1)
    played = Played(game, transitions)
    console.log(played.buffer)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=path) as folder:
        for measured in (
            whole(played, rounds, Path(folder)),
            generations(played, rounds, new_steps, Path(folder)),
        ):
            for row in measured:
                console.log(*(f"{k} {v:.4g}" if isinstance(v, float) else v for k, v in row.items()))
                rows.append(row)
    out.mkdir(exist_ok=True, parents=True)
    name = f"{game}-{transitions}"
    title = f"Snapshots of {transitions:,} transitions of {game}"
    (out / f"{name}.md").write_text(as_markdown(title, rows, about), encoding="utf-8")
    (out / f"{name}.csv").write_text(as_csv(rows, about), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
