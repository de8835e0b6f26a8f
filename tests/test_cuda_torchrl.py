"""A CompressedStorage that decodes on a GPU gives what a LazyTensorStorage gives."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import obscodec
import pytest
import torch
from atari_steps import atari_steps
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, RandomSampler, SliceSampler, TensorDictReplayBuffer

CAPACITY = 200
SAMPLERS: dict[str, Callable[[], object]] = {
    "random": RandomSampler,
    "slice": lambda: SliceSampler(num_slices=8, traj_key="episode", strict_length=False),
}


@pytest.fixture(scope="module")
def steps() -> TensorDict:
    """Transitions of a part of a game, as stacks of four frames."""
    steps = atari_steps("MsPacman", 400, seed=0).clone()
    for key in ("pixels", ("next", "pixels")):
        steps[key] = steps[key][:, :, 20::4, 20::4].contiguous()
    return steps


@pytest.fixture(params=["born there", "born on the CPU"])
def born(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where tensors are that are written."""
    if request.param == "born on the CPU":  # where all tensors are that the simulated GPU takes
        monkeypatch.setattr(obscodec.Store, "has_on_device", lambda self, x: False)
    return request.param


def both(device: torch.device, cuda: str, **options: object) -> list[TensorDictReplayBuffer]:
    ours = CompressedStorage(CAPACITY, device=device, buffer_device=cuda, **{"codec": "delta-rle", **options})
    storages = [LazyTensorStorage(CAPACITY, device=device), ours]
    return [TensorDictReplayBuffer(storage=storage, batch_size=32) for storage in storages]


def assert_equal(found: TensorDict, expected: TensorDict) -> None:
    leaves = dict(expected.items(include_nested=True, leaves_only=True))
    for key, leaf in leaves.items():
        assert type(found[key]) is torch.Tensor
        assert found[key].dtype == leaf.dtype
        assert found[key].device == leaf.device
        assert torch.equal(found[key], leaf), key
    assert set(found.keys(True, True)) == leaves.keys()


def samples_of(buffers: list[TensorDictReplayBuffer], seed: int = 0) -> list[TensorDict]:
    samples = []
    for buffer in buffers:
        torch.manual_seed(seed)
        np.random.seed(seed)
        samples.append(buffer.sample())
    return samples


@pytest.mark.parametrize("heap", ["device", "pinned"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_are_those_of_the_stock_storage(sampler, heap, born, steps, cuda, torch_device, no_host):
    buffers = both(torch_device, cuda, heap=heap)
    for buffer in buffers:
        buffer._sampler = SAMPLERS[sampler]()
    written = steps.to(torch_device) if born == "born there" else steps
    for begin in range(0, 400, 50):  # beyond the capacity, so that it wraps around
        for buffer in buffers:
            buffer.extend(written[begin : begin + 50].clone())
        with no_host() if begin > 150 else nullcontext():  # the first items are kept as they are
            stock, ours = samples_of(buffers, begin)
        assert_equal(ours, stock)
