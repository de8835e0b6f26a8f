"""Agents in a tensordict of their own, which has more batch dimensions than the one that it is in."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from two_buffers import WAYS, samples

N_AGENTS = 3
CAPACITY = 40


def agents(batch: tuple[int, ...], generator: torch.Generator) -> TensorDict:
    pixels = torch.randint(0, 4, (*batch, N_AGENTS, 2, 32, 32), generator=generator, dtype=torch.uint8)
    of_team = TensorDict({"map": pixels[..., 0, :, :] + 1}, (*batch, N_AGENTS))
    return TensorDict({"pixels": pixels, "team": of_team}, (*batch, N_AGENTS))


def steps(*batch: int, seed: int = 0) -> TensorDict:
    generator = torch.Generator().manual_seed(seed)
    state = torch.randint(0, 4, (*batch, 2000), generator=generator, dtype=torch.uint8)
    reward = torch.rand((*batch, N_AGENTS, 1), generator=generator)
    following = agents(batch, generator).set("reward", reward)
    return TensorDict(
        {"agents": agents(batch, generator), "state": state, "next": TensorDict({"agents": following}, batch)}, batch
    )


def new_buffer(storage: LazyTensorStorage) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=storage, batch_size=16)


def filled(storage: LazyTensorStorage) -> TensorDictReplayBuffer:
    """Beyond the capacity, with single steps and changed ones."""
    buffer = new_buffer(storage)
    for seed in range(3):
        buffer.extend(steps(15, seed=seed))
    buffer.add(steps(seed=3))
    buffer.storage.set(torch.tensor([4, 2, 6]), steps(3, seed=4), set_cursor=False)
    return buffer


def assert_equal(given: TensorDictBase, expected: TensorDictBase) -> None:
    assert given.batch_size == expected.batch_size
    for path in ("agents", ("agents", "team"), ("next", "agents")):
        assert given[path].batch_size == expected[path].batch_size
    assert (given == expected).all()


STORAGES = {
    "compressed": (lambda: CompressedStorage(CAPACITY), 5),
    "delta-rle": (lambda: CompressedStorage(CAPACITY, codec="delta-rle"), 5),
    "a small leaf": (lambda: CompressedStorage(CAPACITY, codec={("next", "agents", "reward"): "raw"}), 6),
    "not compressed": (lambda: CompressedStorage(CAPACITY, codec=None), 0),
}
every_storage = pytest.mark.parametrize(("new_storage", "n_compressed"), STORAGES.values(), ids=STORAGES)


@every_storage
def test_whatever_is_read_is_what_the_stock_storage_gives(
    new_storage: Callable[[], CompressedStorage], n_compressed: int
) -> None:
    stock, ours = filled(LazyTensorStorage(CAPACITY)), filled(new_storage())
    assert len(ours.storage.compressed()) == n_compressed
    everything = torch.arange(CAPACITY)
    for index in (everything, everything % 3 == 0, slice(None), slice(3, 20, 4), 7, -1):
        assert_equal(ours[index], stock[index])
    given, expected = samples((ours, stock))
    assert_equal(given, expected)
    assert all(type(leaf) is torch.Tensor for leaf in given.values(True, True))


@every_storage
def test_views_of_single_agents_write_through(new_storage: Callable[[], CompressedStorage], n_compressed: int) -> None:
    stock, ours = filled(LazyTensorStorage(CAPACITY)), filled(new_storage())
    for buffer in (ours, stock):
        buffer[:]["agents", "pixels"][3, 1] = 9
        buffer[:]["agents"][:, 2]["pixels"][5].zero_()
        buffer[4:9]["next", "agents", "team"][1] = stock[8]["next", "agents", "team"].clone()
        buffer.storage[:]["agents"][torch.tensor([1, 6]), torch.tensor([0, 2])] = steps(2, seed=9)["agents"][:, 0]
    assert_equal(ours[:], stock[:])
    assert len(ours.storage.compressed()) == n_compressed


@pytest.mark.slow
@pytest.mark.parametrize("copy", WAYS)
@every_storage
def test_what_is_saved_is_restored(
    tmp_path: Path, copy: Callable[..., None], new_storage: Callable[[], CompressedStorage], n_compressed: int
) -> None:
    expected = filled(LazyTensorStorage(CAPACITY))
    for k, source in enumerate((filled(new_storage()), expected)):
        target = (filled if (k + n_compressed) % 2 else new_buffer)(new_storage())  # both ways, in two storages each
        copy(source, target, tmp_path)
        assert_equal(target[:], expected[:])
        assert len(target.storage.compressed()) == n_compressed


def test_a_pickled_storage_is_the_same() -> None:
    source = filled(CompressedStorage(CAPACITY)).storage
    assert_equal(pickle.loads(pickle.dumps(source))[:], source[:])
    assert_equal(pickle.loads(pickle.dumps(source[:])), source[:])


def test_environments_of_agents() -> None:
    stock, ours = (
        TensorDictReplayBuffer(storage=storage(4 * CAPACITY, ndim=2), batch_size=16, dim_extend=0)
        for storage in (LazyTensorStorage, CompressedStorage)
    )
    for seed in range(3):
        for buffer in (ours, stock):
            buffer.extend(steps(15, 4, seed=seed))
        assert_equal(*samples((ours, stock), seed))
    assert_equal(ours[:], stock[:])
    assert len(ours.storage.compressed()) == 5


def test_leaves_of_one_name_in_tensordicts_of_several_batches_have_stores_of_their_own() -> None:
    data = TensorDict({"x": torch.rand(9, 500), "next": TensorDict({"x": torch.rand(9, 2, 500)}, [9, 2])}, [9])
    storage = CompressedStorage(9)
    storage.set(range(9), data)
    assert (storage[torch.arange(9)] == data).all()
    assert len({leaf.array.store for leaf in storage.compressed().values()}) == 2


def test_frames_of_agents_are_found_in_their_next_ones() -> None:
    """Each agent has frames of its own; all of them are stored once."""
    frames = torch.randint(0, 255, (31, N_AGENTS, 40, 40), dtype=torch.uint8)
    batch = (30, N_AGENTS)
    following = TensorDict({"agents": TensorDict({"pixels": frames[1:]}, batch)}, batch[:1])
    data = TensorDict({"agents": TensorDict({"pixels": frames[:-1]}, batch), "next": following}, batch[:1])
    storage = CompressedStorage(30, codec="delta-rle", decide_after=8)
    for begin in range(0, 30, 10):
        storage.set(range(begin, begin + 10), data[begin : begin + 10])
    assert storage.compressed()[("agents", "pixels")].array.store.stats().n_tensors == 31 * N_AGENTS
