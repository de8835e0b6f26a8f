"""The options of LazyTensorStorage mean the same, or nothing, or are refused with what to do."""

import pickle
import re
from pathlib import Path

import obscodec
import pytest
import torch
from obscodec.buffers import BufferKeywords
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, RandomSampler, TensorDictReplayBuffer, TensorDictRoundRobinWriter

N = 20


def steps(n: int = N, device: str | None = None) -> TensorDict:
    image = torch.arange(n, dtype=torch.uint8)[:, None].expand(n, 2000).clone()
    return TensorDict({"image": image, "number": torch.arange(n)}, [n], device=device)


@pytest.mark.parametrize("device", ["tpu", None, 3.5])
def test_what_is_no_device_of_torch_is_refused(device: object) -> None:
    with pytest.raises(obscodec.SpecError) as error:
        CompressedStorage(N, device=device)
    assert str(error.value) == f"{device!r} is no device of PyTorch: pass 'cpu' or 'cuda'"


def test_a_pytorch_for_the_cpu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a plain ``pip install torch`` on many machines; here its CUDA is taken away."""

    def without_cuda(*_: object, **__: object) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch, "empty", without_cuda)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(obscodec.BackendUnavailable, match=r"^PyTorch can't use the device 'cuda': .* install one with"):
        CompressedStorage(N, device="cuda")


def test_arrays_of_numpy_are_refused() -> None:
    text = "a storage takes tensors of PyTorch, got ndarray: convert it, as in torch.as_tensor(x)"
    with pytest.raises(obscodec.DTypeError, match=f"^{re.escape(text)}$"):
        CompressedStorage(N).set(0, {"a": torch.zeros(3), "b": torch.zeros(3).numpy()})


def test_a_storage_prints_its_size() -> None:
    storage = CompressedStorage(N)
    assert repr(storage).splitlines()[-1] == "    size=empty)"
    storage.set(range(N), steps())
    size = "40.2 kB in memory, 40.2 kB uncompressed: nothing is compressed yet"
    assert repr(storage).splitlines()[-2:] == [f"    max_size={N}, ", f"    size={size})"]
    storage.decide()
    assert repr(storage).splitlines()[-1] == f"    size={storage.stats().summary})"


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("single", [False, True], ids=["batch", "single item"])
@pytest.mark.parametrize("codec", ["auto", None])
def test_the_device_of_the_first_tensordict(device: str | None, codec: str | None, *, single: bool) -> None:
    data = steps(device=device)
    storages = LazyTensorStorage(N, device="auto"), CompressedStorage(N, device="auto", codec=codec)
    for storage in storages:
        storage.set(0, data[0]) if single else storage.set(range(N), data)
    stock, ours = storages
    assert ours.device == stock.device == data.device
    for index in (slice(None), torch.arange(len(ours))):
        assert (ours[index] == stock[index]).all()
        assert ours[index].device == stock[index].device
        assert ours[index]["image"].device == stock[index]["image"].device


def test_the_device_of_a_tensor() -> None:
    storage = CompressedStorage(N, device="auto")
    storage.set(range(N), steps()["image"])
    assert storage.device == torch.device("cpu")
    assert torch.equal(storage[torch.arange(N)], steps()["image"])


@pytest.mark.parametrize(("name", "value"), [("max_size", "10"), ("ndim", "1"), ("max_size", None)])
def test_numbers_that_are_none(name: str, value: object) -> None:
    with pytest.raises(obscodec.DTypeError, match=f"^{name} must be "):
        CompressedStorage(**{"max_size": N, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_size", 1.5), ("max_size", -1), ("max_size", 0), ("ndim", 0), ("decide_after", 0), ("block_frames", 0)],
)
def test_numbers_that_are_out_of_range(name: str, value: float) -> None:
    with pytest.raises(obscodec.ShapeError, match=f"^{name} must be .*{value}"):
        CompressedStorage(**{"max_size": N, name: value})
    assert CompressedStorage(1e3, ndim=2).max_size == 1000


def test_a_storage_without_a_device_is_sampled_saved_and_restored(tmp_path: Path) -> None:
    source, target = (
        TensorDictReplayBuffer(storage=CompressedStorage(N, device="auto"), batch_size=8) for _ in range(2)
    )
    for buffer in (source, target):
        buffer.extend(steps())
        assert buffer.storage.device is None
        sample = buffer.sample()
        assert torch.equal(sample["image"][:, 0].long(), sample["number"])
    target.extend(steps().flip(0))
    for _ in range(2):
        source.dumps(tmp_path)
        target.loads(tmp_path)
        assert target.storage.device is None
        assert (target[:] == source[:]).all()
    target.load_state_dict(source.state_dict())
    assert (pickle.loads(pickle.dumps(target.storage))[:] == source[:]).all()


REFUSED = {
    "consolidated=True asks for all leaves in one block of memory, and compressed leaves are in none: leave it out": {
        "consolidated": True
    },
    "cleanup_memmap=False asks to keep memory-mapped files of shared_init=True, which writes none: leave it out": {
        "shared_init": True,
        "cleanup_memmap": False,
    },
    "compilable=True is for a storage of one process, shared_init=True for one of several: leave one out": {
        "shared_init": True,
        "compilable": True,
    },
    "max_bytes needs spill, a folder for blocks that exceed it: pass spill, or leave max_bytes out and make max_size "
    "smaller; obscodec.estimate(env, max_size) says how many bytes the full storage will take": {"max_bytes": 1 << 20},
}


@pytest.mark.parametrize("text", REFUSED)
def test_options_that_ask_for_what_is_not_there_are_refused(text: str) -> None:
    with pytest.raises(obscodec.SpecError) as error:
        CompressedStorage(N, **REFUSED[text])
    assert str(error.value) == text


@pytest.mark.parametrize(
    "options",
    [
        {"shared_init": True},
        {"shared_init": True, "cleanup_memmap": True},
        {"cleanup_memmap": False},
        {"consolidated": False},
        {"compilable": True},
    ],
    ids=str,
)
def test_options_that_ask_for_nothing_more_are_taken(options: dict[str, bool]) -> None:
    storage = CompressedStorage(N, **options)
    with pytest.raises(RuntimeError, match="Cannot get elements out of a non-initialized storage"):
        storage.get(0)
    storage.set(range(N), steps())
    for each in (storage, pickle.loads(pickle.dumps(storage))):
        assert (each[torch.arange(N)] == steps()).all()
        assert (each.shared_init, each._compilable) == (options.get("shared_init", False), "compilable" in options)
    copy = storage.empty_copy()
    assert (len(copy), copy._compilable) == (0, storage._compilable)


@pytest.mark.slow
@pytest.mark.parametrize("compilable", [False, True])
def test_compiled_code_calls_the_storage(*, compilable: bool) -> None:
    buffer = TensorDictReplayBuffer(
        storage=CompressedStorage(N, compilable=compilable),
        writer=TensorDictRoundRobinWriter(compilable=compilable),
        sampler=RandomSampler(),
        batch_size=8,
        compilable=compilable,
    )

    @torch.compile(backend="eager")
    def extend_and_sample(data: TensorDict) -> TensorDict:
        buffer.extend(data)
        return buffer.sample()

    for _ in range(3):
        sample = extend_and_sample(steps(7))
        assert torch.equal(sample["image"][:, 0].long(), sample["number"])
    assert (buffer[torch.arange(7)].exclude("index")["number"] - torch.arange(7)).abs().max() == 6  # it went around
    assert len(buffer) == N


def test_compiled_code_without_a_break_is_refused() -> None:
    storage = CompressedStorage(N, compilable=True)
    storage.set(range(N), steps())
    write = torch.compile(storage.set, backend="eager", fullgraph=True)
    with pytest.raises(
        torch._dynamo.exc.Unsupported,
        match="a CompressedStorage is called from compiled code, but not compiled: leave fullgraph=True out",
    ):
        write(torch.arange(N), steps())


def test_a_codec_that_is_none_is_refused_before_the_first_write() -> None:
    text = "no codec is named 'zstd3' (in spec 'zstd3'), did you mean 'zstd:3'? There are "
    for codec in ("zstd3", {("next", "pixels"): "zstd3"}):
        with pytest.raises(obscodec.SpecError, match=f"^{re.escape(text)}"):
            CompressedStorage(N, codec=codec)


def test_an_option_that_is_none_names_the_storage_and_what_there_is() -> None:
    text = (
        "CompressedStorage got an unexpected keyword argument 'codecs', did you mean 'codec'? There are max_size, "
        "ndim, device, compilable, shared_init, consolidated, cleanup_memmap, spill, continue_episodes, codec, "
        "frame_stack, budget, min_nbytes, decide_after, block_frames, max_bytes, buffer_device, heap"
    )
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        CompressedStorage(N, codecs="raw")  # type: ignore[call-arg]


def test_a_storage_that_no_memory_has_room_for_is_refused() -> None:
    storage = CompressedStorage(10**13)
    with pytest.raises(MemoryError, match=r"^there is not enough memory for 10,000,000,000,000 steps, "):
        storage.set(range(N), steps())


@pytest.mark.parametrize("name", ["max_size", "ndim", "spill", *BufferKeywords.__annotations__])
def test_what_items_depend_on_stays(name):
    storage = CompressedStorage(100)
    storage.set(range(10), TensorDict({"pixels": torch.zeros(10, 40, 40, dtype=torch.uint8)}, [10]))
    before = getattr(storage, name)
    with pytest.raises(
        AttributeError,
        match=rf"^{name} of a CompressedStorage can't be changed, it is {re.escape(repr(before))}: make another ",
    ):
        setattr(storage, name, 2)
    assert getattr(storage, name) == before
