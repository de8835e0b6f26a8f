"""What is saved is restored as a whole: contents, cursor, sampler; and dumps of TorchRL's own storages load."""

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import obscodec
import obscodec_torchrl
import pytest
import torch
from atari_steps import atari_steps
from obscodec import DTypeError, FieldError, ShapeError, SnapshotError, SpecError
from obscodec.frames import FrameLog
from obscodec_torchrl import CompressedStorage
from tensordict import LazyStackedTensorDict, NonTensorStack, TensorDict
from together import meanwhile
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer
from two_buffers import WAYS, samples

LOG = "state/stores/0/store/blocks/streams"
Copy = Callable[[TensorDictReplayBuffer, TensorDictReplayBuffer, Path], None]


going_on = partial(CompressedStorage, continue_episodes=True)  # with the episodes that it loads, as the others do


def new_buffer(storage: CompressedStorage) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=storage, sampler=PrioritizedSampler(400, 0.7, 0.5), batch_size=32)


def filled(storage: CompressedStorage, n: int) -> TensorDictReplayBuffer:
    buffer = new_buffer(storage)
    steps = atari_steps("Pong", 600, seed=1)
    for begin in range(0, n, 100):
        buffer.extend(steps[begin : begin + 100].clone())
    sample = buffer.sample()
    sample["td_error"] = torch.linspace(0.1, 5, 32)
    buffer.update_tensordict_priority(sample)
    return buffer


def assert_same(given: TensorDictReplayBuffer, expected: TensorDictReplayBuffer) -> None:
    assert len(given) == len(expected)
    everything = torch.arange(len(expected))
    assert (given[everything] == expected[everything]).all()
    for buffer in (given, expected):
        buffer.extend(atari_steps("Pong", 600, seed=1)[:10].clone())  # at the cursor
    one, other = samples((given, expected))
    assert (one == other).all()


def test_a_state_dict_that_does_not_know_the_last_row_is_loaded() -> None:
    state = filled(going_on(400), 100).storage.state_dict()
    values = json.loads(state["_storage"]["values"])
    del values["state"]["last_row"]
    state["_storage"]["values"] = json.dumps(values)
    storage = going_on(400)
    storage.load_state_dict(state)
    assert len(storage) == 100


@pytest.mark.parametrize("copy", WAYS)
@pytest.mark.parametrize("n", [200, 600], ids=["not full", "full"])
@pytest.mark.parametrize("initialized", [False, True])
def test_everything_is_restored(tmp_path: Path, copy: Copy, n: int, *, initialized: bool) -> None:
    source = filled(going_on(400), n)
    target = filled(going_on(400), 300) if initialized else new_buffer(going_on(400))
    copy(source, target, tmp_path)
    assert_same(target, source)


@pytest.mark.parametrize("n", [0, 50])
def test_the_state_of_a_storage_that_was_never_written(n: int) -> None:
    target = going_on(400)
    if n:
        filled(target, n)
    target.load_state_dict(going_on(400).state_dict())
    assert len(target) == 0
    assert all(leaf.array.store.stats().n_tensors == 0 for leaf in target.compressed().values())


@pytest.mark.parametrize("copy", WAYS)
@pytest.mark.parametrize("stock", [LazyTensorStorage, LazyMemmapStorage])
@pytest.mark.parametrize("n", [200, 600], ids=["not full", "full"])
def test_what_a_stock_storage_saved_is_loaded(tmp_path: Path, copy: Copy, stock: type, n: int) -> None:
    source, target = filled(stock(400), n), new_buffer(going_on(400))
    copy(source, target, tmp_path)
    assert_same(target, source)
    assert len(target.storage.compressed()) == 2


def without_layout(values: str) -> str:
    changed = json.loads(values)
    changed["state"]["leaves"][0]["layout"] = "x"
    return json.dumps(changed)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("version",), 77, "the state dict has version 77, this obscodec reads up to 1: update it"),
        (("version",), "1", "the state dict has content that obscodec never writes: 'version' of a state is a int"),
        (("values",), "{", "the state dict has content that obscodec never writes: "),
        (("values",), "{}", "the state dict has content that obscodec never writes: 'arguments' of a state is a dict"),
        (("values",), without_layout, "'layout' of a state is a Layout, got str"),
        (("arrays",), {}, "the state dict has content that obscodec never writes: "),
        (("streams",), {}, "the state dict has content that obscodec never writes: "),
        (("streams", LOG, "bytes"), torch.zeros(3, dtype=torch.uint8), r"streams of \d+ bytes are in 3 bytes"),
        (("streams", LOG, "bytes"), torch.zeros(3), r"'bytes' of a state is uint8\[n\], got float32\[3\]"),
        (("streams", LOG, "lengths"), torch.tensor([-1, 1]), r"streams of 0 bytes are in \d+ bytes"),
        (("streams", LOG, "lengths"), torch.tensor([1]), r"streams of 1 bytes are in \d+ bytes"),
        (("streams", LOG, "lengths"), torch.tensor([1 << 62] * 4), r"streams of 0 bytes are in \d+ bytes"),
    ],
)
def test_a_damaged_state_is_refused(path: tuple[str, ...], value: object, text: str) -> None:
    state = filled(going_on(400), 400).storage.state_dict()
    of = state["_storage"]
    for name in path[:-1]:
        of = of[name]
    assert path[-1] in of
    of[path[-1]] = value(of[path[-1]]) if callable(value) else value
    storage = filled(going_on(400), 100).storage
    before = storage[torch.arange(100)]
    with pytest.raises(SnapshotError, match=text):
        storage.load_state_dict(state)
    assert (storage[torch.arange(100)] == before).all()


@pytest.mark.parametrize("copy", WAYS)
def test_nothing_is_decoded_or_encoded_between_storages(
    tmp_path: Path, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = filled(going_on(400), 600), new_buffer(going_on(400))
    with monkeypatch.context() as patch:
        patch.setattr(FrameLog, "take_in", None)
        patch.setattr(FrameLog, "read", None)
        copy(source, target, tmp_path)
    assert_same(target, source)


def test_a_state_dict_is_compressed_and_loaded_without_objects(tmp_path: Path) -> None:
    source, target = filled(going_on(400), 400).storage, going_on(400)
    torch.save(source.state_dict(), tmp_path / "state.pt")
    assert (tmp_path / "state.pt").stat().st_size < 400 * 2 * 4 * 84 * 84 / 50
    target.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert (target[:].clone() == source[:].clone()).all()


@pytest.mark.parametrize("copy", WAYS)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"codec": "lz4"}, "the storage has codec='lz4', the items in .* were saved with codec='auto': load them into"),
        ({"block_frames": 8}, "the storage has block_frames=8, the items in .* were saved with block_frames=None: "),
        ({"ndim": 2}, "the storage has ndim=2, the items in .* were saved with ndim=1: make a storage with ndim=1"),
    ],
)
def test_options_that_differ_are_named_before_anything_is_read(
    tmp_path: Path, copy: Copy, options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = filled(going_on(400), 100), new_buffer(going_on(400, **options))
    copy(source, new_buffer(going_on(400)), tmp_path)
    monkeypatch.setattr("obscodec.snapshots.OpenGeneration.state", None)
    monkeypatch.setattr("obscodec_torchrl.loading.fill", None)
    with pytest.raises((SpecError, ShapeError), match=text):
        copy(source, target, tmp_path)
    assert len(target) == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda steps: steps.exclude("action"), FieldError),
        (lambda steps: steps.set("pixels", steps["pixels"][:, :2]), ShapeError),
        (lambda steps: steps.set("pixels", steps["pixels"].int()), DTypeError),
    ],
    ids=["key", "shape", "dtype"],
)
def test_a_checkpoint_of_other_items_is_refused_and_changes_nothing(
    tmp_path: Path, change: Callable[[TensorDict], TensorDict], error: type[Exception]
) -> None:
    other = new_buffer(going_on(400))
    other.extend(change(atari_steps("Pong", 600, seed=1)[:300].clone()))
    other.storage.dumps(tmp_path)
    storage = filled(going_on(400), 100).storage
    before, stats = storage[torch.arange(100)], storage.stats()
    with pytest.raises(error):
        storage.loads(tmp_path)
    assert (storage[torch.arange(100)] == before).all()
    assert (len(storage), storage.stats()) == (100, stats)


@pytest.mark.parametrize("stock", [CompressedStorage, LazyTensorStorage])
@pytest.mark.parametrize("size", [300, 500])
def test_a_full_storage_is_loaded_into_one_of_its_size_only(tmp_path: Path, stock: type, size: int) -> None:
    filled(stock(400), 600).storage.dumps(tmp_path)
    with pytest.raises(
        ShapeError, match=f"room for {size} items, there are 400 of a full storage, which need one of its"
    ):
        CompressedStorage(size).loads(tmp_path)


def test_a_state_dict_leaves_the_class_and_the_other_data_of_a_storage_as_they_are() -> None:
    steps = TensorDict({"image": torch.randint(0, 9, (30, 40, 40)), "name": NonTensorStack(*map(str, range(30)))}, [30])
    source, target = (TensorDictReplayBuffer(storage=going_on(60), batch_size=4) for _ in range(2))
    source.extend(steps.clone())
    target.extend(steps[:20].clone())
    target.load_state_dict(source.state_dict())
    assert (target[torch.arange(30)]["image"] == steps["image"]).all()
    target.extend(steps.clone())
    assert target[torch.arange(30, 60)]["name"] == list(map(str, range(30)))


def test_a_storage_is_never_empty_while_it_is_loaded() -> None:
    source, target = (filled(going_on(400), 300) for _ in range(2))
    state, view = source.storage.state_dict(), target.storage[:]["pixels"]
    before = view.clone()

    def watch() -> None:
        assert len(target.storage) == 300
        target.storage.get(torch.arange(3))

    with meanwhile(watch):
        for _ in range(5):
            target.storage.load_state_dict(state)
    assert (view.clone() == before).all()


def test_a_lazy_stack_of_trajectories_is_what_a_checkpointer_of_torchrl_begins_with() -> None:
    """Of parts of a tensordict, in which nothing can be replaced."""
    saved = TensorDict({"pixels": torch.zeros(3, 2, 40, 40, dtype=torch.uint8), "number": torch.zeros(3)}, [3])
    storage = going_on(120, ndim=2)
    storage._init(LazyStackedTensorDict(*(saved._get_sub_tensordict(i) for i in range(3))))
    assert storage._storage.shape == (40, 3)
    assert storage.compressed().keys() == {("pixels",)}


def test_an_empty_storage_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Cannot get elements out of a non-initialized storage"):
        going_on(10).dumps(tmp_path)


@pytest.mark.parametrize("package", [obscodec, obscodec_torchrl])
def test_a_pickle_of_another_version_is_refused(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    source = filled(going_on(400, device="cpu"), 200)
    pickled = pickle.dumps(source.storage)
    monkeypatch.setattr(package, "__version__", "77.0.0")
    with pytest.raises(SnapshotError, match=f"{package.__name__} .*, and here is 77.0.0: .* obscodec.save.* with load"):
        pickle.loads(pickled)


@pytest.mark.parametrize("copy", WAYS)
def test_a_storage_that_takes_its_device_from_data_takes_what_is_restored(tmp_path: Path, copy: Copy) -> None:
    source, target = filled(going_on(400), 300), new_buffer(going_on(400, device="auto"))
    copy(source, target, tmp_path)
    assert target.storage.device == torch.device("cpu")
    assert_same(target, source)
