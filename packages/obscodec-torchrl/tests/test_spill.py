"""A storage that spills gives the items that LazyTensorStorage gives, and takes no more memory than its limit."""

import pickle
import re

import obscodec
import pytest
import torch
from obscodec.runtime import free_memory
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from two_buffers import samples

LIMIT = 3_000_000
OPTIONS = {"codec": "delta-rle", "decide_after": 16}


def steps(begin: int, n: int) -> TensorDict:
    """Frames that are half noise."""
    made = torch.Generator().manual_seed(begin)
    frames = torch.zeros(n + 1, 1, 84, 84, dtype=torch.uint8)
    frames[:, :, :40] = torch.randint(256, (n + 1, 1, 40, 84), dtype=torch.uint8, generator=made)
    return TensorDict(
        pixels=frames[:-1], reward=torch.arange(begin, begin + n), next=TensorDict(pixels=frames[1:], batch_size=n),
        batch_size=n,
    )  # fmt: skip


def buffers(tmp_path) -> list[TensorDictReplayBuffer]:
    storages = LazyTensorStorage(1500), CompressedStorage(1500, max_bytes=LIMIT, spill=tmp_path / "made", **OPTIONS)
    return [TensorDictReplayBuffer(storage=storage, batch_size=32) for storage in storages]


def fill(buffer: TensorDictReplayBuffer, n: int) -> None:
    for begin in range(0, n, 32):
        buffer.extend(steps(begin, 32))


def check_equal(one, other) -> None:
    assert (one == other).all()


def test_a_storage_that_spills_gives_the_same_items(tmp_path):
    both = buffers(tmp_path)
    for begin in range(0, 2000, 32):
        for buffer in both:
            buffer.extend(steps(begin, 32))
        stats = both[1]._storage.stats()
        assert stats.total_bytes < LIMIT + 33 * 84 * 84 + 16 * 16 * 40 * 84  # a write and a chunk
    assert stats.disk_bytes > 1_000_000
    check_equal(both[0][:], both[1][:])
    check_equal(*samples(both))
    storage = pickle.loads(pickle.dumps(both[1]._storage))
    check_equal(storage.get(slice(None)), both[0][:])
    both[1].dumps(tmp_path / "saved")
    loaded = buffers(tmp_path)[1]
    loaded.loads(tmp_path / "saved")
    check_equal(loaded[:], both[0][:])
    loaded.extend(steps(5000, 32))
    assert loaded._storage.stats().disk_bytes > 1_000_000


def test_a_full_disk_refuses_a_write_and_changes_nothing(tmp_path):
    both = buffers(tmp_path)
    (tmp_path / "made").rmdir()
    with pytest.raises(FileNotFoundError, match=r"make room there, or choose another folder$"):
        fill(both[1], 1500)
    written = len(both[1])
    assert 300 < written < 1500
    for begin in range(0, written, 32):
        both[0].extend(steps(begin, 32))
    check_equal(both[0][:], both[1][:])
    (tmp_path / "made").mkdir()
    for buffer in both:
        buffer.extend(steps(written, 32))
    check_equal(both[0][:], both[1][:])
    assert both[1]._storage.stats().disk_bytes > 0


def test_a_folder_needs_a_limit(tmp_path):
    text = "spill says where blocks go that exceed max_bytes: pass max_bytes, too"
    with pytest.raises(obscodec.SpecError, match=f"^{re.escape(text)}$"):
        CompressedStorage(10, spill=tmp_path)


@pytest.mark.parametrize("ndim", [1, 2])
def test_a_limit_that_what_can_not_spill_exceeds_is_refused_at_the_first_write(ndim, tmp_path):
    """Only then a storage knows what it has to store."""
    vectors = TensorDict(vector=torch.zeros(4, 2, 100), pixels=torch.zeros(4, 2, 84, 84, dtype=torch.uint8))
    vectors.batch_size = [4, 2]
    items = vectors if ndim == 2 else vectors.reshape(-1)

    def written(size, limit):
        storage = CompressedStorage(size, ndim=ndim, max_bytes=limit, spill=tmp_path, codec="delta-rle")
        buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
        with_nothing = pickle.dumps(storage._storage)
        try:
            buffer.extend(items)
        except obscodec.ShapeError:
            assert (storage.initialized, pickle.dumps(storage._storage), len(buffer)) == (False, with_nothing, 0)
            raise
        check_equal(buffer[:].reshape(-1).exclude("index"), vectors.reshape(-1))

    text = "^max_bytes must be ([\\d,]+) or more for 10,000 steps, got 3,000,000: .* room for ([\\d,]+) steps or"
    with pytest.raises(obscodec.ShapeError, match=text) as caught:
        written(10_000, 3_000_000)
    least, n_fit = (int(n.replace(",", "")) for n in re.search(text, str(caught.value)).groups())
    assert least == 10_000 * (400 + 4 + 8)  # a vector, an id, and the index that the buffer adds
    written(10_000, least + 100_000)
    written(n_fit // 2 * 2, 3_000_000)


N_PIXELS = 84 * 84


def extend(storage: CompressedStorage, n: int, at_once: int) -> None:
    """Write items of half noise, in each of which the next frame is that of the item after it."""
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    torch.manual_seed(0)
    frames = torch.zeros(n + 1, 1, 84, 84, dtype=torch.uint8)
    frames[:, :, :42] = torch.randint(256, (n + 1, 1, 42, 84), dtype=torch.uint8)
    for i in range(0, n, at_once):
        pixels, then = frames[i : i + at_once], frames[i + 1 : i + at_once + 1]
        buffer.extend(TensorDict(pixels=pixels, next=TensorDict(pixels=then, batch_size=at_once), batch_size=at_once))


def test_the_projection_is_what_the_full_storage_takes():
    part, full = CompressedStorage(8000), CompressedStorage(8000)
    extend(part, 800, 50)
    extend(full, 8000, 50)
    assert part.stats().projected_bytes == pytest.approx(full.stats().total_bytes, rel=0.15)
    assert full.stats().projected_bytes == full.stats().total_bytes


@pytest.mark.parametrize("at_once", [1, 50])
def test_a_storage_that_the_machine_has_no_memory_for_warns_once(at_once):
    storage = CompressedStorage(6 * free_memory() // N_PIXELS)
    with pytest.warns(
        UserWarning, match=rf"{storage.max_size} steps will take about .* judging by \d+ steps"
    ) as caught:
        extend(storage, 600, at_once)
    assert len(caught) == 1


def test_a_storage_with_a_limit_does_not_warn(tmp_path):
    storage = CompressedStorage(6 * free_memory() // N_PIXELS, max_bytes=free_memory() // 2, spill=tmp_path)
    extend(storage, 300, 10)  # a warning is an error
