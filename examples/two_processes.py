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
"""A buffer in one process, and a learner in another one, which decodes its batches itself.

uv run examples/two_processes.py --steps 2000

The owner sends batches as they are stored. Over a network, ``Listener(("", 6000), authkey=b"...")`` and ``Client`` of
``multiprocessing.connection`` take the place of the pipe.
"""

import multiprocessing as mp
from multiprocessing.connection import Connection

import numpy as np
import typer
from obscodec import Field, RingBuffer
from obscodec.wire import EncodedBatch, Received, Sent

FIELDS = {
    "obs": Field((84, 84), np.uint8),
    "next_obs": Field((84, 84), np.uint8, next_of="obs"),
    "k": Field((), np.int64),
}


def learn(owner: Connection, n_batches: int) -> None:
    """Ask for batches, and check what comes."""
    received = Received()
    for _ in range(n_batches):
        owner.send(64)
        batch = EncodedBatch.from_bytes(owner.recv_bytes(), received).read()
        if not np.array_equal(batch["next_obs"][:, 0, 0], (batch["k"] + 1) % 256):
            raise AssertionError("a batch is not what was stored")
    owner.send(None)


def main(steps: int = 2000, n_batches: int = 50) -> None:
    """Fill a buffer, and serve a learner."""
    ring = RingBuffer(steps, FIELDS)
    for k in range(steps):
        frame = np.zeros((84, 84), np.uint8)
        frame[k % 80 : k % 80 + 4], frame[0, 0] = 100, k % 256
        following = frame.copy()
        following[0, 0] = (k + 1) % 256
        ring.append(obs=frame, next_obs=following, k=k)
    ring.decide()
    here, there = mp.get_context("spawn").Pipe()
    learner = mp.get_context("spawn").Process(target=learn, args=(there, n_batches))
    learner.start()
    there.close()
    sent, nbytes = Sent(), 0
    while (batch := here.recv()) is not None:
        message = ring.sample(batch, to="encoded").to_bytes(sent)
        nbytes += len(message)
        here.send_bytes(message)
    learner.join()
    decoded = sum(array.nbytes for array in ring.sample(64).values())
    print(
        f"{n_batches} batches of {nbytes / n_batches:,.0f} bytes each, {decoded:,} decoded; learner: {learner.exitcode}"
    )


if __name__ == "__main__":
    typer.run(main)
