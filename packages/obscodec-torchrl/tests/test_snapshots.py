"""A storage that is saved and loaded is equal in all that it holds, and goes on as the one that was saved."""

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from obscodec import CorruptStream, FieldError, ShapeError, SnapshotError
from obscodec.snapshots import OpenGeneration, find_snapshot, inspect_snapshot, write_snapshot
from obscodec_torchrl import CompressedStorage, SnapshotHook
from obscodec_torchrl.state import SavedStorage
from tensordict import NonTensorStack, TensorDict, tensorclass
from torchrl.data import PrioritizedSampler, ReplayBuffer, TensorDictReplayBuffer
from two_buffers import first_items, samples

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"codec": "delta-rle"},
    {"codec": {"pixels": "delta-rle|zstd:3", ("next", "pixels"): "delta-rle|zstd:3"}, "frame_stack": 2},
    {"codec": None},
    {"decide_after": 20, "block_frames": 4, "min_nbytes": 256},
]


def steps(begin: int, n: int) -> TensorDict:
    """Stacks of a moving dot, which are compressed, and small leaves, which are not."""
    pixels = torch.zeros(n + 1, 2, 32, 32, dtype=torch.uint8)
    for i in range(n + 1):
        for k in range(2):
            pixels[i, k, (begin + i + k) % 32] = (begin + i + k) % 250 + 1
    reward = torch.randn(n, 1, generator=torch.Generator().manual_seed(begin))
    following = TensorDict(pixels=pixels[1:], reward=reward, batch_size=n)
    return TensorDict(pixels=pixels[:-1], action=torch.arange(begin, begin + n), next=following, batch_size=n)


def new_buffer(**options: Any) -> TensorDictReplayBuffer:
    storage = CompressedStorage(200, **options)
    return TensorDictReplayBuffer(storage=storage, sampler=PrioritizedSampler(200, 0.7, 0.5), batch_size=32)


def extend(buffer: TensorDictReplayBuffer, begin: int, end: int) -> None:
    for first in range(begin, end, 25):
        buffer.extend(steps(first, 25))


def ids_of(storage: CompressedStorage) -> dict[Any, list[int]]:
    return {path: leaf.array.ids.reshape(-1).tolist() for path, leaf in storage.compressed().items()}


def check_alike(given: CompressedStorage, expected: CompressedStorage) -> None:
    """Whether the same is stored in the same way, except for room in memory that nothing fills."""
    assert ids_of(given) == ids_of(expected)
    assert (len(given), given._last_cursor_index) == (len(expected), expected._last_cursor_index)
    stats = [storage.stats() for storage in (given, expected)]
    assert stats[0].raw_bytes == stats[1].raw_bytes
    for name, of in stats[0].fields.items():
        other = stats[1].fields[name]
        if isinstance(of, int):
            assert of == other
        else:
            assert (of.n_tensors, of.live_bytes, of.choice) == (other.n_tensors, other.live_bytes, other.choice)
            assert of.dictionary_bytes == other.dictionary_bytes
    stores = [{leaf.array.store for leaf in storage.compressed().values()} for storage in (given, expected)]
    assert len(stores[0]) == len(stores[1])


def streams_of(storage: CompressedStorage) -> list[bytes]:
    """All streams in the state of a storage."""

    def found(value: Any) -> list[bytes]:
        if isinstance(value, dict):
            return [x for item in value.values() for x in found(item)]
        if isinstance(value, list):
            return [x for item in value for x in found(item)]
        return [b"".join(map(bytes, value))] if type(value).__name__ == "Segments" else []

    return found(storage.state()["stores"])


@pytest.mark.parametrize("n", [25, 150, 375])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_loaded_buffer_goes_on_as_the_saved_one(tmp_path: Path, options: dict[str, Any], n: int) -> None:
    saved, loaded = new_buffer(**options), new_buffer(**options)
    extend(saved, 0, n)
    saved.dumps(tmp_path / "buffer")
    loaded.loads(tmp_path / "buffer")
    assert streams_of(loaded.storage) == streams_of(saved.storage)
    check_alike(loaded.storage, saved.storage)
    for begin in (n, n + 75):
        for buffer in (saved, loaded):
            extend(buffer, begin, begin + 75)
        check_alike(loaded.storage, saved.storage)
    one, other = samples((saved, loaded))
    assert (one == other).all()


@pytest.mark.parametrize("options", OPTIONS)
def test_a_storage_is_made_of_its_arguments_and_state(tmp_path: Path, options: dict[str, Any]) -> None:
    buffer = new_buffer(**options)
    extend(buffer, 0, 100)
    write_snapshot(buffer.storage, tmp_path)
    opened = OpenGeneration(tmp_path)
    made = CompressedStorage.from_arguments(opened.arguments())
    made.restore(opened.state())
    assert (made.options, made.device, made.max_size) == (buffer.storage.options, buffer.storage.device, 200)
    check_alike(made, buffer.storage)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_plain_leaf_of_any_dtype_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    bits = torch.randint(2 if dtype == torch.bool else 256, (30, 3 * dtype.itemsize), dtype=torch.uint8)
    saved, loaded = CompressedStorage(40), CompressedStorage(40)
    saved.set(range(30), TensorDict(leaf=bits.view(dtype), empty=torch.zeros(30, 0, dtype=dtype), batch_size=30))
    saved.dumps(tmp_path)
    loaded.loads(tmp_path)
    assert loaded[:30]["leaf"].dtype == loaded[:30]["empty"].dtype == dtype
    assert torch.equal(loaded[:30]["leaf"].view(torch.uint8), bits)
    assert loaded[:30]["empty"].shape == (30, 0)


@tensorclass
class Step:
    """Items of a class."""

    pixels: torch.Tensor
    number: torch.Tensor
    name: str


def of_class(n: int) -> Any:
    return Step(pixels=steps(0, n)["pixels"], number=torch.arange(n), name="all", batch_size=[n])


def with_agents(n: int) -> TensorDict:
    agents = TensorDict({"pixels": torch.randint(0, 9, (n, 3, 40, 40), dtype=torch.uint8)}, [n, 3])
    return TensorDict({"agents": agents, "empty": TensorDict({}, [n])}, [n])


def with_others(n: int) -> TensorDict:
    texts = NonTensorStack(*(f"step {i}" for i in range(n)))
    mappings = NonTensorStack(*({"a": [1, None, i]} for i in range(n)))
    return steps(0, n).update({"text": texts, "deep": TensorDict({"mapping": mappings}, [n])})


@pytest.mark.parametrize("make", [of_class, with_agents, with_others])
def test_structure_and_other_data_come_back(tmp_path: Path, make: Any) -> None:
    saved, loaded = CompressedStorage(60), CompressedStorage(60)
    saved.set(range(40), make(40))
    saved.dumps(tmp_path)
    loaded.loads(tmp_path)
    check_alike(loaded, saved)
    given, expected = (storage[torch.arange(40)] for storage in (loaded, saved))
    assert type(given) is type(expected)
    for key in expected.keys(include_nested=True, leaves_only=False):
        a, b = given.get(key), expected.get(key)
        assert torch.equal(a, b) if isinstance(b, torch.Tensor) else type(a) is type(b), key
    if make is with_others:
        assert given["text"] == expected["text"]
        assert given["deep", "mapping"] == expected["deep", "mapping"]
    for storage in (saved, loaded):
        storage.set(range(40, 60), make(20))
    check_alike(loaded, saved)


def test_several_axes_of_items_come_back(tmp_path: Path) -> None:
    saved, loaded = (CompressedStorage(100, ndim=2, decide_after=16) for _ in range(2))
    for begin in (0, 10):
        together = torch.stack([steps(begin, 10), steps(begin + 50, 10), steps(begin + 90, 10)], 1)
        saved.set(range(begin, begin + 10), together)
    saved.dumps(tmp_path)
    loaded.loads(tmp_path)
    assert loaded.shape == saved.shape == (20, 3)
    check_alike(loaded, saved)
    assert (loaded[:].clone() == saved[:].clone()).all()


def test_a_leaf_that_came_later_and_rows_that_are_not_counted_come_back(tmp_path: Path) -> None:
    saved, loaded = (CompressedStorage(100, min_nbytes=16) for _ in range(2))
    saved.set(range(60, 80), steps(0, 20))
    saved.set(range(20), steps(20, 20).set("late", torch.arange(5).expand(20, 5).clone()))
    assert len(saved) == 40
    saved.dumps(tmp_path)
    loaded.loads(tmp_path)
    check_alike(loaded, saved)
    assert ("late",) not in loaded.compressed()
    for storage in (saved, loaded):
        storage.set(range(40, 60), steps(40, 20).set("late", torch.zeros(20, 5, dtype=torch.int64)))
    assert (loaded[40:].clone() == saved[40:].clone()).all()


def test_an_emptied_storage_comes_back_with_its_choice(tmp_path: Path) -> None:
    saved, loaded = new_buffer(decide_after=16), new_buffer(decide_after=16)
    extend(saved, 0, 100)
    saved.empty()
    saved.storage.dumps(tmp_path)
    loaded.storage.loads(tmp_path)
    check_alike(loaded.storage, saved.storage)
    assert loaded.storage.stats().fields["pixels"].choice is not None
    for buffer in (saved, loaded):
        extend(buffer, 0, 50)
    check_alike(loaded.storage, saved.storage)


def test_rows_that_are_not_counted_need_room(tmp_path: Path) -> None:
    saved, loaded = CompressedStorage(100), CompressedStorage(60)
    saved.set(range(60, 80), steps(0, 20))
    saved.dumps(tmp_path)
    with pytest.raises(ShapeError, match="the storage has room for 60 items, there are 80"):
        loaded.loads(tmp_path)


@pytest.mark.parametrize("size", [160, 500])
def test_items_stay_encoded_in_a_storage_of_another_size(tmp_path: Path, size: int) -> None:
    saved, loaded = new_buffer(), CompressedStorage(size)
    extend(saved, 0, 150)
    saved.storage.dumps(tmp_path)
    loaded.loads(tmp_path)
    assert loaded.max_size == size
    assert streams_of(loaded) == streams_of(saved.storage)
    assert (loaded[:].clone() == saved.storage[:].clone()).all()


@pytest.mark.parametrize("tree", [False, True])
def test_a_tree_is_loaded_into_its_structure_only(tmp_path: Path, *, tree: bool) -> None:
    images = torch.randint(0, 9, (30, 40, 40), dtype=torch.uint8)
    data = {"image": images, "others": (torch.arange(30), images + 1)} if tree else images
    saved, loaded = CompressedStorage(50), CompressedStorage(50)
    saved.set(range(30), data)
    saved.dumps(tmp_path)
    if tree:
        with pytest.raises(RuntimeError, match="Cannot fill a non-initialized pytree-based TensorStorage"):
            loaded.loads(tmp_path)
    else:
        loaded.loads(tmp_path)
        check_alike(loaded, saved)
        loaded = CompressedStorage(50)
    loaded.set(range(3), {"image": images[:3], "more": torch.arange(3)})
    with pytest.raises(FieldError, match="the storage has the keys"):
        loaded.loads(tmp_path)
    loaded = CompressedStorage(50)
    loaded.set(range(2), {"image": images[:2], "others": (torch.arange(2), images[:2])} if tree else images[:2])
    loaded.loads(tmp_path)
    check_alike(loaded, saved)
    given = ReplayBuffer(storage=loaded)[torch.arange(30)]
    assert torch.equal(given["image"] if tree else given, images)
    assert not tree or torch.equal(given["others"][0], data["others"][0])
    assert not tree or torch.equal(given["others"][1], data["others"][1])


class Thing:
    """What JSON has no word for."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)

    __hash__ = object.__hash__


def test_python_objects_come_back_as_tensordict_saves_them(tmp_path: Path) -> None:
    saved, loaded = CompressedStorage(50), CompressedStorage(50)
    saved.set(range(3), steps(0, 3).set("thing", NonTensorStack(Thing(), Thing(), Thing())))
    saved.dumps(tmp_path)
    with pytest.warns(FutureWarning, match="is loading a pickled non-tensor field"):
        loaded.loads(tmp_path)
    assert loaded[torch.arange(3)]["thing"] == [Thing()] * 3


def changed(state: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A state in which another value is at a path."""
    *parents, name = path.split("/")
    of: Any = state
    for parent in parents:
        of = of[int(parent) if isinstance(of, list) else parent]
    of[int(name) if isinstance(of, list) else name] = value
    return state


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("axes", []),
        ("axes", [0]),
        ("axes/0", 51),
        ("axes/0", -1),
        ("axes/0", 1 << 62),
        ("length", 51),
        ("length", 1.5),
        ("last_row", -2),
        ("is_tree", 1),
        ("is_tree", True),
        ("rest", {}),
        ("rest", {"../../x": np.zeros(1, np.uint8)}),
        ("rest", {"/tmp/x": np.zeros(1, np.uint8)}),
        ("rest/meta.json", np.zeros(3, np.uint8)),
        ("rest/meta.json", None),
        ("stores", []),
        ("stores", None),
        ("stores/0", None),
        ("leaves", []),
        ("leaves/0/path", []),
        ("leaves/0/path", [["pixels"]]),
        ("leaves/0/store", 1),
        ("leaves/0/store", -1),
        ("leaves/0/ids", np.zeros(50, np.int64)),
        ("leaves/0/ids", np.zeros((50, 2), np.int32)),
        ("leaves/0/ids", np.zeros(49, np.int32)),
        ("leaves/0/layout", None),
        ("leaves/1/items", np.zeros(49, np.int64)),
        ("leaves/1/items", np.zeros((), np.int64)),
        ("leaves/1/items", np.zeros(50, "M8[s]")),
        ("leaves/1", {"path": ["action"]}),
        ("leaves/1", "action"),
    ],
)
def test_a_state_of_no_storage_is_refused_and_changes_nothing(tmp_path: Path, path: str, value: Any) -> None:
    saved, storage = CompressedStorage(100), CompressedStorage(100)
    saved.set(range(50), steps(0, 50))
    storage.set(range(10), steps(50, 10))

    class Changed:
        def arguments(self) -> dict[str, Any]:
            return saved.arguments()

        def state(self) -> dict[str, Any]:
            return changed(saved.state(), path, value)

    assert [of["path"] for of in saved.state()["leaves"]][:2] == [["pixels"], ["action"]]
    write_snapshot(Changed(), tmp_path / "snapshot")
    state = OpenGeneration(tmp_path / "snapshot").state()
    from obscodec_torchrl.loading import load

    with pytest.raises((SnapshotError, RuntimeError, FieldError, ShapeError)) as error:
        load(storage, saved.arguments(), state, tmp_path)
    if path not in ("axes/0", "is_tree", "leaves", "leaves/0/path"):
        assert re.match(re.escape(str(tmp_path)) + " has content that obscodec never writes: .+", str(error.value))
    assert (storage[:].clone() == steps(50, 10)).all()


def test_ids_of_no_tensor_are_found_when_they_are_read(tmp_path: Path) -> None:
    saved = CompressedStorage(100)
    saved.set(range(50), steps(0, 50))
    state = changed(saved.state(), "leaves/0/ids", np.full(50, 1 << 20, np.int32))
    made = CompressedStorage(100)
    made.restore(state)
    with pytest.raises(IndexError):
        made[torch.arange(50)]


def test_a_state_is_checked_by_the_storage_itself() -> None:
    saved = CompressedStorage(100)
    saved.set(range(50), steps(0, 50))
    with pytest.raises(CorruptStream):
        CompressedStorage(40).restore(saved.state())
    with pytest.raises(CorruptStream, match=r"^a full storage has 100 items, got 50$"):
        CompressedStorage(100).restore(saved.state() | {"is_full": True})


@pytest.mark.parametrize("spills", [(True, True), (True, False), (False, True)])
def test_a_storage_that_spills_is_loaded_into_any_other(tmp_path: Path, spills: tuple[bool, bool]) -> None:
    options = [{"spill": tmp_path, "max_bytes": 1 << 20} if spill else {} for spill in spills]
    saved, loaded = (new_buffer(**of).storage for of in options)
    saved.set(range(100), steps(0, 100))
    saved.dumps(tmp_path / "saved")
    loaded.loads(tmp_path / "saved")
    assert (loaded[:].clone() == saved[:].clone()).all()
    loaded.set(range(100, 120), steps(100, 20))


def found_in(folder: Path) -> Path:
    found = find_snapshot(folder)
    assert found is not None
    return found


def test_inspect_shows_the_leaves_of_a_storage(tmp_path: Path) -> None:
    buffer = new_buffer()
    extend(buffer, 0, 150)
    buffer.dumps(tmp_path)
    (report,) = inspect_snapshot(found_in(tmp_path))
    assert (report.n_steps, report.damage) == (150, [])
    fields = {field.name: field[1:3] for field in report.fields}
    pixels = steps(0, 1)["pixels"]
    assert fields["pixels"] == (f"uint8{[*pixels.shape[1:]]}", fields["pixels"][1])
    assert fields["pixels"][1] not in ("", "none")
    assert fields["next.pixels"] == (fields["pixels"][0], "shares pixels")
    assert fields["action"] == ("int64[]", "")


@pytest.mark.parametrize("n_steps", [100, 275])
def test_the_first_items_are_the_oldest_in_their_order(n_steps: int, tmp_path: Path) -> None:
    buffer = new_buffer()
    extend(buffer, 0, n_steps)
    buffer.dumps(tmp_path)
    oldest = max(0, n_steps - 200)
    found, expected = first_items(found_in(tmp_path), 60), steps(oldest, 60)
    assert {"pixels", "action", "next.reward"} <= found.keys()
    np.testing.assert_array_equal(found["pixels"], expected["pixels"])
    np.testing.assert_array_equal(found["action"], expected["action"])
    assert len(first_items(found_in(tmp_path), 1000)["action"]) == min(n_steps, 200)


def test_the_first_items_of_several_axes_of_trees_and_of_generations_of_a_hook(tmp_path: Path) -> None:
    rows = CompressedStorage(200, ndim=2)
    rows.set(range(50), torch.stack([steps(0, 50), steps(100, 50)], 1))
    rows.dumps(tmp_path / "rows")
    found = first_items(found_in(tmp_path / "rows"), 20)
    np.testing.assert_array_equal(found["pixels"], steps(0, 20)["pixels"])
    tree = CompressedStorage(50)
    tree.set(range(50), {"obs": [steps(0, 50)["pixels"], torch.arange(50)]})
    tree.dumps(tmp_path / "tree")
    found = first_items(found_in(tmp_path / "tree"), 20)
    np.testing.assert_array_equal(found["obs.[1]"], np.arange(20))
    np.testing.assert_array_equal(found["obs.[0]"], steps(0, 20)["pixels"])
    vectors, numbers = CompressedStorage(50), torch.arange(51)
    vectors.set(range(50), TensorDict(t=numbers[:-1], next=TensorDict(t=numbers[1:], batch_size=50), batch_size=50))
    vectors.dumps(tmp_path / "vectors")
    found = first_items(found_in(tmp_path / "vectors"), 20)
    np.testing.assert_array_equal(found["next.t"], np.arange(1, 21))  # which shares no frames
    buffer = new_buffer(max_bytes=1 << 26, spill=tmp_path)
    extend(buffer, 0, 50)
    hook = SnapshotHook(buffer, tmp_path / "hook", every=1)
    hook.write(50)
    hook.finish()
    np.testing.assert_array_equal(first_items(tmp_path / "hook", 20)["action"], np.arange(20))


def test_a_manifest_counts_the_steps_that_are_saved_though_another_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = new_buffer()
    extend(buffer, 0, 50)
    hook, state, writers = SnapshotHook(buffer, tmp_path, every=10), SavedStorage.state, []

    def state_while_a_thread_writes(self: SavedStorage) -> Any:
        taken = state(self)
        writers.append(threading.Thread(target=extend, args=(buffer, 50, 75)))
        writers[0].start()
        writers[0].join(0.5)
        return taken

    monkeypatch.setattr(SavedStorage, "state", state_while_a_thread_writes)
    hook.write(50)
    hook.finish()
    writers[0].join()
    assert len(buffer) == 75
    (report,) = inspect_snapshot(tmp_path)
    assert report.n_steps == 50
