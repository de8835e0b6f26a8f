# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# ///
"""Two owners, two writers and a learner, in processes of their own; one owner is killed and started again.

uv run examples/shards.py --steps 3000

On several machines, each owner is a program of its own, which the system starts again after a crash.
"""

import multiprocessing as mp
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import typer
from obscodec import Field, RingBuffer, SlotError
from obscodec.shards import Drawn, Owner, Shards, Writer

KEY = b"only these processes know it"
FIELDS = {
    "obs": Field((84, 84), np.uint8),
    "next_obs": Field((84, 84), np.uint8, next_of="obs"),
    "k": Field((), np.int64),
    "done": Field((), np.bool_),
}
PROCESSES = mp.get_context("spawn")


def own(folder: Path, port: int, told: Connection) -> None:
    """Hold a shard until the process ends."""
    with Owner(RingBuffer(10_000, FIELDS, episode_end="done"), folder=folder, save_every=0.5) as owner:
        told.send(owner.serve(("localhost", port), KEY)[1])
        owner.wait()


def write(port: int, n_steps: int) -> None:
    """Play, and wait until all steps are on the disk of the owner."""
    with Writer(("localhost", port), KEY) as writer:
        for k in range(n_steps):
            writer.append(obs=image(k), next_obs=image(k + 1), k=k, done=k % 100 == 99)
            time.sleep(0.001)
        writer.flush(saved=True)
        if writer.n_lost:
            raise AssertionError(f"{writer.n_lost} steps are lost")


def image(k: int) -> np.ndarray:
    """A square that moves, and the number of the step."""
    frame = np.zeros((84, 84), np.uint8)
    frame[k % 80 : k % 80 + 4, k % 70 : k % 70 + 4] = 200
    frame[0, :2] = k % 256, k // 256
    return frame


def started(folder: Path, port: int) -> tuple[BaseProcess, int]:
    """A process of an owner, and where it serves."""
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=own, args=(folder, port, there), daemon=True)
    process.start()
    return process, here.recv()


def drawn_from_both(shards: Shards) -> Drawn:
    """A batch with rows of both owners, as soon as there is one."""
    while True:
        with suppress(SlotError):  # nothing is written so far
            drawn = shards.sample(64)
            if len({*drawn.where.shards}) == 2:
                return drawn
        time.sleep(0.1)


def main(steps: int = 3000) -> None:
    """Write to two owners, learn from both, and kill one of them meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        owners = [started(Path(folder) / name, 0) for name in ("a", "b")]
        writers = [
            PROCESSES.Process(target=write, args=(port, n))
            for (_, port), n in zip(owners, (steps, 2 * steps), strict=True)
        ]
        for writer in writers:
            writer.start()
        with Shards([("localhost", port) for _, port in owners], KEY, timeout=1.0) as shards:
            drawn_from_both(shards)
            owners[1][0].kill()
            drawn = shards.sample(64)
            print(f"while one owner is gone: {len(drawn.batch['k'])} rows, {drawn.missing}")
            owners[1] = started(Path(folder) / "b", owners[1][1])
            for writer in writers:
                writer.join()
            drawn = drawn_from_both(shards)
            counts = np.bincount(drawn.where.shards, minlength=2)
            for obs, k in zip(drawn.batch["obs"], drawn.batch["k"], strict=True):
                if not np.array_equal(obs, image(int(k))):
                    raise AssertionError("a row is not what was stored")
        print(f"rows of the owners of {steps:,} and {2 * steps:,} steps: {counts.tolist()}")
        for process, _ in owners:
            process.terminate()
            process.join()


if __name__ == "__main__":
    typer.run(main)
