"""Rows of a compressed tensor that are replaced and read one by one, beside those of a plain one.

uv run --group benchmarks benchmarks/tensor_rows.py

Stacks of Atari's MsPacman, and colours from its frames. Each round writes one row in each way, and reads one, in random
order.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from atari_frames import frames as played
from obscodec import AutoStore, Layout, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.torch import CompressedTensor
from result_tables import circumstances

_RESULTS = Path(__file__).parent / "results" / "tensor_rows.md"
_PACKAGES = "obscodec", "numpy", "numba", "torch", "ale-py"
_N_ROWS = 1000
_N_STACKED = 64
_HEADING = (
    "| rows | `x[k].copy_(row)` | `x[k] = row` | a plain `x[k].copy_(row)` "
    "| `x[k].numpy()` | a row of 64 in `torch.stack` | a whole index, `x[[k]]` |"
)


def kinds(n: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Rows, ``u8[n, *shape]``, and what they are."""
    frames = played("MsPacman", n + 3, 0)
    stacks = np.lib.stride_tricks.sliding_window_view(frames, 4, 0)
    yield "84x84", torch.from_numpy(frames[:n].copy())
    yield "4x84x84", torch.from_numpy(np.ascontiguousarray(np.moveaxis(stacks, -1, 1)))
    yield "3x64x64", torch.from_numpy(np.ascontiguousarray(np.moveaxis(stacks[:, 10:74, 10:74, :3], -1, 1)))


def measured(rows: torch.Tensor) -> list[float]:
    """Microseconds: the median of each way."""
    waiting = WriteBuffer(AutoStore(Layout(tuple(rows.shape[1:]), np.uint8)), n_envs=1)
    compressed = CompressedTensor(TensorArray.zeros((_N_ROWS,), waiting.store, waiting))
    plain = torch.zeros((_N_ROWS, *rows.shape[1:]), dtype=torch.uint8)
    for k in range(_N_ROWS):
        compressed[k].copy_(rows[k])
    waiting.store.decide()

    rng = np.random.default_rng(0)

    def assign(at: int, row: torch.Tensor) -> None:
        compressed[at] = row

    ways: list[Any] = [
        lambda at, row: compressed[at].copy_(row),
        assign,
        lambda at, row: plain[at].copy_(row),
        lambda at, _: compressed[(at + _N_ROWS // 2) % _N_ROWS].numpy(),
        lambda *_: torch.stack([compressed[at] for at in rng.integers(_N_ROWS, size=_N_STACKED).tolist()]),
        lambda at, _: compressed[[at]],
    ]
    n_rows = np.array([1, 1, 1, 1, _N_STACKED, 1])
    times = np.zeros((len(rows), len(ways)))
    for k, row in enumerate(rows):
        for way in rng.permutation(len(ways)).tolist():
            began = time.perf_counter()
            ways[way](k % _N_ROWS, row)
            times[k, way] = 1e6 * (time.perf_counter() - began) / n_rows[way]
        at = k % _N_ROWS
        if k % 97 == 0 and not (torch.equal(compressed[[at]][0], row) and np.array_equal(compressed[at].numpy(), row)):
            raise AssertionError("a row is not what was stored")
    return [float(median) for median in np.median(times, axis=0)]


def main(n: int = 4000) -> None:
    """Measure, print, and write after each kind."""
    lines = ["# Rows of a compressed tensor", ""]
    lines += [f"- {what}: {text}" for what, text in circumstances("benchmarks", _PACKAGES).items()]
    lines += ["", f"Medians of {n:,} rows, microseconds.", "", _HEADING, "| --- |" + " ---: |" * 6]
    for name, rows in kinds(n):
        lines.append(f"| {name} | {' | '.join(f'{us:.0f}' for us in measured(rows))} |")
        print(lines[-1], flush=True)
        _RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
