"""A CompressedStorage that decodes on a GPU gives what a LazyTensorStorage gives."""

import copy
import gc
import math
import pickle
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

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


def both(device: torch.device, cuda: str, **options: object) -> list[TensorDictReplayBuffer]:
    ours = CompressedStorage(CAPACITY, device=device, buffer_device=cuda, **{"codec": "delta-rle", **options})
    storages = [LazyTensorStorage(CAPACITY, device=device), ours]
    return [TensorDictReplayBuffer(storage=storage, batch_size=32) for storage in storages]


def assert_equal(found: TensorDict, expected: TensorDict) -> None:
    leaves = dict(expected.items(include_nested=True, leaves_only=True))
    for key, leaf in leaves.items():
        assert type(found[key]) is type(leaf)
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
def test_samples_are_those_of_the_stock_storage(sampler, heap, steps, cuda, torch_device, no_host):
    buffers = both(torch_device, cuda, heap=heap)
    for buffer in buffers:
        buffer._sampler = SAMPLERS[sampler]()
    for begin in range(0, 400, 50):  # beyond the capacity, so that it wraps around
        written = steps[begin : begin + 50].to(torch_device if begin % 100 else "cpu")
        for buffer in buffers:
            buffer.extend(written.clone())
        with no_host() if begin > 150 else nullcontext():  # the first items are kept as they are
            stock, ours = samples_of(buffers, begin)
        assert_equal(ours, stock)


@pytest.mark.filterwarnings("ignore:items of float8_e5m2 are kept on the CPU:UserWarning")
@pytest.mark.parametrize("codec", ["delta-rle", "auto"])
def test_dtypes_that_libraries_for_gpus_lack_are_decoded_on_the_cpu(codec, cuda, torch_device):
    storage = CompressedStorage(300, codec=codec, device=torch_device, buffer_device=cuda)
    bits = torch.arange(300)[:, None, None] + torch.arange(1024).reshape(32, 32)
    random = torch.randint(-(1 << 31), 1 << 31, (300, 32, 32), generator=torch.Generator().manual_seed(0))
    items = {"small": bits.to(torch.uint8).view(torch.float8_e5m2), "common": random.to(torch.int32)}
    storage.set(range(300), TensorDict(items, [300]).to(torch_device))
    found = storage[torch.arange(0, 300, 7)]
    for key, tensor in items.items():
        assert found[key].device == torch_device
        assert torch.equal(found[key].cpu().view(torch.uint8), tensor[::7].view(torch.uint8))
    assert [leaf.array.store.device for leaf in storage.compressed().values()] == ["cpu", cuda]


def test_what_is_written_through_views_is_what_the_stock_storage_holds(steps, cuda, torch_device):
    buffers = both(torch_device, cuda)
    for buffer in buffers:
        buffer.extend(steps[:200].clone())
        view = buffer[:]["pixels"]
        view[5:9] = steps["pixels"][300:304].to(torch_device)
        view[torch.tensor([7, 30])] = steps["pixels"][350:352].to(torch_device)
        view[40, 0] = 7
        view[50:60].zero_()
    stock, ours = (buffer[torch.arange(200)] for buffer in buffers)
    assert_equal(ours, stock)
    assert torch.equal(buffers[1][3]["pixels"].clone(), buffers[0][3]["pixels"])
    assert torch.equal(buffers[1][:]["pixels"].float(), buffers[0][:]["pixels"].float())


def test_threads_draw_ahead_while_steps_are_overwritten(cuda, torch_device):
    storage = CompressedStorage(64, device=torch_device, buffer_device=cuda, codec="delta-rle")
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=32, prefetch=2)
    for number in range(0, 400, 10):
        numbers = torch.arange(number, number + 10)
        pixels = (numbers % 251).to(torch.uint8)[:, None, None].expand(10, 32, 32)
        buffer.extend(TensorDict({"pixels": pixels, "number": numbers}, [10]).to(torch_device))
        for _ in range(2):
            batch = buffer.sample()
            assert torch.equal(batch["pixels"].amax((1, 2)).long(), batch["number"] % 251)
            assert torch.equal(batch["pixels"].amin((1, 2)).long(), batch["number"] % 251)


@pytest.mark.parametrize("way", ["state_dict", "dumps", "pickle"])
@pytest.mark.parametrize("goes", ["there", "back"])
def test_contents_go_to_another_device_and_back(goes, way, steps, cuda, torch_device, tmp_path: Path):
    places = ["cpu", cuda] if goes == "there" else [cuda, "cpu"]
    source, target = (
        TensorDictReplayBuffer(
            storage=CompressedStorage(
                CAPACITY, device=torch_device, buffer_device=place, codec="delta-rle", continue_episodes=True
            )
        )
        for place in places
    )
    source.extend(steps[:200].clone())
    source.extend(steps[200:250].clone())
    if way == "pickle":
        target = pickle.loads(pickle.dumps(source))
        assert target.storage.options.buffer_device == places[0]
    elif way == "dumps":
        source.dumps(tmp_path)
        target.loads(tmp_path)
    else:
        target.load_state_dict(source.state_dict())
    for buffer in (source, target):
        buffer.extend(steps[250:300].clone())
    assert_equal(target[torch.arange(CAPACITY)], source[torch.arange(CAPACITY)])


def test_steps_that_another_storage_encoded_are_taken_over(steps, cuda, torch_device, no_host):
    """As an actor on the CPU sends them: blocks are copied as they are."""
    sent = CompressedStorage(150, codec="delta-rle", device=torch_device, buffer_device="cpu")
    sent.set(range(150), steps[:150])
    stock, ours = both(torch_device, cuda)
    ours.extend(steps[200:400].clone())
    stock.extend(steps[200:400].clone())
    ours.extend(pickle.loads(pickle.dumps(sent[:])))
    stock.extend(steps[:150].clone())
    with no_host():
        samples = samples_of([stock, ours])
    assert_equal(samples[1], samples[0])


@pytest.mark.parametrize("ndim", [1, 2])
def test_an_index_on_the_gpu_stays_there(ndim, steps, cuda, torch_device, no_host, monkeypatch):
    """Also before the storage is full, when an index from the end is one of the items so far."""
    ours = CompressedStorage(40 * ndim, ndim=ndim, device=torch_device, buffer_device=cuda, codec="delta-rle")
    stock = LazyTensorStorage(40 * ndim, ndim=ndim, device=torch_device)
    items = steps[:50].to(torch_device) if ndim == 1 else steps[:100].reshape(50, 2).to(torch_device)
    rows = torch.tensor([3, -1, 0, 24, -25, 3]).to(torch_device)
    at = rows if ndim == 1 else (rows, torch.tensor([0, 1, -1, 0, -2, 1]).to(torch_device))
    for storage in (stock, ours):
        storage.set(range(25), items[:25])
    ours.decide()
    for begin in (0, 25, 35):
        for storage in (stock, ours):
            if begin:
                storage.set([k % 40 for k in range(begin, begin + 10)], items[begin : begin + 10])
        with no_host(), monkeypatch.context() as patch:
            patch.setattr("obscodec.torch.compressed_tensor.as_index", None)
            found = ours.get(at if ndim == 2 else (at,) if begin else at)
        assert_equal(found, stock.get(at))
    for copied in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert_equal(copied.get(at), stock.get(at))
        assert_equal(ours.get(at), stock.get(at))


@pytest.mark.parametrize(
    ("shape", "n_written", "index"),
    [
        ((40,), 40, [[3, -41]]),
        ((40,), 40, [[3, 40]]),
        ((40,), 20, [[3, 25]]),
        ((40,), 20, [[3, -21]]),
        ((20, 2), 40, [[3, 9], [1, 2]]),
        ((20, 2), 40, [[3, 9], [1, -3]]),
        ((20, 2), 20, [[3, 12], [1, 1]]),
    ],
)
def test_an_index_on_the_gpu_that_is_out_of_range_shows_at_the_next_read(
    shape, n_written, index, steps, cuda, torch_device
):
    storage = CompressedStorage(40, ndim=len(shape), device=torch_device, buffer_device=cuda, codec="delta-rle")
    items = steps[:n_written].exclude("index").reshape(n_written // math.prod(shape[1:]), *shape[1:])
    storage.set(range(len(items)), items)
    storage.decide()
    at = tuple(torch.tensor(part).to(torch_device) for part in index)
    pixels = storage._storage["pixels"].array
    batch = storage._device_batch(at)
    batch.read()
    assert not batch.room_for(pixels, batch.index)[1].any()
    right = tuple(part[:1] for part in at)
    with pytest.raises(obscodec.SlotError, match="sample 1 of a batch asks for a tensor that the store does not have"):
        storage.get(right)
    expected = items["pixels"][tuple(torch.tensor(part[:1]) for part in index)]
    assert torch.equal(storage.get(right)["pixels"], expected.to(torch_device))


def test_what_was_loaded_over_is_not_kept(steps, cuda, torch_device):
    storage = CompressedStorage(40, device=torch_device, buffer_device=cuda, codec="delta-rle")
    storage.set(range(40), steps[:40])
    storage.decide()
    storage.get(torch.tensor([3]).to(torch_device))
    saved, old = storage.state_dict(), [weakref.ref(store) for store in storage.stores()]
    storage.load_state_dict(saved)
    gc.collect()
    assert [known() for known in old] == [None] * len(old)


def test_without_a_gpu_a_storage_says_what_is_missing(monkeypatch):
    def refuse(name: str) -> None:
        raise obscodec.BackendUnavailable(f"device {name!r} needs the NVIDIA driver")

    monkeypatch.setattr("obscodec_cupy.device.opened.device", refuse)
    for options in ({"device": "cuda:0"}, {"buffer_device": "cuda:0"}, {"device": "cuda:1", "buffer_device": "cuda:0"}):
        with pytest.raises(obscodec.BackendUnavailable, match="device 'cuda:0' needs the NVIDIA driver"):
            CompressedStorage(100, **options)
    assert CompressedStorage(100, device="cuda:0", buffer_device="cpu").device == torch.device("cuda:0")
    with pytest.raises(obscodec.SpecError, match="heap='pinned' is for a GPU, got it for the CPU"):
        CompressedStorage(100, heap="pinned")
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'head', did you mean 'heap'\\?"):
        CompressedStorage(100, head="pinned")


def test_samples_are_on_the_device_that_decodes_them(cuda):
    with pytest.raises(obscodec.DTypeError, match="what is kept on 'cuda' is decoded there, so batches must be there"):
        CompressedStorage(100, device="meta", buffer_device=cuda)
