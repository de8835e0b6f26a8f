"""Batches that are drawn and read on the device equal those of numpy arrays."""

from __future__ import annotations

import numpy as np
from atari_frames import frames
from obscodec import AutoStore, FrameStack, Layout, Staging, TensorArray
from obscodec_cupy import BatchReader, backend

STACK = Layout((4, 84, 84), np.uint8)


def stacks(n: int, game: str = "MsPacman") -> np.ndarray:
    played = frames(game, 320, 0)
    which = (np.arange(n)[:, None] + np.arange(-3, 1)) % 320
    return played[which]


def test_a_batch_of_observations_and_the_next_ones(cuda):
    device = backend.device(cuda)
    store = AutoStore(STACK, codec="delta-rle", frame_stack=FrameStack(4), device=cuda)
    staging = Staging(store, 2)
    obs, next_obs = (TensorArray.zeros((200, 2), store, staging) for _ in range(2))
    model = np.zeros((200, 2, *STACK.shape), np.uint8), np.zeros((200, 2, *STACK.shape), np.uint8)
    played = stacks(320)
    for step in range(150):
        for array, expected, first in ((obs, model[0], step), (next_obs, model[1], step + 1)):
            expected[step] = played[first], played[(first + 100) % 320]
            array[step] = expected[step]
    reader = BatchReader([obs, next_obs])
    reader.sync(device.zeros((1,), np.uint8))
    rng = np.random.default_rng(0)
    for step in range(150, 170):
        for array, expected, first in ((obs, model[0], step), (next_obs, model[1], step + 1)):
            expected[step % 200] = played[first], played[first - 50]
            array[step % 200] = expected[step % 200]
        reader.sync()
        places = rng.integers(0, 400, 30)
        outs = [device.empty((30, *STACK.shape), np.uint8) for _ in range(2)]
        reader.read(device.upload(places), outs)
        for out, expected in zip(outs, model, strict=True):
            np.testing.assert_array_equal(device.download(out), expected.reshape(-1, *STACK.shape)[places])
    reader.check()
