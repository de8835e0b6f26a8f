"""A checkpoint is the old one or the new one, whatever happens to who writes it, and a damaged one is refused."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from new_python import run_python
from obscodec import CorruptStream, SnapshotError
from obscodec_torchrl import CompressedStorage
from tensordict import NonTensorStack, TensorDict
from together import meanwhile
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from two_buffers import first_items

N = 40


def steps(seed: int) -> TensorDict:
    pixels = torch.randint(0, 9, (N, 2, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    names = NonTensorStack(*(f"{seed} {i}" for i in range(N)))
    return TensorDict({"pixels": pixels, "number": torch.arange(N) + seed, "name": names}, [N])


def filled(seed: int, storage: type[LazyTensorStorage] = CompressedStorage) -> LazyTensorStorage:
    made = storage(2 * N)
    made.set(range(N), steps(seed))
    return made


def loaded(folder: Path) -> TensorDict:
    storage = CompressedStorage(2 * N)
    storage.loads(folder)
    return storage[torch.arange(len(storage))]


def assert_equal(given: TensorDict, expected: TensorDict) -> None:
    assert list(given["name"]) == list(expected["name"])
    assert (given.exclude("name") == expected.exclude("name")).all()


@pytest.mark.slow
@pytest.mark.needs("fork")
def test_writers_that_are_killed_leave_the_old_checkpoint_or_the_new_one() -> None:
    """At lines of a writer over a checkpoint of ours or of TorchRL's, and at random times."""
    printed = run_python(Path(__file__).parent / "killed_dumps.py", 12)
    assert len(re.findall(r"over .*: {.*'old': \d+", printed)) == 2
    assert "at random times: " in printed


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    import resource  # which Windows does not have

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("storage", [CompressedStorage, LazyTensorStorage])
@pytest.mark.needs("limits of a process")
def test_a_disk_that_is_full_leaves_the_old_checkpoint(tmp_path: Path, storage: type[LazyTensorStorage]) -> None:
    filled(1, storage).dumps(tmp_path / "old")
    new = filled(2)
    new.dumps(tmp_path / "new")
    nbytes = max(file.stat().st_size for file in (tmp_path / "new" / "snapshot").iterdir())
    for limit in (0, 50, 1000, nbytes // 2, nbytes - 1):
        with files_of_at_most(limit), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            new.dumps(tmp_path / "old")
        assert_equal(loaded(tmp_path / "old"), steps(1))
    new.dumps(tmp_path / "old")
    assert_equal(loaded(tmp_path / "old"), steps(2))
    assert len([*(tmp_path / "old" / "snapshot").iterdir()]) == len([*(tmp_path / "new" / "snapshot").iterdir()])


def test_of_several_checkpoints_in_a_folder_the_last_is_loaded(tmp_path: Path) -> None:
    of_torchrl = filled(7, LazyTensorStorage)
    of_torchrl.dumps(tmp_path)
    filled(1).dumps(tmp_path)
    assert_equal(loaded(tmp_path), steps(1))
    snapshot = tmp_path / "snapshot"
    assert len(first_items(snapshot, N)["number"]) == N
    of_torchrl.dumps(tmp_path)
    assert_equal(loaded(tmp_path), steps(7))
    text = (
        f"{re.escape(str(snapshot))} is older than the checkpoint of TorchRL in the same folder: load that into a "
        "CompressedStorage, whose dumps writes a new snapshot"
    )
    with pytest.raises(SnapshotError, match=f"^{text}$"):  # as old items would look like those of the checkpoint
        first_items(snapshot, N)
    (tmp_path / "storage_metadata.json").unlink()  # TorchRL has not finished
    assert_equal(loaded(tmp_path), steps(1))
    filled(2).dumps(tmp_path)
    assert_equal(loaded(tmp_path), steps(2))
    np.testing.assert_array_equal(first_items(snapshot, N)["number"], steps(2)["number"])


def altered(folder: Path) -> Iterator[Path]:
    """Files of a snapshot in turn, each cut off in its middle, and with one byte that is another."""
    for file in sorted((folder / "snapshot").iterdir()):
        data = file.read_bytes()
        at = len(data) // 2
        for changed in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            file.write_bytes(changed)
            yield file
        file.write_bytes(data)


def test_a_damaged_snapshot_is_refused_with_its_place_and_the_storage_keeps_what_it_has(tmp_path: Path) -> None:
    filled(1).dumps(tmp_path)
    storage = filled(2)
    for file in altered(tmp_path):
        with pytest.raises(SnapshotError) as error:
            storage.loads(tmp_path)
        assert str(file) in str(error.value)
        assert_equal(storage[torch.arange(N)], steps(2))
        assert len(storage) == N
    storage.loads(tmp_path)
    assert_equal(storage[torch.arange(N)], steps(1))


DAMAGES = {
    "storage_metadata.json": "the checkpoint in {} was not finished: there is no storage_metadata.json, which TorchRL",
    "meta.json": "the checkpoint in {} is damaged: ",
    "pixels.memmap": "the checkpoint is damaged: {}/pixels.memmap has 0 of 256000 bytes",
    "number.memmap": "the checkpoint is damaged: {}/number.memmap has 0 of 640 bytes",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_torchrl_did_not_finish_is_refused(tmp_path: Path, name: str) -> None:
    filled(1, LazyTensorStorage).dumps(tmp_path / "whole")
    storage = filled(2)
    shutil.copytree(tmp_path / "whole", tmp_path / "missing")
    (tmp_path / "missing" / name).unlink()
    with pytest.raises(CorruptStream) as error:
        storage.loads(tmp_path / "missing")
    assert str(error.value).startswith(DAMAGES[name].format(tmp_path / "missing"))
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    nbytes = (tmp_path / "whole" / name).stat().st_size
    os.truncate(tmp_path / "cut" / name, nbytes // 2)
    for _ in range(2):  # nothing was written into the file
        with pytest.raises(CorruptStream, match="the checkpoint is damaged: "):
            storage.loads(tmp_path / "cut")
    assert (tmp_path / "cut" / name).stat().st_size == nbytes // 2
    assert_equal(storage[torch.arange(N)], steps(2))
    storage.loads(tmp_path / "whole")
    assert_equal(storage[torch.arange(N)], steps(1))


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_pytree_that_torchrl_did_not_finish_is_refused(tmp_path: Path, damage: str) -> None:
    data = {"image": steps(1)["pixels"], "numbers": (torch.arange(N), torch.ones(N))}
    source, target = LazyTensorStorage(2 * N), CompressedStorage(2 * N)
    source.set(range(N), data)
    target.set(range(N), {"image": steps(2)["pixels"], "numbers": (torch.zeros(N, dtype=torch.int64), torch.zeros(N))})
    source.dumps(tmp_path)
    file = tmp_path / "numbers" / "1.memmap"
    content = file.read_bytes()
    file.unlink()
    if damage == "cut":
        file.write_bytes(content[:-1])
    n_left = len(content) - 1 if damage == "cut" else 0
    with pytest.raises(CorruptStream) as error:
        target.loads(tmp_path)
    assert str(error.value) == f"the checkpoint is damaged: {file} has {n_left} of {len(content)} bytes"
    kept = target[torch.arange(N)]
    assert torch.equal(kept["image"], steps(2)["pixels"])
    assert kept["numbers"][1].sum() == 0
    file.write_bytes(content)
    target.loads(tmp_path)
    given = target[torch.arange(N)]
    assert torch.equal(given["image"], data["image"])
    assert torch.equal(given["numbers"][0], data["numbers"][0])


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path, *, there: bool) -> None:
    storage = filled(2)
    if there:
        (tmp_path / "storage").mkdir()
    with pytest.raises(FileNotFoundError) as error:
        storage.loads(tmp_path / "storage")
    assert (
        str(error.value)
        == f"there is no checkpoint in {tmp_path / 'storage'}: neither snapshot nor storage_metadata.json"
    )
    assert_equal(storage[torch.arange(N)], steps(2))


@pytest.mark.parametrize("through_buffer", [False, True])
def test_what_is_dumped_while_threads_extend_and_sample_is_of_one_moment(
    tmp_path: Path, *, through_buffer: bool
) -> None:
    storage = CompressedStorage(100, decide_after=16)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=16, prefetch=2)
    number = count()

    def check(batch: TensorDict) -> None:
        for pixels in (batch["pixels"], batch["next", "pixels"]):
            assert (pixels == batch["number"].view(-1, 1, 1, 1)).all()

    def extend() -> None:
        numbers = torch.full((20,), next(number) % 251, dtype=torch.uint8)
        pixels = numbers.view(20, 1, 1, 1).expand(20, 2, 32, 32).clone()
        following = TensorDict({"pixels": pixels}, [20])
        buffer.extend(TensorDict({"pixels": pixels, "number": numbers, "next": following}, [20]))

    extend()
    with meanwhile(extend, lambda: check(buffer.sample())):
        for i in range(6):
            folder = tmp_path / f"{i % 2}"
            (buffer if through_buffer else storage).dumps(folder)
            copy = CompressedStorage(100)
            copy.loads(folder / "storage" if through_buffer else folder)
            found = copy[torch.arange(len(copy))]
            check(found)
            assert (found["number"].view(-1, 20) == found["number"][::20, None]).all()  # whole batches


def test_another_checkpoint_in_a_folder_writes_only_what_is_new(tmp_path: Path) -> None:
    noise = torch.randint(256, (300, 64, 64), dtype=torch.uint8)
    storage = CompressedStorage(400, codec="zstd:1", decide_after=16, block_frames=1)
    for begin in range(0, 300, 100):
        rows = torch.arange(begin, begin + 100)
        storage.set(rows, TensorDict(noise=noise[rows], batch_size=100))
        before = {file.name for file in tmp_path.rglob("*.segment")}
        storage.dumps(tmp_path)
        new = [file for file in tmp_path.rglob("*.segment") if file.name not in before]
        assert 0.9 * 100 * 64 * 64 < sum(file.stat().st_size for file in new) < 1.3 * 100 * 64 * 64
        copy = CompressedStorage(400, codec="zstd:1", decide_after=16, block_frames=1)
        copy.loads(tmp_path)
        assert torch.equal(copy[torch.arange(len(copy))]["noise"], noise[: begin + 100])
