"""A storage whose bytes run out before its rows do has the newest items, in the order in which TorchRL expects them."""

import copy
import mmap
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from obscodec import HeapFull, ShapeError
from obscodec.buffers import MemoryLimit
from obscodec_torchrl import CompressedStorage, row_ring
from tensordict import NonTensorStack, TensorDict
from torchrl.data import (
    LazyTensorStorage,
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorDictRoundRobinWriter,
)
from torchrl.data.replay_buffers.samplers import ConsumingSampler, Sampler

LIMIT, MAX_SIZE = 400_000, 600
OPTIONS: dict[str, Any] = {"codec": "rle|zstd:1", "decide_after": 16, "block_frames": 4}


def images(first: int, n: int, height: int) -> torch.Tensor:
    """Noise, each image by its number."""
    made = torch.zeros(n, 1, 40, 40, dtype=torch.uint8)
    for i in range(n):
        made[i, 0, :height] = torch.randint(
            256, (height, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(first + i)
        )
    return made


def steps(first: int, n: int, height: int = 40) -> TensorDict:
    """Steps of episodes of eleven, in which everything follows from the number of the step."""
    number, pixels = torch.arange(first, first + n), images(first, n + 1, height)
    following = TensorDict(pixels=pixels[1:], done=(number % 11 == 10)[:, None], batch_size=n)
    return TensorDict(pixels=pixels[:-1], number=number, height=torch.full((n,), height), next=following, batch_size=n)


def new_buffer(sampler: Sampler | None = None, max_size: int = MAX_SIZE, **options: Any) -> TensorDictReplayBuffer:
    storage = CompressedStorage(max_size, **{"max_bytes": LIMIT, **OPTIONS, **options})
    return TensorDictReplayBuffer(storage=storage, sampler=sampler or RandomSampler(), batch_size=32, dim_extend=0)


def check(buffer: TensorDictReplayBuffer, n_written: int) -> None:
    """Whether the buffer has the newest steps, intact and in the order in which its writer goes around."""
    n, items = len(buffer), buffer[torch.arange(len(buffer))]
    oldest = buffer.writer._cursor if buffer.storage._is_full else 0
    assert items["number"].roll(-oldest).tolist() == list(range(n_written - n, n_written))
    assert items["index"].tolist() == list(range(n))
    for item in items[:: max(1, n // 20)]:
        number, height = int(item["number"]), int(item["height"])
        assert torch.equal(item["pixels"], images(number, 1, height)[0])
        assert torch.equal(item["next", "pixels"], images(number + 1, 1, height)[0])


@pytest.fixture(autouse=True)
def _compresses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks would wait for a thread in the background, as many as it has time for, and take no part in the limit."""
    monkeypatch.setattr("obscodec.frames.sealer.n_processors", lambda: 1)


@pytest.fixture(autouse=True)
def _warns_once() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".* steps have reached max_bytes")
        yield


def written(buffer: TensorDictReplayBuffer, first: int, n: int, batch: int, height: int = 40) -> int:
    for begin in range(first, first + n, batch):
        buffer.extend(steps(begin, batch, height))
    return first + -(-n // batch) * batch


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_the_newest_steps_stay_whatever_their_size(batch: int) -> None:
    buffer, n, sizes = new_buffer(), 0, []
    slack = batch * 1600 + 100_000  # a write, and a growth of chunks and tables
    for height, n_steps in [(10, 300), (40, 500), (20, 500), (40, 500), (5, 1500)]:
        for _ in range(n_steps // batch):
            buffer.extend(steps(n, batch, height))
            n += batch
            assert buffer.storage.memory_bytes() < LIMIT + slack
            if n % (40 * batch) == 0:
                check(buffer, n)
        check(buffer, n)
        sizes.append(len(buffer))
    small, *large, all_of_them = sizes
    assert small == 300 // batch * batch
    assert min(large) >= 120
    assert all_of_them == MAX_SIZE == buffer.storage.max_size  # the ring opens when there are bytes again
    assert buffer.storage.n_ring_rows is None


def test_the_rows_of_a_write_stay_until_its_sampler_knows_them() -> None:
    buffer = new_buffer(max_size=100, max_bytes=1 << 30)
    written(buffer, 0, 190, 10)
    buffer.storage._limit = MemoryLimit(buffer.storage.memory_bytes() // 2)
    rows = buffer.extend(steps(190, 20))  # around the end
    assert rows.tolist() == [*range(90, 100), *range(10)]
    assert buffer[rows]["number"].tolist() == list(range(190, 210))
    assert len(buffer) == 100
    rows = buffer.extend(steps(210, 20))
    assert buffer[rows]["number"].tolist() == list(range(210, 230))
    assert len(buffer) < 80
    check(buffer, 230)


def test_single_items_are_added() -> None:
    buffer = new_buffer()
    for number in range(700):
        buffer.add(steps(number, 1)[0])
    check(buffer, 700)
    assert 100 < len(buffer) < 280


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    limited, stock = (
        new_buffer(max_bytes=1 << 30),
        TensorDictReplayBuffer(storage=LazyTensorStorage(MAX_SIZE), batch_size=8),
    )
    for buffer in (limited, stock):
        written(buffer, 0, 1000, 50)
    assert (limited[:] == stock[:]).all()


def test_a_storage_chooses_its_codecs_before_it_exceeds_its_limit() -> None:
    storage = CompressedStorage(MAX_SIZE, max_bytes=200_000)  # 256 images have 409,600 bytes before they are compressed
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=10)
    for first in range(0, MAX_SIZE, 50):
        buffer.extend(steps(first, 50, height=2))
    assert len(buffer) == MAX_SIZE
    check(buffer, MAX_SIZE)


def test_it_warns_once_and_tells_how_many_steps_fit() -> None:
    buffer = new_buffer()
    assert (buffer.storage.stats().n_steps, buffer.storage.stats().steps_that_fit) == (0, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written(buffer, 0, 1000, 20)
    texts = [str(x.message) for x in caught if "max_bytes" in str(x.message)]
    assert len(texts) == 1
    assert f"of {MAX_SIZE} steps have reached max_bytes, {LIMIT}" in texts[0]
    stats = buffer.storage.stats()
    assert stats.n_steps == len(buffer)
    assert abs((stats.steps_that_fit or 0) - len(buffer)) < 0.15 * len(buffer)


def test_priorities_move_with_their_steps() -> None:
    buffer, n = new_buffer(PrioritizedSampler(MAX_SIZE, alpha=1.0, beta=1.0, eps=0.0)), 0
    for height in (20, 30, 40):
        for _ in range(60):
            buffer.extend(steps(n, 8, height))
            rows = torch.arange(len(buffer))
            new = rows[buffer[rows]["number"] >= n]
            buffer.update_priority(new, buffer[new]["number"] + 1.0)
            n += 8
    assert buffer.storage.n_ring_rows
    rows = torch.arange(MAX_SIZE)
    numbers, sampler = buffer[rows[: len(buffer)]]["number"], buffer.sampler
    assert sampler._sum_tree[rows[: len(buffer)]].tolist() == (numbers + 1.0).tolist()
    assert sampler._min_tree.query(0, len(buffer)) == numbers.min() + 1
    assert not torch.as_tensor(sampler._sum_tree[rows[len(buffer) :]]).any()
    assert set(buffer.sample()["number"].tolist()) <= set(numbers.tolist())


def test_the_largest_priority_is_that_of_a_step_in_the_buffer() -> None:
    sampler = PrioritizedSampler(200, alpha=1.0, beta=1.0, eps=0.0, max_priority_within_buffer=True)
    buffer = new_buffer(sampler, 200, max_bytes=1 << 30)
    n = written(buffer, 0, 250, 10)
    buffer.update_priority(torch.arange(200), buffer[torch.arange(200)]["number"] + 1.0)
    buffer.update_priority(torch.tensor([195]), torch.tensor([1000.0]))
    buffer.storage._limit = MemoryLimit(buffer.storage.memory_bytes() * 9 // 10)
    n = written(buffer, n, 10, 10)
    assert 80 < len(buffer) < 190
    assert float(sampler._max_priority[0]) == 1000
    assert int(sampler._max_priority[1]) == 195 - (200 - len(buffer))
    check(buffer, n)


@pytest.mark.parametrize("codec", [None, "zstd:1"])
def test_memory_that_is_mostly_of_plain_tensors(codec: str | None) -> None:
    storage = CompressedStorage(20_000, codec=codec, max_bytes=1_000_000, decide_after=16)
    buffer, sizes = TensorDictReplayBuffer(storage=storage, batch_size=8), []
    images, state = torch.zeros(10, 40, 40, dtype=torch.uint8), torch.randn(10, 100)
    for begin in range(0, 12_000, 10):
        number = torch.arange(begin, begin + 10)
        buffer.extend(TensorDict({"state": state, "number": number, "pixels": images}, batch_size=10))
        sizes.append(len(buffer))
    fitting = 1_000_000 // (2016 if codec is None else 416)
    assert 0.7 * fitting < len(buffer) <= fitting + 10
    assert min(sizes[sizes.index(max(sizes)) :]) > 0.7 * fitting
    assert buffer[:]["number"].roll(-buffer.writer._cursor).tolist() == list(range(12_000 - len(buffer), 12_000))
    buffer.empty()
    buffer.extend(TensorDict({"state": state, "number": number, "pixels": images}, batch_size=10))
    assert len(buffer) == 10


def test_memory_that_does_not_fall_has_few_rows_go(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = new_buffer(max_size=200, max_bytes=1 << 30)
    n = written(buffer, 0, 250, 10)
    buffer.storage._limit = MemoryLimit(100)
    monkeypatch.setattr(CompressedStorage, "memory_bytes", lambda _: 110)
    check(buffer, written(buffer, n, 200, 10))
    assert 160 < len(buffer) < 200


@pytest.mark.needs("/proc")
def test_memory_of_rows_that_went_goes_back() -> None:
    buffer = new_buffer(max_size=4000, codec=None, max_bytes=1 << 30)

    def extend(begin: int) -> None:
        number = torch.arange(begin, begin + 10)
        buffer.extend(TensorDict({"state": torch.ones(10, 5000), "number": number}, batch_size=10))

    for begin in range(0, 4010, 10):
        extend(begin)
    before, storage = resident(), buffer.storage
    storage._limit = MemoryLimit(storage.memory_bytes() // 4)
    extend(4010)
    assert 950 < len(buffer) < 1010
    assert before - resident() > 50_000_000
    assert (buffer[:]["state"] == 1).all()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE


def test_rows_that_go_when_the_ring_opens_have_changed() -> None:
    writer = TensorDictRoundRobinWriter(track_generations=True)
    storage = new_buffer(max_size=200, max_bytes=1 << 30).storage
    buffer = TensorDictReplayBuffer(storage=storage, writer=writer, batch_size=8)
    n = written(buffer, 0, 240, 20)
    storage._limit = MemoryLimit(storage.memory_bytes() * 3 // 4)
    n = written(buffer, n, 20, 20)
    assert storage.n_ring_rows
    storage._limit = MemoryLimit(1 << 30)
    while buffer.storage.n_ring_rows:
        rows = torch.arange(len(buffer))
        generations = writer.generations_of(rows)
        n = written(buffer, n, 20, 20, 3)
    gone = rows[len(buffer) :]
    assert len(gone)
    assert (writer.generations_of(gone) != generations[gone]).all()


@pytest.mark.parametrize("cursor", [slice(0, 10), range(10), [*range(10)], torch.arange(10), (torch.arange(10),)])
def test_a_storage_with_a_limit_takes_every_index(cursor: Any) -> None:
    storage = new_buffer().storage
    storage.set(cursor, steps(0, 10))
    assert storage[torch.arange(10)]["number"].tolist() == list(range(10))


def test_slices_are_steps_in_a_row() -> None:
    buffer, n = new_buffer(SliceSampler(slice_len=4, end_key=("next", "done"), strict_length=True)), 0
    for height in (20, 40, 30, 40, 10, 40):
        for _ in range(40):
            buffer.extend(steps(n, 6, height))
            n += 6
            numbers = buffer.sample(32)["number"].reshape(-1, 4)
            assert (numbers.diff(dim=1) == 1).all()
            assert (numbers % 11).diff(dim=1).gt(0).all()
    assert n > 3 * len(buffer)


def test_a_pass_without_replacement_begins_anew_when_rows_go() -> None:
    buffer, n = new_buffer(SamplerWithoutReplacement()), 0
    for _ in range(100):
        buffer.extend(steps(n, 16, 20 + n % 21))
        n += 16
        assert (buffer.sample(32)["number"] >= n - len(buffer)).all()


def test_rows_of_several_environments() -> None:
    buffer = new_buffer(max_size=1000, ndim=2)
    n_rings = 0
    for number in range(300):
        buffer.extend(steps(2 * number, 2, 20 + number // 20).reshape(1, 2))  # a row of two environments
        rows, n = buffer.storage.n_ring_rows, len(buffer)
        n_rings += rows is not None
        if number % 10 == 0:
            assert buffer.storage.max_size == (1000 if rows is None else 2 * rows)
            assert buffer.storage.shape == (n // 2, 2)
            assert (buffer.sample()["number"] >= 2 * (number + 1) - n).all()
            numbers = buffer[:]["number"].roll(-buffer.writer._cursor if rows else 0, 0).reshape(-1)
            assert numbers.tolist() == list(range(2 * (number + 1) - n, 2 * (number + 1)))
            assert (buffer.storage.flatten()[:]["number"] == buffer[:]["number"].reshape(-1)).all()
            newest = buffer[buffer.writer._cursor - 1]
            assert torch.equal(newest["pixels"][1].clone(), images(2 * number + 1, 1, 20 + number // 20)[0])
    assert n_rings > 50
    assert len(buffer) < 500


def test_a_pytree_and_data_that_are_no_tensors() -> None:
    storage = CompressedStorage(MAX_SIZE, max_bytes=LIMIT, **OPTIONS)
    buffer = ReplayBuffer(storage=storage, batch_size=8)
    for number in range(0, 800, 8):
        buffer.extend((images(number, 8, 20 + number // 40), {"number": torch.arange(number, number + 8)}))
    pixels, others = storage[torch.arange(len(storage))]
    assert others["number"].roll(-buffer.writer._cursor).tolist() == list(range(800 - len(storage), 800))
    assert torch.equal(pixels[buffer.writer._cursor - 1], images(799, 1, 39)[0])
    assert len(storage) < MAX_SIZE
    named = new_buffer()
    for number in range(0, 800, 8):
        names = NonTensorStack(*[f"step {number + i}" for i in range(8)])
        named.extend(steps(number, 8, 20 + number // 40).set("name", names))
    check(named, 800)
    items = named[torch.arange(len(named))]
    assert items.get("name").tolist() == [f"step {number}" for number in items["number"].tolist()]
    assert len(named) < MAX_SIZE


def test_generations_tell_that_rows_have_moved() -> None:
    buffer = new_buffer()
    writer = TensorDictRoundRobinWriter(track_generations=True)
    buffer = TensorDictReplayBuffer(storage=buffer.storage, writer=writer, batch_size=8)
    moves = 0
    for number in range(0, 1200, 12):
        rows = torch.arange(len(buffer))
        before = (buffer[rows]["number"], writer.generations_of(rows)) if number else (rows, rows)
        buffer.extend(steps(number, 12, 20 + number // 60))
        left = rows[rows < len(buffer)]
        same = buffer[left]["number"] == before[0][left]
        moves += int((~same).sum()) > 12
        assert same.logical_or(writer.generations_of(left) != before[1][left]).all()
    assert moves > 3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_a_copy_goes_on_as_the_original(copied: Callable[[Any], Any]) -> None:
    buffer = new_buffer()
    n = written(buffer, 0, 500, 10, 30)
    other = copied(buffer)
    for one in (buffer, other):
        check(one, written(one, n, 300, 10))
        assert 120 < len(one) < 300
        one.empty()
        assert (len(one), one.storage.max_size) == (0, MAX_SIZE)
        check(one, written(one, 0, 500, 10))


def test_a_ring_takes_the_items_of_a_stock_storage_of_single_tensors() -> None:
    stock = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=8)
    stock.extend(images(0, 100, 40))
    buffer = ReplayBuffer(storage=CompressedStorage(100, codec=None, max_bytes=100_000), batch_size=8)
    while buffer.storage.n_ring_rows is None:
        buffer.extend(images(len(buffer), 10, 40))
    assert buffer.storage.max_size < 100
    buffer.load_state_dict(stock.state_dict())
    assert (len(buffer), buffer.storage.max_size) == (100, 100)
    assert torch.equal(buffer[:].clone(), images(0, 100, 40))


@pytest.mark.parametrize("how", ["dumps", "state_dict"])
def test_a_ring_is_saved_and_loaded(tmp_path: Path, how: str) -> None:
    buffer, loaded, larger = new_buffer(), new_buffer(), new_buffer(max_size=MAX_SIZE + 100)
    n = written(buffer, 0, 500, 10)
    assert buffer.writer._cursor not in (0, len(buffer))
    buffer.dumps(tmp_path / "buffer")
    state = buffer.state_dict()
    for other in (loaded, larger):
        written(other, 5000, 20, 10)
        other.loads(tmp_path / "buffer") if how == "dumps" else other.load_state_dict(copy.deepcopy(state))
        check(other, n)
        assert (other.storage.max_size, other.storage.capacity) == (len(buffer), other.storage.n_rows)
        check(other, written(other, n, 300, 10))
    unlimited = new_buffer(max_bytes=None)
    with pytest.raises(ShapeError, match="of a full storage, which need one of its size"):
        unlimited.loads(tmp_path / "buffer")
    roomy = new_buffer(max_bytes=1 << 30)
    roomy.loads(tmp_path / "buffer")
    check(roomy, written(roomy, n, 2000, 10, 5))
    assert len(roomy) == MAX_SIZE


def test_a_checkpoint_above_the_limit_is_loaded_and_shrinks_with_the_next_writes(tmp_path: Path) -> None:
    saved = new_buffer(max_bytes=None)
    n = written(saved, 0, 500, 10)
    saved.dumps(tmp_path)
    for options in ({}, {"codec": "zstd:1"}):
        loaded = new_buffer(**options)
        loaded.loads(tmp_path)
        check(loaded, 500)
        check(loaded, written(loaded, n, 40, 10))
        assert 120 < len(loaded) < 450
        assert loaded.storage.memory_bytes() < LIMIT + 100_000


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")  # in TorchRL
@pytest.mark.parametrize("which", ["writer", "sampler", "priorities", "two buffers"])
def test_where_rows_are_no_ring_the_limit_refuses(which: str) -> None:
    ndim = 2 if which == "priorities" else 1
    storage = CompressedStorage(MAX_SIZE, max_bytes=LIMIT, ndim=ndim, **OPTIONS)
    parts: dict[str, Any] = {
        "priorities": {"sampler": PrioritizedSampler(MAX_SIZE, 0.7, 0.9), "dim_extend": 0},
        "writer": {"writer": TensorDictMaxValueWriter(rank_key="number")},
        "sampler": {"sampler": ConsumingSampler()},
        "two buffers": {},
    }[which]
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=8, **parts)
    if which == "two buffers":
        other = TensorDictReplayBuffer(storage=storage, batch_size=8)
        other.extend(steps(0, 8))

    def fill() -> None:
        for begin in range(0, MAX_SIZE, 10):
            buffer.extend(steps(begin, 10).reshape((10,) if ndim == 1 else (5, 2)))

    with pytest.raises(HeapFull, match="one buffer with a RoundRobinWriter"):
        fill()
    assert 100 < len(storage) < 300


def test_a_limit_below_sixteen_steps_refuses() -> None:
    buffer = new_buffer(max_bytes=1000)
    with pytest.raises(HeapFull, match=r"takes \d+ for its \d+ newest steps"):
        written(buffer, 0, 100, 1)
    check(buffer, len(buffer))
    assert len(buffer) <= 16


def test_an_exception_at_any_line_leaves_everything_in_order() -> None:
    """The next call finishes what was interrupted, or makes up for it."""
    buffer, n_lines = new_buffer(PrioritizedSampler(MAX_SIZE, 0.7, 0.9)), 0
    n = written(buffer, 0, 400, 10, 20)
    while True:
        at, count = 3 * n_lines, 0

        def trace(frame: Any, event: str, _: Any, at: int = at) -> Any:
            nonlocal count
            if frame.f_code.co_filename != row_ring.__file__:
                return None
            if event == "line":
                count += 1
                if count > at:
                    raise KeyboardInterrupt
            return trace

        raised = False
        sys.settrace(trace)
        try:
            buffer.extend(steps(n, 10))
        except KeyboardInterrupt:
            raised = True
        finally:
            sys.settrace(None)
        last = int(buffer[torch.arange(len(buffer))]["number"].max()) + 1
        assert last in ((n, n + 10) if raised else (n + 10,))
        n = last
        check(buffer, n)
        buffer.sample()
        if not raised and count > 300:  # a whole move, of some rows at a time
            break
        n_lines = n_lines + 1 if raised else n_lines
        assert n_lines < 900
    assert n_lines > 60


def test_a_failed_allocation_is_made_up_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = new_buffer()
    n, append = written(buffer, 0, 400, 10, 20), row_ring.append_together
    random = Random(0)

    def failing(*args: Any) -> Any:
        if random.random() < 2 / 3:
            raise MemoryError
        return append(*args)

    monkeypatch.setattr(row_ring, "append_together", failing)
    n_failed = 0
    for begin in range(n, n + 300, 10):
        try:
            buffer.extend(steps(begin, 10))
        except MemoryError:  # from what the last call has left; nothing is written then
            n_failed += 1
            while True:
                try:
                    buffer.extend(steps(begin, 10))
                    break
                except MemoryError:
                    n_failed += 1
    monkeypatch.undo()
    check(buffer, n + 300)
    assert n_failed > 5
