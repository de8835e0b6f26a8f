"""Two buffers of TorchRL: ways from one to the other, and what they sample of the same random numbers."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchrl.data import ReplayBuffer, TensorDictReplayBuffer


def through_dumps(source: TensorDictReplayBuffer, target: TensorDictReplayBuffer, folder: Path) -> None:
    source.dumps(folder / "buffer")
    target.loads(folder / "buffer")


def through_state_dict(source: TensorDictReplayBuffer, target: TensorDictReplayBuffer, folder: Path) -> None:
    del folder
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file, weights_only=False))


WAYS = [through_dumps, through_state_dict]


def samples(buffers: Iterable[ReplayBuffer], seed: int = 0) -> list[Any]:
    """A sample of each buffer, of the same random numbers."""
    found = []
    for buffer in buffers:
        torch.manual_seed(seed)
        np.random.seed(seed)
        found.append(buffer.sample())
    return found
