"""CompressedStorage takes what LazyTensorStorage takes, gives the same, and refuses what could not be written."""

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import obscodec
import pytest
import torch
from atari_steps import atari_steps
from obscodec.frames import FrameLog
from obscodec.torch import CompressedTensor, drawn_together
from obscodec_torchrl import CompressedStorage
from obscodec_torchrl.new_tensors import NewTensors
from tensordict import NonTensorStack, TensorDict, tensorclass
from torchrl.data import (
    LazyTensorStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
    TensorDictRoundRobinWriter,
)
from two_buffers import samples

N = 40
early = partial(CompressedStorage, decide_after=6, block_frames=2)  # decides, and encodes, in a few steps
EVERYTHING = torch.arange(N)


def images(*shape: int, dtype: torch.dtype = torch.uint8, seed: int = 0) -> torch.Tensor:
    drawn = torch.randint(0, 9, (*shape, 1024), generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype)


def steps(*batch: int, seed: int = 0) -> TensorDict:
    pixels = images(batch[0] + 1, *batch[1:], seed=seed)
    following = TensorDict({"pixels": pixels[1:], "done": images(*batch, seed=seed)[..., :1] == 0}, batch)
    return TensorDict(
        {
            "pixels": pixels[:-1],
            "number": torch.arange(batch[0]).view(-1, *[1] * (len(batch) - 1)).expand(*batch),
            "next": following,
        },
        batch,
    )


@tensorclass
class Step:
    image: torch.Tensor
    number: torch.Tensor


DATA = {
    "tensordict": lambda: steps(N),
    "tensordict of sequences": lambda: steps(N, 3),
    "tensorclass": lambda: Step(image=images(N), number=torch.arange(N), batch_size=[N]),
    "tensor": lambda: images(N),
    "pytree": lambda: {"image": images(N), "pair": (torch.arange(N), images(N, seed=1))},
    "non-tensor data": lambda: TensorDict({"i": images(N), "name": NonTensorStack(*map(str, range(N)))}, [N]),
    "bfloat16": lambda: TensorDict({"i": images(N, dtype=torch.bfloat16)}, [N]),
    "bool": lambda: TensorDict({"i": images(N) > 4}, [N]),
    "empty": lambda: TensorDict({"i": torch.zeros(N, 0, 5), "image": images(N)}, [N]),
}


def equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return type(a) is torch.Tensor and isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool((a == b).all())  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", DATA)
def test_whatever_is_stored_comes_back(kind: str) -> None:
    data = DATA[kind]()
    stock, ours = (ReplayBuffer(storage=storage(N + 5), batch_size=16) for storage in (LazyTensorStorage, early))
    for buffer in (stock, ours):
        buffer.extend(data)
    assert len(ours.storage.compressed()) >= 1
    assert equal(ours[EVERYTHING], stock[EVERYTHING])
    expected, given = samples((stock, ours))
    assert equal(given, expected)


INDICES = {
    "integer": 7,
    "negative": -1,
    "slice": slice(3, 20, 4),
    "tensor": torch.tensor([3, 1, 1, 30]),
    "list": [5, 0],
    "range": range(4, 9),
    "mask": EVERYTHING % 3 == 0,
    "all": slice(None),
    "nothing": torch.zeros(0, dtype=torch.int64),
}


@pytest.mark.parametrize("index", INDICES)
def test_an_index_gives_and_sets_what_it_does_in_the_stock_storage(index: str) -> None:
    at = INDICES[index]
    stock, ours = (TensorDictReplayBuffer(storage=storage(N)) for storage in (LazyTensorStorage, early))
    for buffer in (stock, ours):
        buffer.extend(steps(N))
    assert (ours[at] == stock[at]).all()
    new = stock[at].clone()
    new["pixels"] += 1
    new["number"] -= 1
    for buffer in (stock, ours):
        buffer[at] = new
    assert (ours[EVERYTHING] == stock[EVERYTHING]).all()


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_bytes_are_a_mask() -> None:
    mask, expected = EVERYTHING % 3 == 0, images(N).clone()
    storage = early(N)
    storage.set(range(N), images(N))
    expected[mask] = images(N, seed=1)[mask]
    storage.set(mask.byte(), images(N, seed=1)[mask])
    assert torch.equal(storage[EVERYTHING], expected)


def test_views_write_through() -> None:
    storage = early(N)
    storage.set(range(N), steps(N))
    storage[:]["pixels"][3] = 5
    storage[2:6].get(("next", "pixels"))[1].zero_()
    storage[:].set_at_("pixels", torch.full((2, 1024), 6, dtype=torch.uint8), torch.tensor([0, 9]))
    storage.get(1).zero_()
    storage.get(4)["pixels"][()].fill_(7)
    expected = steps(N).clone()
    expected["pixels"][3] = 5
    expected["next", "pixels"][3] = 0
    expected["pixels"][[0, 9]] = 6
    expected[1].zero_()
    expected["pixels"][4] = 7
    given = storage[EVERYTHING]
    assert (given["pixels"] == expected["pixels"]).all()
    assert (given["next", "pixels"] == expected["next", "pixels"]).all()


def test_of_indices_that_occur_twice_the_last_stays_and_nothing_leaks() -> None:
    storage = early(N, codec={"i": "raw"})
    at = torch.tensor([3, 3, 1, 3])
    storage.set(at, TensorDict({"i": images(4)}, [4]))
    assert (storage[torch.tensor([3, 1])]["i"] == images(4)[[3, 2]]).all()
    assert storage.compressed()[("i",)].array.store.stats().n_tensors == 2


@pytest.mark.parametrize("capacity", [12, 40])
def test_two_axes(capacity: int) -> None:
    stock, ours = (
        TensorDictReplayBuffer(storage=storage(capacity * 3, ndim=2), batch_size=16, dim_extend=0)
        for storage in (LazyTensorStorage, early)
    )
    for i in range(4):
        for buffer in (stock, ours):
            buffer.extend(steps(8, 3, seed=i))
        expected, given = samples((stock, ours), i)
        assert (given == expected).all()
        assert all(type(leaf) is torch.Tensor for leaf in given.values(True, True))
    assert (ours[:] == stock[:]).all()
    assert (ours.storage.flatten()[torch.arange(24)] == stock.storage.flatten()[torch.arange(24)]).all()


BAD: dict[str, tuple[Callable[[TensorDict], TensorDict], type[Exception], str]] = {
    "shape": (
        lambda td: td.set("pixels", images(4)[:, :1000]),
        obscodec.ShapeError,
        r"key \('pixels',\): expected shape \(4, 1024\), got \(4, 1000\)",
    ),
    "shape of a plain leaf": (
        lambda td: td.set("number", torch.zeros(4, 2, dtype=torch.int64)),
        obscodec.ShapeError,
        r"key \('number',\): expected shape \(4,\), got \(4, 2\)",
    ),
    "dtype": (
        lambda td: td.set("pixels", images(4, dtype=torch.float32)),
        obscodec.DTypeError,
        r"key \('pixels',\): items are torch.uint8 on cpu, got torch.float32 on cpu",
    ),
    "device": (
        lambda td: td.set("pixels", images(4).to("meta")),
        obscodec.DTypeError,
        r"key \('pixels',\): items are torch.uint8 on cpu, got torch.uint8 on meta",
    ),
    "key": (
        lambda td: td.exclude(("next", "pixels")),
        obscodec.FieldError,
        r"key \('next', 'pixels'\) is missing, there are \('pixels',\), \('number',\), \('next', 'done'\)",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_before_anything_is_written(what: str) -> None:
    spoil, error, text = BAD[what]
    storage = early(N)
    storage.set(range(20), steps(20))
    before = storage[torch.arange(20)]
    with pytest.raises(error, match=text):
        storage.set(range(18, 22), spoil(steps(4, seed=1)))
    assert len(storage) == 20
    assert (storage[torch.arange(20)] == before).all()


def test_an_index_out_of_range_is_refused() -> None:
    storage = early(N)
    storage.set(range(20), steps(20))
    before, n_tensors = storage[torch.arange(20)], storage.compressed()[("pixels",)].array.store.stats().n_tensors
    with pytest.raises(IndexError):
        storage.set(torch.tensor([1, N]), steps(2, seed=1))
    with pytest.raises(IndexError):
        storage.get(torch.tensor([N]))
    assert (storage[torch.arange(20)] == before).all()
    assert storage.compressed()[("pixels",)].array.store.stats().n_tensors == n_tensors


@pytest.mark.parametrize("key", [("next", "pixels"), "next_pixels"])
def test_a_frame_of_a_step_and_of_the_next_one_is_stored_once(key: Any) -> None:
    data = TensorDict({}, [N])
    data[key], data["pixels"] = steps(N)["next", "pixels"], steps(N)["pixels"]
    storage = early(N)
    storage.set(range(N), data)
    stores = {leaf.array.store for leaf in storage.compressed().values()}
    assert [store.stats().n_tensors for store in stores] == [N + 1]
    assert (storage[EVERYTHING] == data).all()


def test_a_codec_for_a_key_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        obscodec.FieldError, match=r"codec is given for \('pixel',\), which is none of the fields \('pixels',\)"
    ):
        early(N, codec={"pixel": "auto"}).set(range(4), steps(4))


def test_stores_decide_and_encode_when_they_are_told_to() -> None:
    told, default = CompressedStorage(N, codec="zstd:1", decide_after=6, block_frames=2), CompressedStorage(N)
    for storage in (told, told.empty_copy(), default):
        storage.set(range(4), steps(4))  # five images
        store = storage.compressed()[("pixels",)].array.store
        if storage is default:
            assert "undecided" in repr(store)
        else:
            assert "block_frames=2" in repr(store)
            assert 2 * 300 < store.stats().live_bytes < 4 * 1024  # two blocks of two images
        assert (storage[torch.arange(4)] == steps(4)).all()


@pytest.mark.parametrize("codec", ["auto", "zstd:1"])
def test_leaves_are_compressed_from_a_size_on(codec: str) -> None:
    data = steps(N)
    for min_nbytes, compressed in {None: 2, 0: 4, 2: 3, 1024: 2, 1025: 0}.items():
        storage = CompressedStorage(N, codec=codec, min_nbytes=min_nbytes)
        storage.set(range(N), data)
        assert len(storage.compressed()) == compressed
        assert (storage[EVERYTHING] == data).all()
    storage.set(range(1), data[:1].set("later", torch.zeros(1, 1024, dtype=torch.uint8)))


def test_codecs_by_key() -> None:
    storage = early(N, codec={("next", "pixels"): "zstd:3", "pixels": None, "number": "raw"})
    storage.set(range(N), steps(N))
    assert storage.compressed().keys() == {("next", "pixels"), ("number",)}
    assert (storage[EVERYTHING]["number"] == EVERYTHING).all()
    uncompressed = CompressedStorage(N, codec=None)
    uncompressed.set(range(N), steps(N))
    assert not uncompressed.compressed()


def test_a_batch_is_as_it_was_when_it_was_drawn_whatever_is_written_before_it_is_decoded() -> None:
    buffer = TensorDictReplayBuffer(storage=early(N, codec="raw"))
    buffer.extend(steps(N))
    with buffer._replay_lock:
        drawn = buffer.storage.get(torch.tensor([3, 30]))
    assert all(isinstance(leaf, CompressedTensor) for leaf in (drawn["pixels"], drawn["next", "pixels"]))
    for i in range(3):
        buffer.extend(steps(N, seed=i + 1))
    batch = buffer._collate_fn(drawn)
    assert (batch["pixels"] == steps(N)["pixels"][[3, 30]]).all()
    assert (batch["next", "pixels"] == steps(N)["next", "pixels"][[3, 30]]).all()
    del drawn, batch
    assert buffer.storage.compressed()[("pixels",)].array.store.stats().n_tensors <= 2 * N


def test_float_images_come_back_bit_for_bit_and_are_narrowed() -> None:
    pixels = atari_steps("Pong", 300, seed=0)["pixels"].float() / 255
    storage = early(300)
    storage.set(range(300), TensorDict({"pixels": pixels}, [300]))
    assert torch.equal(storage[torch.arange(300)]["pixels"], pixels)
    assert storage.compressed()[("pixels",)].array.store.stats().total_bytes < pixels.nbytes / 100


def test_items_that_can_not_be_stacked_are_refused() -> None:
    buffer = ReplayBuffer(storage=early(10))
    with pytest.raises(RuntimeError, match=r"the list resulted in an error: .* got \[4\] at entry 0 and \[1\]"):
        buffer.extend([torch.zeros(4), torch.zeros(1)])


def test_threads_write_a_storage_without_the_lock_of_a_buffer() -> None:
    """The first writes at once, then writes to the same rows: nothing is lost, nothing is dropped twice."""
    for repeat in range(10):
        storage, barrier = early(60), threading.Barrier(2)

        def write(begin: int, repeat: int = repeat, to: CompressedStorage = storage, at: threading.Barrier = barrier):
            at.wait()
            to.set(range(begin, begin + 20), steps(20, seed=begin))
            for seed in range(5):
                to.set(range(40, 60), steps(20, seed=seed + repeat))

        run_together(write, (0, 20))
        assert len(storage) == 60
        for begin in (0, 20):
            assert (storage[torch.arange(begin, begin + 20)] == steps(20, seed=begin)).all()
        assert (storage[torch.arange(40, 60)] == steps(20, seed=4 + repeat)).all()


def test_threads_write_views_while_a_storage_is_written() -> None:
    storage, rows = early(40), range(40)
    storage.set(rows, steps(40))

    def write(seed: int) -> None:
        for _ in range(30):
            if seed:
                storage.set(rows, steps(40, seed=1))
            else:
                storage[:]["pixels"][3:30] = 5

    run_together(write, (0, 1))
    pixels = storage[:]["pixels"].clone()
    assert ((pixels == 5) | (pixels == steps(40, seed=1)["pixels"])).all()
    storage.set(rows, steps(40, seed=2))
    assert (storage[torch.arange(40)] == steps(40, seed=2)).all()


@pytest.mark.slow
def test_what_reads_several_leaves_of_a_slice_reads_them_at_one_moment() -> None:
    """Writes of a storage, and conditional ones of a buffer, change all leaves at once for who compares them."""
    writer = TensorDictRoundRobinWriter(track_generations=True)
    buffer = TensorDictReplayBuffer(storage=early(20), writer=writer, batch_size=20)

    def numbered(number: int) -> TensorDict:
        pixels = torch.full((20, 2, 32, 32), number, dtype=torch.uint8)
        return TensorDict(
            {"pixels": pixels, "next": TensorDict({"pixels": pixels}, [20]), "seen": pixels.float()}, [20]
        )

    buffer.extend(numbered(0))
    done, rows = threading.Event(), torch.arange(20)

    def write() -> None:
        number = 0
        while not done.is_set():
            number = (number + 1) % 250
            if number % 2:
                buffer.storage.set(rows, numbered(number))
            else:
                patch = dict(numbered(number).items(include_nested=True, leaves_only=True))
                buffer.update_if_present(index=rows, generation=writer.generations_of(rows), patch=patch)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(100):
                items, copy = buffer[:], early(20)
                assert torch.equal(items["pixels"], items["next", "pixels"])
                assert (items["seen"] == items["pixels"]).all()
                copy.set(rows, items)
                assert (copy[rows]["seen"] == copy[rows]["pixels"]).all()
                assert (copy[rows]["pixels"] == copy[rows]["next", "pixels"]).all()
        finally:
            done.set()
        writing.result()


def loaded(storage: CompressedStorage) -> CompressedStorage:
    other = early(20)
    other.load_state_dict(storage.state_dict())
    return other


@pytest.mark.parametrize("rebuild", [lambda x: x, lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, loaded])
def test_who_reads_several_leaves_waits_for_who_writes(
    rebuild: Callable[[CompressedStorage], CompressedStorage],
) -> None:
    """Also in a storage that was copied, sent or loaded, whose leaves are in several stores."""
    storage = early(20)
    storage.set(range(20), TensorDict({"pixels": images(20), "depth": images(20, seed=1)}, 20))
    storage = rebuild(storage)
    assert len({leaf.array.store for leaf in storage.compressed().values()}) == 2
    items = storage[:]
    with ThreadPoolExecutor(1) as pool:
        with storage.lock:
            reading = pool.submit(lambda: torch.equal(items["pixels"], items["depth"]))
            with pytest.raises(TimeoutError):
                reading.result(0.5)
        assert not reading.result(60)


def test_a_deep_copy_is_compressed() -> None:
    storage = early(20)
    storage.set(range(20), steps(20))
    copied = copy.deepcopy({"storage": storage, "again": storage})["again"]
    assert copied.compressed().keys() == storage.compressed().keys() != set()
    assert copied.stats().raw_bytes == storage.stats().raw_bytes
    assert copied.stats().total_bytes <= storage.stats().total_bytes  # without room for more in its heap
    before = storage[torch.arange(20)]
    assert (copied[torch.arange(20)] == before).all()
    copied.set(range(20), steps(20, seed=1))
    assert (storage[torch.arange(20)] == before).all()
    assert copy.deepcopy(early(20))._storage is None


def test_what_one_storage_compresses_and_the_other_does_not_goes_both_ways_in_threads() -> None:
    """Who holds the lock of one storage decodes leaves of the other one there, and waits for nobody."""
    a, b = early(20, codec={"a": "raw"}, min_nbytes=1 << 20), early(20, codec={"b": "raw"}, min_nbytes=1 << 20)
    for storage in (a, b):
        storage.set(range(20), TensorDict({"a": images(20), "b": images(20)}, 20))
    drawn = TensorDict({"a": images(20), "b": drawn_together(b.compressed())["b",]}, 20)
    with ThreadPoolExecutor(1) as pool, b.lock:
        pool.submit(a.set, range(20), drawn).result(60)
    assert (a[torch.arange(20)]["b"] == images(20)).all()


def test_a_conditional_write_for_which_there_is_no_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    writer = TensorDictRoundRobinWriter(track_generations=True)
    storage = CompressedStorage(20, codec="raw", decide_after=1, block_frames=1)
    buffer = TensorDictReplayBuffer(storage=storage, writer=writer, batch_size=4)
    zeros = {"a": torch.zeros(20, 16, 1024, dtype=torch.uint8), "b": torch.zeros(20, 32, 1024, dtype=torch.uint8)}
    buffer.extend(TensorDict(zeros | {"number": torch.zeros(20)}, [20]))
    rows = torch.arange(10)
    patch = {
        key: torch.randint(255, (10, *zeros[key].shape[1:]), dtype=torch.uint8, generator=generator) for key in "ab"
    }
    encode = NewTensors._encode

    def refuse_the_second(self: NewTensors, given: list[Any]) -> None:
        if given[0].shape[1] == 32:
            raise MemoryError
        encode(self, given)

    changes = {"number": torch.ones(10)} | patch
    with monkeypatch.context() as refusing:
        refusing.setattr(NewTensors, "_encode", refuse_the_second)
        with pytest.raises(MemoryError):
            buffer.update_if_present(index=rows, generation=writer.generations_of(rows), patch=changes)
    assert not any(storage[rows][key].any() for key in ("a", "b", "number"))
    buffer.update_if_present(
        index=rows, generation=writer.generations_of(rows), patch={"a": patch["a"][:1].expand(10, -1, -1)}
    )
    assert (storage[rows]["a"] == patch["a"][0]).all()


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("n_stores", [1, 2])
def test_a_buffer_that_is_interrupted_when_some_stores_are_written_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, n_stores: int, raised: type[BaseException]
) -> None:
    def of_two_stores(seed: int) -> TensorDict:
        return steps(N, seed=seed).set("depth", images(N, seed=seed + 100))

    buffer = TensorDictReplayBuffer(storage=early(2 * N), batch_size=8)
    for seed in (0, 1):
        buffer.extend(of_two_stores(seed))
    put, n_put = NewTensors.put, 0

    def interrupted(self: NewTensors, *args: Any) -> None:
        nonlocal n_put
        n_put += 1
        put(self, *args)
        if n_put == n_stores:
            patch.setattr(FrameLog, "take_in", None)  # rows are put back without decoding or encoding any
            patch.setattr(FrameLog, "read", None)
            raise raised("of a signal handler")

    new = of_two_stores(2)
    with monkeypatch.context() as patch:
        patch.setattr(NewTensors, "put", interrupted)
        with pytest.raises(raised, match="of a signal handler"):
            buffer.extend(new)
    assert n_put == n_stores
    assert (buffer[EVERYTHING].exclude("index") == of_two_stores(0)).all()
    buffer.extend(of_two_stores(3))
    assert (buffer[EVERYTHING].exclude("index") == of_two_stores(3)).all()


def test_slices_of_two_storages_are_compared_and_written_in_threads() -> None:
    """Each thread reads one under its lock, and writes the other."""
    storages = [early(20), early(20)]
    for storage in storages:
        storage.set(range(20), steps(20))

    def copy(which: int) -> None:
        for _ in range(20):
            mine, other = storages[which], storages[1 - which]
            assert (mine[:]["pixels"] == other[:]["pixels"]).shape == (20, *steps(1)["pixels"].shape[1:])
            other.set(range(20), mine[:])
            other.set(range(2), [mine[0], mine[1]])
            other[:]["pixels"].copy_(mine[:]["pixels"])

    run_together(copy, (0, 1))


def run_together(write: Callable[[int], object], arguments: tuple[int, ...]) -> None:
    with ThreadPoolExecutor(len(arguments)) as pool:
        for done in [pool.submit(write, argument) for argument in arguments]:
            done.result()


def test_after_a_refused_first_write_a_buffer_begins_at_the_start() -> None:
    buffer = TensorDictReplayBuffer(storage=early(N, codec={"pixels": "raw"}), batch_size=32)
    with pytest.raises(obscodec.FieldError):
        buffer.extend(steps(5).exclude("pixels"))
    buffer.extend(steps(5))
    assert (len(buffer), buffer.write_count) == (5, 5)
    assert (buffer[torch.arange(5)].exclude("index") == steps(5)).all()


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("n", [20, N])
def test_after_a_refused_write_a_buffer_goes_on_where_it_was(n: int, *, add: bool) -> None:
    buffer = TensorDictReplayBuffer(storage=early(N), batch_size=32)
    buffer.extend(steps(n))
    bad = steps(5, seed=1).set("pixels", images(5, dtype=torch.float32))
    with pytest.raises(obscodec.DTypeError):
        _ = buffer.add(bad[0]) if add else buffer.extend(bad)
    assert buffer.write_count == n
    buffer.extend(steps(5, seed=2))
    assert len(buffer) == min(n + 5, N)
    expected = steps(n)[:N].clone()
    first = n % N
    given = buffer[torch.arange(len(buffer))].exclude("index")
    assert (given[first : first + 5] == steps(5, seed=2)).all()
    kept = [row for row in range(n) if not first <= row < first + 5]
    assert (given[kept] == expected[kept]).all()


def test_a_refused_write_of_others_leaves_the_cursor_of_a_buffer() -> None:
    storage = early(N)
    buffers = [TensorDictReplayBuffer(storage=storage, batch_size=32) for _ in range(2)]
    for buffer in buffers:
        buffer.extend(steps(10))
    bad = steps(5, seed=1).set("pixels", images(5, dtype=torch.float32))
    with pytest.raises(obscodec.DTypeError):
        storage.set(torch.arange(5, 10), bad)
    assert [buffer.writer._cursor for buffer in buffers] == [10, 10]
    with pytest.raises(obscodec.DTypeError):
        buffers[0].extend(bad)
    assert [buffer.writer._cursor for buffer in buffers] == [10, 10]
    assert [buffer.write_count for buffer in buffers] == [10, 10]


def test_a_large_leaf_that_comes_later_is_refused_and_a_small_one_is_not() -> None:
    storage = early(N)
    storage.set(range(10), steps(10).exclude("number", "pixels"))
    storage.set(range(10, 20), steps(10).exclude("pixels"))
    assert storage[torch.arange(10, 20)]["number"].tolist() == list(range(10))
    with pytest.raises(
        obscodec.FieldError, match=r"key \('pixels',\) was not in the first write, and its items of 1024 b"
    ):
        storage.set(range(20, 30), steps(10))
    plain = CompressedStorage(N, codec=None)
    plain.set(range(10), steps(10).exclude("pixels"))
    plain.set(range(10), steps(10))
    assert (plain[torch.arange(10)] == steps(10)).all()


def test_keys_of_pytrees_that_look_alike_are_told_apart() -> None:
    data = {"a": images(9), "a.": images(9, seed=1), 0: images(9, seed=2), "0": (images(9, seed=3), torch.arange(9))}
    storage = early(9)
    storage.set(range(9), data)
    assert equal(storage[torch.arange(9)], data)


def test_stats_tell_what_the_storage_holds() -> None:
    storage = CompressedStorage(N)
    assert storage.stats().total_bytes == 0
    storage.set(range(20), steps(20))
    stats, store = storage.stats(), storage.compressed()[("pixels",)].array.store
    assert stats.fields == {"pixels": store.stats(), "next.pixels": store.stats(), "number": 160, "next.done": 20}
    assert stats.raw_bytes == 2 * 20 * 1024 + 180
    assert stats.total_bytes == store.stats().total_bytes + 2 * 20 * 4 + 180
