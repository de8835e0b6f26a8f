"""Episodes that a caller ends, and those that were running when a checkpoint was written: no slice crosses a seam."""

import numpy as np
import pytest
import torch
from obscodec import DTypeError, ShapeError
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler, TensorDictMaxValueWriter, TensorDictReplayBuffer
from two_buffers import WAYS, through_dumps

SIZE = 100


def steps(begin: int, n: int, *others: int) -> TensorDict:
    """``n`` steps of an episode that goes on."""
    numbers = torch.arange(begin, begin + n).reshape(n, *(1 for _ in others)).expand(n, *others)
    pixels = numbers.to(torch.uint8)[..., None, None].expand(*numbers.shape, 40, 40)
    flags = {name: torch.zeros(*numbers.shape, 1, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
    following = TensorDict({"pixels": pixels + 1, **flags}, numbers.shape)
    return TensorDict({"pixels": pixels, "number": numbers, "next": following}, numbers.shape)


def new_buffer(
    ndim: int = 1, storage: type[LazyTensorStorage] = CompressedStorage, **options
) -> TensorDictReplayBuffer:
    sampler = SliceSampler(slice_len=4, end_key=("next", "done"), strict_length=True)
    return TensorDictReplayBuffer(storage=storage(SIZE, ndim=ndim, **options), sampler=sampler, batch_size=64)


def slices(buffer: TensorDictReplayBuffer) -> np.ndarray:
    found = np.concatenate([buffer.sample()["number"].reshape(-1, 4).numpy() for _ in range(20)])
    np.testing.assert_array_equal(np.diff(found, axis=1) == 1, np.diff(found, axis=1) < 100)
    return found


def crosses(buffer: TensorDictReplayBuffer) -> bool:
    return bool((np.diff(slices(buffer), axis=1) > 1).any())


def go_on(buffer: TensorDictReplayBuffer, begin: int = 500) -> None:
    buffer.extend(steps(begin, 20))


@pytest.mark.parametrize("n", [30, 100, 130])
@pytest.mark.parametrize("load", WAYS)
@pytest.mark.parametrize("written_by", [CompressedStorage, LazyTensorStorage])
def test_no_slice_joins_what_was_loaded_with_what_follows(n, load, written_by, tmp_path) -> None:
    buffer, other = new_buffer(storage=written_by), new_buffer()
    for begin in range(0, n, 10):
        buffer.extend(steps(begin, 10))
    load(buffer, other, tmp_path)
    before = other[:].clone()
    assert (before == buffer[:]).all()  # until something follows
    go_on(other)
    assert not crosses(other)
    assert (other["next", "done"].squeeze(-1) == other["next", "truncated"].squeeze(-1)).all()
    assert other["number"][other["next", "done"].squeeze(-1)].tolist() == [n - 1]
    assert not other["next", "terminated"].any()
    go_on(other, 520)
    assert other["next", "done"].sum() == 1


def test_episodes_go_on_if_the_collector_does(tmp_path) -> None:
    buffer, other = new_buffer(), new_buffer(continue_episodes=True)
    buffer.extend(steps(0, 30))
    through_dumps(buffer, other, tmp_path)
    go_on(other, 30)
    assert not other["next", "done"].any()
    assert {*slices(other)[:, 0].tolist()} == {*range(47)}


def test_episodes_end_where_the_caller_says_so() -> None:
    buffer = new_buffer()
    buffer.storage.end_episodes()  # there is nothing to end
    buffer.extend(steps(0, 30))
    buffer.storage.end_episodes([])
    assert not buffer["next", "done"].any()
    buffer.storage.end_episodes()
    go_on(buffer)
    assert not crosses(buffer)
    assert buffer["number"][buffer["next", "done"].squeeze(-1)].tolist() == [29]


def test_the_episodes_of_some_environments_end() -> None:
    buffer = new_buffer(ndim=2)
    buffer.extend(steps(0, 10, 3).transpose(0, 1))
    buffer.storage.end_episodes([0, 2])
    buffer.extend(steps(500, 10, 3).transpose(0, 1))
    ended = buffer["next", "done"].squeeze(-1).nonzero().tolist()
    assert ended == [[0, 9], [2, 9]]
    for call in (3, [-1]):
        with pytest.raises(ShapeError, match=r"^environments must be 0 to 2, got "):
            buffer.storage.end_episodes(call)
    with pytest.raises(DTypeError, match=r"^environments are integers, got "):
        buffer.storage.end_episodes("all")


def test_a_storage_of_single_tensors_is_loaded_and_written() -> None:
    buffer, other = (ReplayBuffer(storage=CompressedStorage(10)) for _ in range(2))
    buffer.extend(torch.zeros(4, 2048, dtype=torch.uint8))
    other.load_state_dict(buffer.state_dict())
    other.extend(torch.ones(4, 2048, dtype=torch.uint8))
    other.storage.end_episodes()
    assert len(other) == 8


@pytest.mark.parametrize("written_by", [CompressedStorage, LazyTensorStorage])
def test_a_loaded_storage_that_was_emptied_has_nothing_to_end(written_by, tmp_path) -> None:
    buffer, other = new_buffer(storage=written_by), new_buffer()
    buffer.extend(steps(0, 30))
    through_dumps(buffer, other, tmp_path)
    other.empty()
    go_on(other)
    assert not other["next", "done"].any()


def test_rows_in_no_order_of_time_have_no_seam(tmp_path) -> None:
    buffers = [
        TensorDictReplayBuffer(storage=CompressedStorage(SIZE), writer=TensorDictMaxValueWriter(rank_key="number"))
        for _ in range(2)
    ]
    buffers[0].extend(steps(0, 30))
    through_dumps(*buffers, tmp_path)
    buffers[1].extend(steps(40, 5))
    assert not buffers[1]["next", "done"].any()
