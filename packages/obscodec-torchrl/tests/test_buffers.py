"""A buffer with CompressedStorage gives what one with LazyTensorStorage gives, on real Atari steps."""

import pytest
import torch
from atari_steps import atari_steps
from obscodec.torch import CompressedTensor
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import (
    HERReplayBuffer,
    ImmutableDatasetWriter,
    LazyTensorStorage,
    ReplayBuffer,
    RoundRobinWriter,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorDictRoundRobinWriter,
)
from two_buffers import CAPACITY, SAMPLERS, assert_equal, samples

WRITERS = {
    "round robin": RoundRobinWriter,
    "tensordict round robin": TensorDictRoundRobinWriter,
    "max value": lambda: TensorDictMaxValueWriter(rank_key=("next", "reward")),
}


@pytest.fixture(scope="module")
def steps() -> TensorDict:
    return atari_steps("MsPacman", 1500, seed=0)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_are_those_of_the_stock_storage(steps: TensorDict, sampler: str) -> None:
    stock, ours = (
        TensorDictReplayBuffer(storage=storage(CAPACITY), sampler=SAMPLERS[sampler](), batch_size=64)
        for storage in (LazyTensorStorage, CompressedStorage)
    )
    for begin in range(0, 1500, 150):  # beyond the capacity, so that it wraps around
        for buffer in (stock, ours):
            buffer.extend(steps[begin : begin + 150].clone())
        for _ in range(3):
            expected, given = samples((stock, ours), begin)
            for buffer, sample in ((stock, expected), (ours, given)):
                sample["td_error"] = torch.linspace(0.1, 2, len(sample))
                buffer.update_tensordict_priority(sample)
            assert_equal(given, expected)
    compressed = [leaf for leaf in ours.storage._storage.values(True, True) if isinstance(leaf, CompressedTensor)]
    assert len(compressed) == 2
    assert compressed[0].array.store is compressed[1].array.store


@pytest.mark.parametrize("writer", WRITERS)
def test_writers_write_what_they_write_into_the_stock_storage(steps: TensorDict, writer: str) -> None:
    stock, ours = (
        TensorDictReplayBuffer(storage=storage(200), writer=WRITERS[writer](), batch_size=64)
        for storage in (LazyTensorStorage, CompressedStorage)
    )
    for begin in range(0, 700, 100):
        for buffer in (stock, ours):
            buffer.extend(steps[begin : begin + 90].clone())
            for i in range(begin + 90, begin + 100):
                buffer.add(steps[i].clone())
    assert len(ours) == len(stock) == 200
    assert_equal(ours[torch.arange(200)], stock[torch.arange(200)])


def test_a_batch_larger_than_the_buffer_leaves_its_end(steps: TensorDict) -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(64))
    buffer.extend(steps[:150].clone())
    places = torch.arange(86, 150) % 64  # LazyTensorStorage keeps one of the steps of each place, or a mixture of two
    assert_equal(buffer[places].exclude("index"), steps[86:150])
    store = buffer.storage._storage["pixels"].array.store
    assert store.stats().n_tensors == 128


def test_what_is_overwritten_or_emptied_is_released(steps: TensorDict) -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(300, codec="delta-rle"), batch_size=64)
    for begin in range(0, 1500, 100):
        buffer.extend(steps[begin : begin + 100].clone())
        buffer.sample()
    store = buffer.storage._storage["pixels"].array.store
    assert store.stats().n_tensors == 600
    buffer.empty()
    assert len(buffer) == 0
    assert store.stats().n_tensors == 0
    buffer.extend(steps[:10].clone())
    assert_equal(buffer[torch.arange(10)].exclude("index"), steps[:10])


def test_each_frame_is_stored_once(steps: TensorDict) -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(1500), batch_size=64)
    buffer.extend(steps.clone())
    n_episodes = int(steps["episode"].max()) + 1
    frames = buffer.storage._storage["pixels"].array.store._store
    assert n_episodes > 2
    assert frames.log.stats().n_tensors <= 1500 + n_episodes
    assert buffer.storage._storage["pixels"].array.store.stats().total_bytes < 1500 * 400


@pytest.mark.slow
@pytest.mark.parametrize("n_envs", [2, 8])
def test_environments_that_alternate_at_every_item_share_frames_within_their_own(n_envs: int) -> None:
    games = torch.stack([atari_steps("MsPacman", 300, seed=i) for i in range(n_envs)], dim=1)
    alternating, apart = CompressedStorage(300 * n_envs), CompressedStorage(300 * n_envs, ndim=2)
    for begin in range(0, 300, 50):
        rows = torch.arange(begin, begin + 50)
        apart.set(rows, games[rows])
        items = torch.arange(begin * n_envs, (begin + 50) * n_envs)
        alternating.set(items, games[rows].reshape(-1))
    everything = torch.arange(300 * n_envs)
    assert_equal(alternating[everything], games.reshape(-1))
    stores = [storage.compressed()[("pixels",)].array.store for storage in (alternating, apart)]
    assert stores[0].stats().total_bytes < 1.1 * stores[1].stats().total_bytes


@pytest.mark.parametrize("strategy", ["future", "final", "episode", "random"])
def test_goals_in_hindsight_are_those_of_the_stock_storage(steps: TensorDict, strategy: str) -> None:
    goals = steps[:900].clone()
    goals["achieved_goal"], goals["desired_goal"] = goals["pixels"][:, -1:], goals["pixels"][:, :1].flip(0)
    buffers = []
    for storage in (LazyTensorStorage, CompressedStorage):
        buffer = HERReplayBuffer(
            reward_fn=lambda td: (td["achieved_goal"] == td["desired_goal"]).flatten(1).all(1, keepdim=True).float(),
            strategy=strategy,
            storage=storage(CAPACITY),
            batch_size=128,
        )
        for batch in goals.split(300):
            buffer.extend(batch.clone())
        buffers.append(buffer)
    expected, given = samples(buffers)
    assert_equal(given, expected)
    assert (given["desired_goal"] != goals["desired_goal"][given["index"]]).any()


def test_an_immutable_writer_refuses(steps: TensorDict) -> None:
    storage = CompressedStorage(100)
    storage.set(range(50), steps[:50].clone())
    buffer = ReplayBuffer(storage=storage, writer=ImmutableDatasetWriter(), batch_size=16)
    assert_equal(buffer[torch.arange(50)], steps[:50])
    with pytest.raises(RuntimeError):
        buffer.extend(steps[:3].clone())
