"""Two buffers of TorchRL: ways from one to the other, and what they sample of the same random numbers."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from obscodec_torchrl.contents import opened_steps
from tensordict import TensorDictBase
from torchrl.data import (
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers.samplers import PrioritizedSliceSampler

CAPACITY = 1000  # of the buffers with these samplers

SAMPLERS = {
    "random": lambda: RandomSampler(),
    "without replacement": lambda: SamplerWithoutReplacement(),
    "prioritized": lambda: PrioritizedSampler(CAPACITY, 0.7, 0.5),
    "slice": lambda: SliceSampler(num_slices=8, traj_key="episode", strict_length=False),
    "slice by end": lambda: SliceSampler(slice_len=8, end_key=("next", "done"), strict_length=False),
    "slice without replacement": lambda: SliceSamplerWithoutReplacement(
        num_slices=8, traj_key="episode", strict_length=False
    ),
    "prioritized slice": lambda: PrioritizedSliceSampler(
        CAPACITY, 0.7, 0.5, num_slices=8, traj_key="episode", strict_length=False
    ),
}


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


def assert_equal(given: TensorDictBase, expected: TensorDictBase) -> None:
    """Equal, bit for bit, and made of plain tensors."""
    leaves = dict(expected.items(include_nested=True, leaves_only=True))
    found = dict(given.items(include_nested=True, leaves_only=True))
    assert found.keys() == leaves.keys()
    assert given.batch_size == expected.batch_size
    for key, leaf in leaves.items():
        assert type(found[key]) is torch.Tensor, key
        assert found[key].dtype == leaf.dtype, key
        assert found[key].device == leaf.device, key
        assert torch.equal(found[key], leaf), key


def samples(buffers: Iterable[ReplayBuffer], seed: int = 0) -> list[Any]:
    """A sample of each buffer, of the same random numbers."""
    found = []
    for buffer in buffers:
        torch.manual_seed(seed)
        np.random.seed(seed)
        found.append(buffer.sample())
    return found


def first_items(path: Path, n: int) -> dict[str, np.ndarray]:
    """The oldest ``n`` steps of the first environment of a snapshot, by field."""
    with opened_steps(path) as steps:
        oldest = np.arange(min(n, steps.n))
        return {name: steps.read(name, oldest, np.zeros_like(oldest)) for name in steps.layouts}
