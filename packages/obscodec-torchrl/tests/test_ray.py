"""Buffers on a local Ray cluster: actors add compressed frames, a learner samples them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import ray_actors
import torch
from atari_steps import atari_steps
from obscodec_torchrl import CompressedStorage
from ray_actors import N, compressed
from torchrl.data import RemoteTensorDictReplayBuffer, ReplayBuffer, TensorDictReplayBuffer


@pytest.mark.parametrize("n", [N, 60])  # with so few, the store has not decided yet how to keep them
def test_compressed_steps_travel_in_few_bytes(n: int) -> None:
    steps = atari_steps("Pong", N, seed=0)[:n]
    sent = pickle.dumps(compressed(steps))
    assert len(sent) < len(pickle.dumps(steps)) / 250
    assert (pickle.loads(sent) == steps).all()


def test_a_part_of_a_storage_travels_alone_from_one_of_its_own() -> None:
    steps = atari_steps("Pong", N, seed=0)
    part = CompressedStorage(20)
    part.set(range(20), compressed(steps)[100:120])
    assert (part[:] == steps[100:120]).all()
    assert len(pickle.dumps(part[:])) < len(pickle.dumps(compressed(steps))) / 3


@pytest.mark.parametrize("buffer_class", [TensorDictReplayBuffer, RemoteTensorDictReplayBuffer, ReplayBuffer])
def test_compressed_steps_are_filed(buffer_class: type[ReplayBuffer]) -> None:
    steps = atari_steps("Pong", N, seed=0)
    buffer = buffer_class(storage=CompressedStorage(2 * N), batch_size=32)
    for first in (0, 40):
        buffer.extend(pickle.loads(pickle.dumps(compressed(steps)[first:])))
    expected = torch.cat([steps, steps[40:]])
    assert (buffer[torch.arange(len(expected))].exclude("index") == expected).all()


@pytest.mark.slow
def test_actors_add_compressed_steps_to_buffers_on_another_machine() -> None:
    """In a process of its own, which Ray changes."""
    command = [sys.executable, ray_actors.__file__, "TensorDictReplayBuffer", "RemoteTensorDictReplayBuffer"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
