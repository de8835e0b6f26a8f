"""Compare batches from GPU memory, compressed and uncompressed, with those of SB3's buffer and an upload.

On a machine with an NVIDIA GPU:

uv run benchmarks/gpu.py

Writes benchmarks/results/gpu, with card, driver, commit and date; docs/benchmarks.md describes what is measured.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Annotated, cast

import gpu_readers
import numpy as np
import obscodec
import torch
import typer
from gpu_memory import vram_per_transition
from gpu_readers import SB3, Batches, Call, filled
from processes import in_fresh_process
from recorded_steps import read_steps, record
from result_tables import Row, as_csv, as_markdown, circumstances

_RESULTS = Path(__file__).with_name("results") / "gpu"
_NOT_COUNTED = 5  # rounds, until all is compiled and the clock of the card is up
_CACHE_NBYTES = 256 << 20  # more than the caches of any card: written before each call, as a learner does
_N_FRAMES = 4096
_BLOCK = 16


def interleaved(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Microseconds on the GPU's own clock, from the beginning of a call to the end of its last kernel."""
    rng = np.random.default_rng(0)
    elapsed_us: dict[str, list[float]] = {name: [] for name in calls}
    cache = torch.empty(_CACHE_NBYTES, dtype=torch.uint8, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for turn in range(rounds + _NOT_COUNTED):
        for name in rng.permutation(list(calls)).tolist():
            cache.fill_(turn % 256)
            torch.cuda.synchronize()
            begin.record()
            calls[name]()
            end.record()
            torch.cuda.synchronize()
            if turn >= _NOT_COUNTED:
                elapsed_us[name].append(begin.elapsed_time(end) * 1e3)
    return elapsed_us


def sample_rows(game: str, n: int, rounds: int) -> Iterator[Row]:
    """Times of ``sample(256)`` of all buffers, including the drawing of indices."""
    batches = Batches(filled(game, n), n)
    elapsed_us = interleaved(batches.calls(), rounds)
    batches.check()
    for name, measured in elapsed_us.items():
        plain = elapsed_us[batches.plain_of(name)]
        sb3 = elapsed_us[SB3]
        yield {
            "table": f"{game}, sample(256) of {n:,} transitions",
            "buffer": name,
            "gpu_us": median(measured),
            "plain_x": median(x / y for x, y in zip(measured, plain, strict=True)),
            "sb3_faster_x": median(y / x for x, y in zip(measured, sb3, strict=True)),
        }


def recorded_frames(game: str, n: int) -> torch.Tensor:
    """The newest frames of ``n`` steps of a game, on the GPU."""
    steps = islice(read_steps(record(game, 1, n)), n)
    return torch.from_numpy(np.stack([step.next_obs[0, -1] for step in steps])).to(gpu_readers.DEVICE)


def encoders(frames: torch.Tensor) -> dict[str, Call]:
    """Ways to encode frames that are on the GPU already."""
    items = {"rle": frames, "delta-rle": frames.reshape(-1, _BLOCK, *frames.shape[1:])}
    calls: dict[str, Call] = {}
    for spec, x in items.items():
        codec = obscodec.codec(spec, obscodec.Layout(tuple(x.shape[1:]), "uint8"), "cuda")
        calls[spec] = partial(codec.encode_batch, x)
    store = obscodec.FrameStore(obscodec.Layout(tuple(frames.shape[1:]), "uint8"), device="cuda")
    given = cast("np.ndarray", frames)  # any array of this device will do

    def append() -> None:
        store.release(store.append(given))

    append()  # so that it has its reference frames
    return {**calls, "FrameStore.append, which downloads, release": append}


def encode_rows(game: str, rounds: int) -> Iterator[Row]:
    """How many gigabytes of frames are encoded in a second."""
    frames = recorded_frames(game, _N_FRAMES)
    for name, measured in interleaved(encoders(frames), rounds).items():
        yield {
            "table": f"{game}, encode {_N_FRAMES:,} frames that are on the GPU",
            "buffer": name,
            "gpu_us": median(measured),
            "gb_per_s": frames.numel() / median(measured) / 1e3,
        }


def card() -> dict[str, str]:
    """What the measurements depend on, in addition to ``circumstances``."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    commit = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in (query, commit)]
    return {"card and driver": texts[0].splitlines()[0], "commit": texts[1].strip()}


def main(
    games: str = "MsPacman,Pong",
    n: Annotated[int, typer.Option(help="Transitions in each buffer.")] = 50_000,
    rounds: int = 200,
    results: Path = _RESULTS,
) -> None:
    """Measure, print and save."""
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py needs an NVIDIA GPU, a driver and a build of torch for CUDA; torch finds none here")
    rows: list[Row] = []
    for game in games.split(","):
        rows += sample_rows(game, n, rounds)
        rows += encode_rows(game, rounds)
        for heap in ("device", "pinned"):
            nbytes = in_fresh_process(vram_per_transition, game, n, heap)
            rows.append({"table": f"{game}, memory of the GPU", "buffer": f"heap={heap!r}", "transition_bytes": nbytes})
    about = circumstances() | card()
    results.mkdir(parents=True, exist_ok=True)
    (results / "gpu.csv").write_text(as_csv(rows, about))
    (results / "gpu.md").write_text(text := as_markdown("On the GPU", rows, about))
    print(text)


if __name__ == "__main__":
    typer.run(main)
