"""Send steps from an actor to a learner, as tensors and compressed: how many bytes, and how long each part takes.

An actor writes batches of steps of an Atari game into a CompressedStorage, each over the last one, and pickles the
contents; the learner unpickles them and extends its buffer. The same is measured with tensors. Calls are interleaved in
one process; times are medians after the first third of the batches, when the stores of both have chosen a codec.

uv run --group benchmarks benchmarks/torchrl_sending.py [--n 1000]
"""

import logging
import pickle
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import typer
from atari_steps import atari_steps
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

GAMES = ("MsPacman", "Pong")
BATCHES = (64, 250, 1000)
KINDS = ("tensors", "compressed")
CALLS = ("pickle", "unpickle", "extend")


def measured(times: list[float], call: Callable[[Any], Any], argument: object) -> Any:
    """The result of a call, whose milliseconds are noted."""
    began = time.perf_counter()
    result = call(argument)
    times.append((time.perf_counter() - began) * 1e3)
    return result


def compare(steps: TensorDict, batch: int, rounds: int) -> None:
    """Send all steps ``rounds`` times, ``batch`` of them at a time, and print a line for each kind."""
    sent = CompressedStorage(batch)
    buffers = {kind: TensorDictReplayBuffer(storage=CompressedStorage(rounds * len(steps))) for kind in KINDS}
    times: dict[tuple[str, str], list[float]] = {(kind, what): [] for kind in KINDS for what in CALLS}
    nbytes: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def as_tensors(part: TensorDict) -> bytes:
        return pickle.dumps(part.clone(), 5)

    def compressed(part: TensorDict) -> bytes:
        sent.set(range(len(part)), part)
        return pickle.dumps(sent[: len(part)], 5)

    actors = {"tensors": as_tensors, "compressed": compressed}
    for _ in range(rounds):
        for part in steps.split(batch):
            for kind in KINDS:
                message = measured(times[kind, "pickle"], actors[kind], part)
                nbytes[kind].append(len(message) / len(part))
                received = measured(times[kind, "unpickle"], pickle.loads, message)
                measured(times[kind, "extend"], buffers[kind].extend, received)
    rows = torch.randint(len(buffers["tensors"]), (256,))
    assert (buffers["tensors"][rows] == buffers["compressed"][rows]).all()
    for kind in KINDS:
        late = [f"{median(times[kind, what][len(nbytes[kind]) // 3 :]):.2f} ms" for what in CALLS]
        cells = [batch, kind, f"{median(nbytes[kind]):.0f}", *late]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main(n: int = 1000, rounds: int = 6) -> None:
    """Measure."""
    logging.getLogger("torchrl").setLevel(logging.ERROR)
    for game in GAMES:
        print(f"\n{game}, {n} steps, {rounds} times, torch {torch.__version__}\n")
        print("| batch | sent | bytes per step | write and pickle | unpickle | extend |")
        print("| --- | --- | --- | --- | --- | --- |")
        for batch in BATCHES:
            compare(atari_steps(game, n, seed=0), batch, rounds)


if __name__ == "__main__":
    typer.run(main)
