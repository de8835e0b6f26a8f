"""Twenty million steps through small rings: does memory stay, and is every sample right?

uv run benchmarks/soak.py
uv run benchmarks/soak.py --steps 200000 --folder /tmp/soak

Three rings, one for each codec, are written in turns. A step is the step of one environment: one ``append`` with 16
environments counts as 16. In each turn, a ring is overwritten twice with other content: moving sprites, noise, pictures
that stand still, and a few values with long runs. So block numbers are used again all the time, and codecs that learn
find that their content has changed. After each append, a batch is sampled, and all of it is compared with plain arrays.
"""

import csv
import gc
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil
import typer
from obscodec import Field, RingBuffer
from resident_memory import give_back_free_memory

N_ENVS, CAPACITY, SIDE, BATCH = 16, 512, 16, 32
LAPS = 2  # of a ring in each turn
WARM_UP = 2  # rounds of all rings and contents
CODECS = ("delta-rle|lz4", "delta-rle|zstd:3", "auto")
CONTENTS = ("sprites", "noise", "still", "runs")
FRAME = (SIDE, SIDE)

Frames = npt.NDArray[np.uint8]


class Soaked(NamedTuple):
    """What was measured at the end of a turn.

    Attributes:
        steps: appended so far, to all rings.
        seconds: since the beginning.
        rss_bytes: resident memory of the process.
        codec: of the ring.
        content: of the turn.
        live_bytes: of the ring, streams alone.
        reserved_bytes: of the ring.
        block_numbers: that were ever used in it.
        version: the newest version of its codec, 0 for none: how often it has learned.
    """

    steps: int
    seconds: float
    rss_bytes: int
    codec: str
    content: str
    live_bytes: int
    reserved_bytes: int
    block_numbers: int
    version: int


def frames(content: str, n: int, rng: np.random.Generator) -> Iterator[Frames]:
    """``n`` times ``u8[N_ENVS, 16, 16]``; each turn has other pixels."""
    if content == "noise":
        for _ in range(n):
            yield rng.integers(256, size=(N_ENVS, *FRAME), dtype=np.uint8)
        return
    stills = rng.integers(256, size=(N_ENVS, *FRAME), dtype=np.uint8)
    if content == "runs":
        stills = np.repeat(stills[:, :, :1], SIDE, axis=2)
    bank = np.repeat(stills[:1], SIDE * SIDE, axis=0)
    sprite = rng.integers(256, size=(3, 3), dtype=np.uint8)
    for k in range(SIDE * SIDE):
        bank[k, k // SIDE % (SIDE - 2) :, k % (SIDE - 2) :][:3, :3] = sprite
    at = rng.integers(SIDE * SIDE, size=N_ENVS)
    for k in range(n):
        if content == "sprites":
            yield bank[at]
            at = (at + 1 + (k % 7 == 0)) % len(bank)
        else:
            env = int(rng.integers(N_ENVS))
            if k % 20 == 0:
                stills[env, int(rng.integers(SIDE))] = rng.integers(256)
            yield stills.copy()


class Ring:
    """A ring with one codec, and plain arrays with the same steps."""

    def __init__(self, codec: str) -> None:
        self.codec = codec
        fields = {"frame": Field(FRAME, np.uint8, codec, min_nbytes=0), "reward": Field((), np.float32)}
        self.buffer = RingBuffer(CAPACITY, fields, n_envs=N_ENVS, threads=1)
        self._frames = np.zeros((CAPACITY, N_ENVS, *FRAME), np.uint8)
        self._rewards = np.zeros((CAPACITY, N_ENVS), np.float32)
        self._n = 0

    def append(self, frame: Frames, reward: npt.NDArray[np.float32]) -> None:
        """A step of all environments."""
        self.buffer.append(frame=frame, reward=reward)
        at = self._n % CAPACITY
        self._frames[at], self._rewards[at] = frame, reward
        self._n += 1

    def sample(self) -> None:
        """A batch, which must equal that of the plain arrays, bit for bit."""
        found, rng = self.buffer.sample(BATCH, self._n), np.random.default_rng(self._n)
        n_stored = min(self._n, CAPACITY)
        steps, envs = rng.integers(n_stored, size=BATCH), rng.integers(N_ENVS, size=BATCH)
        at = (steps + self._n - n_stored) % CAPACITY
        if not (np.array_equal(found["frame"], self._frames[at, envs])):
            raise AssertionError(f"{self.codec}: other frames than were appended, after {self._n} steps")
        if found["reward"].tobytes() != self._rewards[at, envs].tobytes():
            raise AssertionError(f"{self.codec}: other rewards than were appended, after {self._n} steps")

    def check_all(self) -> None:
        """Every stored step, bit for bit."""
        found = self.buffer[:]
        at = np.arange(self._n - min(self._n, CAPACITY), self._n) % CAPACITY
        if not (
            np.array_equal(found["frame"], self._frames[at]) and np.array_equal(found["reward"], self._rewards[at])
        ):
            raise AssertionError(f"{self.codec}: other steps than were appended, after {self._n}")

    def numbers(self) -> tuple[int, int]:
        """Block numbers that were ever used, and the newest version of the codec; zeros for a store without blocks."""
        store: Any = self.buffer._set.stores["frame"]
        log = getattr(getattr(store, "_store", store), "log", None)  # of the store that an AutoStore has chosen
        if log is None:
            return 0, 0
        return log.n, log.coder.versions.newest if log.coder.versions else 0


def soak(n_steps: int) -> Iterator[Soaked]:
    """Append so many steps, or a few more; yields a measurement after each turn."""
    rings = [Ring(codec) for codec in CODECS]
    rng, begin, n_done, turn = np.random.default_rng(0), time.monotonic(), 0, 0
    while n_done < n_steps:
        content, ring = CONTENTS[turn // len(rings) % len(CONTENTS)], rings[turn % len(rings)]
        for frame in frames(content, LAPS * CAPACITY, rng):
            ring.append(frame, (n_done + np.arange(N_ENVS) % 5).astype(np.float32))
            ring.sample()
            n_done += N_ENVS
        ring.check_all()
        turn += 1
        stats = ring.buffer.stats().fields["frame"]
        assert not isinstance(stats, int)
        gc.collect()
        give_back_free_memory()
        rss_bytes = psutil.Process().memory_info().rss
        of_ring = stats.live_bytes, stats.reserved_bytes, *ring.numbers()
        yield Soaked(n_done, round(time.monotonic() - begin, 1), rss_bytes, ring.codec, content, *of_ring)


def report(measured: list[Soaked]) -> str:
    """What the measurements show, as Markdown."""
    n_warm = WARM_UP * len(CODECS) * len(CONTENTS)
    warm, rest = measured[:n_warm], measured[n_warm:] or measured[-1:]
    before, after = max(m.rss_bytes for m in warm), max(m.rss_bytes for m in rest)
    last = measured[-1]
    n_batches, growth = last.steps // N_ENVS, 100 * (after / before - 1)
    lines = [
        "# Twenty million steps through small rings",
        "",
        f"`uv run benchmarks/soak.py --steps {last.steps}`, {date.today()}, numpy {np.__version__}.",
        "",
        f"{last.steps:,} steps of an environment were appended in {last.seconds:,.0f} s, {N_ENVS} with each call, and",
        f"{n_batches:,} batches of {BATCH} were sampled, one after each call. Every batch equaled that of plain",
        "arrays, bit for bit, and so did each whole ring at the end of each turn.",
        "",
        f"Resident memory was {before / 1e6:.1f} MB at most in the first {n_warm} turns, in which each ring had each",
        f"content twice, and {after / 1e6:.1f} MB at most in the {len(rest):,} turns after them: {growth:+.2f} %.",
        "",
        "| codec | content | live, most | reserved, most | more, most | block numbers, 1/2, end | versions |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for codec in CODECS:
        for content in CONTENTS:
            of = [m for m in measured if (m.codec, m.content) == (codec, content)]
            if not of:
                continue
            more = max(m.reserved_bytes - m.live_bytes for m in of)
            half, end = of[len(of) // 2].block_numbers, of[-1].block_numbers
            live, reserved = max(m.live_bytes for m in of), max(m.reserved_bytes for m in of)
            sizes = f"{live / 1e6:.2f} MB | {reserved / 1e6:.2f} MB | {more / 1e6:.2f} MB"
            lines.append(f"| `{codec}` | {content} | {sizes} | {half:,}, {end:,} | {of[-1].version} |")
    lines += [
        "",
        "What is reserved beyond what is live (more) is the open blocks, and dead or empty bytes of chunks.",
    ]
    return "\n".join(lines).replace("`delta-rle|", "`delta-rle\\|") + "\n"


def main(
    steps: Annotated[int, typer.Option(help="steps of an environment, in all")] = 20_000_000,
    folder: Annotated[Path, typer.Option(help="for the results")] = Path(__file__).parent / "results" / "soak",
) -> None:
    """Run, and write ``soak.csv`` and ``soak.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = []
    for at, one in enumerate(soak(steps)):
        measured.append(one)
        if at % 50 == 0:
            print(one, flush=True)
    with (folder / "soak.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Soaked._fields)
        writer.writerows(measured)
    (folder / "soak.md").write_text(report(measured))
    print(report(measured))


if __name__ == "__main__":
    typer.run(main)
