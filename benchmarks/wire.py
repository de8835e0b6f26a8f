"""What a batch takes that another process decodes, beside one that its owner decodes and pickles.

uv run --group textured benchmarks/wire.py

Random batches of 256 transitions of a ring with next observations: games of Atari, with stacks of four frames, and
VizDoom in its own resolution, resized to the nearest pixel, and averaged. Both ways take turns, in random order, with
one thread. Processor time is that of the process, which is owner and reader in turn.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer
from atari_frames import frames as played
from obscodec import Field, RingBuffer
from obscodec.wire import EncodedBatch, Received, Sent
from result_tables import circumstances
from textured_frames import played as textured

_RESULTS = Path(__file__).parent / "results" / "wire.md"
_PACKAGES = "obscodec", "numpy", "numba", "zstandard", "ale-py", "vizdoom"
_BATCH = 256


def ring_of(frames: npt.NDArray[np.uint8], stack: int) -> RingBuffer:
    """A ring with these frames."""
    field = Field(frames.shape[1:], np.uint8)
    later = Field(frames.shape[1:], np.uint8, next_of="obs")
    more: dict[str, Any] = {"stack": {"obs": stack}, "pad": "zeros", "episode_end": "done"} if stack > 1 else {}
    fields = {"obs": field, "next_obs": later, "reward": Field((), np.float32), "done": Field((), np.bool_)}
    ring = RingBuffer(len(frames) - 1, fields, threads=1, **more)
    for k in range(len(frames) - 1):
        ring.append(obs=frames[k], next_obs=frames[k + 1], reward=k, done=False)
        if k == 2000:
            ring.decide()
    ring.decide()
    return ring


def decoded(message: bytes, received: Received) -> Any:
    """What a reader does."""
    return EncodedBatch.from_bytes(message, received).read(threads=1)


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a call returns, its time and its processor time, in milliseconds."""
    began, used = time.perf_counter(), time.process_time()
    result = call()
    return result, 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - used)


def measured(ring: RingBuffer, n_rounds: int) -> list[float]:
    """Message, decoded batch, in bytes; medians of the processor times of the owner and the reader, both ways."""
    sent, received, rng, found = Sent(), Received(), np.random.default_rng(0), list[list[float]]()
    for k in range(n_rounds + 3):
        ways = [
            lambda seed: timed(lambda: ring.sample(_BATCH, seed, to="encoded").to_bytes(sent, threads=1)),
            lambda seed: timed(lambda: pickle.dumps(ring.sample(_BATCH, seed), 5)),
        ]
        made: dict[int, tuple[Any, float, float]] = {}
        for way in rng.permutation(2).tolist():
            made[way] = ways[way](k)
        (message, _, of_owner), (pickled, _, before) = made[0], made[1]
        batch, _, of_reader = timed(partial(decoded, message, received))
        wanted, _, reader_before = timed(partial(pickle.loads, pickled))
        if not all(np.array_equal(batch[name], array) for name, array in wanted.items()):
            raise AssertionError("a batch is not what was stored")
        if k >= 3:  # the first ones bring dictionaries
            found.append([len(message), len(pickled), of_owner, before, of_reader, reader_before])
    return [float(median) for median in np.median(found, axis=0)]


def sets(n: int, n_textured: int) -> Iterator[tuple[str, npt.NDArray[np.uint8], int]]:
    """Each set with its name, and how many frames a stack has."""
    for game in ("MsPacman", "Pong"):
        yield f"{game}, 4x84x84", played(game, n, 0), 4
    for name in ("doom_home_native", "doom_home_near", "doom_home"):
        frames = np.stack([frame for frame, _ in islice(textured(name), n_textured)])
        yield f"VizDoom, {name}, {'x'.join(map(str, frames.shape[1:]))}", frames, 1


def main(n: int = 100_000, n_textured: int = 20_000, n_rounds: int = 40) -> None:
    """Measure, print, and write after each set."""
    lines = ["# Batches for another process", ""]
    lines += [f"- {what}: {text}" for what, text in circumstances("textured", _PACKAGES).items()]
    lines += ["", f"Batches of {_BATCH} transitions; medians of {n_rounds}, of processor time in ms, one thread.", ""]
    lines += [
        "| observations | codec | message, kB | decoded, kB | % | owner | owner decodes | reader | reader unpickles |"
    ]
    lines += ["| --- | --- |" + " ---: |" * 7]
    for name, frames, stack in sets(n, n_textured):
        ring = ring_of(frames, stack)
        message, plain, owner, before, reader, reader_before = measured(ring, n_rounds)
        spec = f"`{ring.stats().fields['obs'].codec}`".replace("|", "\\|")  # type: ignore[union-attr]
        numbers = f"{message / 1e3:,.0f} | {plain / 1e3:,.0f} | {100 * message / plain:.1f}"
        times = " | ".join(f"{ms:.1f}" for ms in (owner, before, reader, reader_before))
        lines.append(f"| {name}, {len(ring):,} | {spec} | {numbers} | {times} |")
        print(lines[-1], flush=True)
        _RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
