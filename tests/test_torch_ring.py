from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch
from obscodec import BackendUnavailable, DTypeError, Field, Mixture, Prioritized, RingBuffer, SpecError
from obscodec.buffers import TorchBatch


def test_a_ring_buffer_takes_and_gives_torch_tensors():
    buffer = RingBuffer(10, {"frame": Field((3, 4), np.uint8, "zstd:1"), "reward": Field((), np.float32)}, n_envs=2)
    frames = torch.arange(240, dtype=torch.uint8).reshape(10, 2, 3, 4)
    for frame in frames:
        buffer.append(frame=frame, reward=torch.tensor([1.5, -0.5]))
    sample = buffer.sample(50, np.random.default_rng(0), convert=torch.from_numpy)
    rng = np.random.default_rng(0)
    expected = frames[rng.integers(10, size=50), rng.integers(2, size=50)]
    assert torch.equal(sample["frame"], expected)
    assert sample["reward"].dtype == torch.float32


def filled(**options) -> RingBuffer:
    fields = {
        "frame": Field((40, 40), np.uint8, "zstd:1"),
        "plain": Field((3,), np.uint16),
        "half": Field((2,), ml_dtypes.bfloat16),
        "small": Field((4,), ml_dtypes.float8_e4m3fn),
        "reward": Field((), np.float32),
        "done": Field((), np.bool_),
    }
    buffer = RingBuffer(30, fields, n_envs=2, stack={"frame": 2}, pad="edge", episode_end="done", **options)
    rng = np.random.default_rng(0)
    for k in range(50):
        values = {name: rng.integers(0, 200, size=(2, *field.shape)) for name, field in fields.items()}
        cast = {name: value.astype(fields[name].dtype) for name, value in values.items()}
        buffer.append(**cast | {"done": np.array([k % 9 == 8, k % 5 == 4])})
    return buffer


def assert_tensors_equal(tensors: dict[str, torch.Tensor], arrays: dict[str, np.ndarray]) -> None:
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        tensor = tensors[name]
        assert isinstance(tensor, torch.Tensor)
        assert tensor.device == torch.device("cpu")
        assert str(tensor.dtype) == f"torch.{array.dtype.name}"
        assert tensor.shape == array.shape
        assert tensor.contiguous().view(torch.uint8).numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_ring_on_a_gpu_takes_tensors_and_gives_them(device, cuda, torch_device):
    fields = [{"frame": Field((20, 20), np.uint8, "delta-rle", device=place)} for place in ("cpu", cuda)]
    buffers = [RingBuffer(300, of | {"reward": Field((), np.float32)}, n_envs=2) for of in fields]
    frames = torch.arange(400)[:, None, None, None].expand(400, 2, 20, 20).to(torch.uint8)
    for i, frame in enumerate(frames):
        buffers[0].append(frame=frame, reward=np.full(2, i))
        buffers[1].append(frame=frame.to(device), reward=np.full(2, i))
    for seed in range(3):
        arrays, tensors = buffers[0].sample(20, seed), buffers[1].sample(20, seed, to="cuda")
        assert all(tensor.device == torch_device for tensor in tensors.values())
        assert_tensors_equal({name: tensor.cpu() for name, tensor in tensors.items()}, arrays)


def test_to_a_gpu_copies_every_dtype(cuda):
    buffer = filled()
    batches = [(buffer.sample(20, seed, to="cuda"), buffer.sample(20, seed)) for seed in range(50)]
    for on_gpu, arrays in batches:  # which must not have been overwritten by later batches
        assert all(tensor.is_cuda for tensor in on_gpu.values())
        assert_tensors_equal({name: tensor.cpu() for name, tensor in on_gpu.items()}, arrays)


def test_to_returns_tensors_of_every_dtype():
    buffer = filled()
    arrays, indices = buffer.sample(20, 0, return_indices=True)
    tensors, same = buffer.sample(20, 0, return_indices=True, to="cpu")
    assert same.tolist() == indices.tolist()
    assert_tensors_equal(tensors, arrays)
    options = {"n_step": 3, "gamma": 0.5}
    assert_tensors_equal(buffer.take(indices, to=torch.device("cpu"), **options), buffer.take(indices, **options))
    assert_tensors_equal(buffer.sequences(4, 3, 0, to="cpu"), buffer.sequences(4, 3, 0))
    for use in (lambda **to: buffer.epochs(16, 0, **to), buffer.episodes):
        for made, expected in zip(use(to="cpu"), use(), strict=True):
            assert_tensors_equal(made, expected)


def test_a_batch_of_tensors_stays_when_the_next_one_is_drawn():
    buffer = filled()
    first, expected = buffer.sample(20, 0, to="cpu"), buffer.sample(20, 0)
    for seed in range(1, 9):
        buffer.sample(20, seed, to="cpu")
    assert_tensors_equal(first, expected)


def test_a_generator_of_torch_draws():
    buffer, priorities = filled(), Prioritized(60)
    draws = [
        buffer.sample(20, torch.Generator().manual_seed(seed), return_indices=True)[1].tolist() for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]
    generator = torch.Generator().manual_seed(1)
    first, second = (buffer.sample(20, generator, return_indices=True)[1].tolist() for _ in range(2))
    assert first == draws[0] != second
    priorities.advance(0, 60)
    assert len({tuple(priorities.sample(20, torch.Generator().manual_seed(1)).tolist()) for _ in range(2)}) == 1
    kinds = [buffer.sequences(20, 2, torch.Generator().manual_seed(1))["reward"] for _ in range(2)]
    assert np.array_equal(*kinds)


def test_tensors_are_indices_and_priorities():
    buffer, priorities = filled(), Prioritized(60)
    batch, indices = buffer.sample(8, 0, p=priorities, return_indices=True)
    taken = buffer.take(torch.from_numpy(indices))
    np.testing.assert_array_equal(taken["reward"], batch["reward"])
    priorities.update(torch.from_numpy(indices), torch.rand(8))
    assert priorities.weights(torch.from_numpy(indices)).shape == (8,)


def test_a_model_of_torch_relabels_rewards():
    buffer = filled()

    def label(steps):
        assert_tensors_equal({"frame": steps["frame"]}, {"frame": steps["frame"].numpy()})
        return steps["frame"].float().mean(dim=(1, 2, 3))

    buffer.relabel("reward", label, reads=["frame"], batch=7, to="cpu")
    stored = buffer.take(list(buffer.indices))
    expected = torch.from_numpy(stored["frame"]).float().mean(dim=(1, 2, 3)).numpy()
    np.testing.assert_array_equal(stored["reward"], expected)
    with pytest.raises(DTypeError, match="detach"):
        buffer.relabel("reward", lambda steps: torch.zeros(len(steps["plain"]), requires_grad=True), to="cpu")


def test_a_mixture_returns_tensors():
    mixture = Mixture({filled(): 0.5, filled(): 0.5})
    assert_tensors_equal(mixture.sample(20, 0, to="cpu"), mixture.sample(20, 0))
    generator = torch.Generator().manual_seed(1)
    assert_tensors_equal(
        mixture.sequences(8, 3, generator, to="cpu"), mixture.sequences(8, 3, generator.manual_seed(1))
    )


@pytest.mark.parametrize("to", ["cuda", None])
def test_buffers_on_a_gpu_are_mixed_and_merged(to, cuda, torch_device):
    fields = {"frame": Field((20, 20), np.uint8, "delta-rle", device=cuda), "number": Field((), np.int64)}
    buffers = [RingBuffer(60, fields) for _ in range(2)]
    for k, buffer in enumerate(buffers):
        frames = np.broadcast_to(np.arange(50, dtype=np.uint8)[:, None, None], (50, 20, 20)) + np.uint8(60 * k)
        buffer.extend(frame=frames, number=frames[:, 0, 0])
        buffer.end_episodes()
    batch = Mixture({buffers[0]: 0.5, buffers[1]: 0.5}).sample(20, 0, to=to)
    frames, numbers = (torch.as_tensor(batch[name]).cpu().numpy() for name in ("frame", "number"))
    np.testing.assert_array_equal(frames, np.broadcast_to(numbers[:, None, None].astype(np.uint8), (20, 20, 20)))
    assert {*(numbers // 60).tolist()} == {0, 1}
    merged = RingBuffer.merged(buffers)[:]
    np.testing.assert_array_equal(torch.as_tensor(merged["frame"]).cpu().numpy()[..., 3, 3], merged["number"])
    assert sorted(merged["number"].reshape(-1).tolist()) == [*range(50), *range(60, 110)]


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(BackendUnavailable, match=r"^PyTorch can't use the device 'cuda:99': "):
        filled().sample(1, to="cuda:99")


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("numpy", "'numpy' is no device of PyTorch: leave it out for arrays of numpy"),
        ("torch", "'torch' is no device of PyTorch: pass 'cpu' or 'cuda'"),
        (3.5, "3.5 is no device of PyTorch: pass 'cpu' or 'cuda'"),
        (True, "True is no device of PyTorch: pass 'cpu' or 'cuda'"),
    ],
)
def test_what_is_no_device_is_refused(to, text):
    with pytest.raises(SpecError, match=f"^{text}$"):
        filled().sample(1, to=to)


def test_a_pytorch_for_the_cpu_says_what_to_install(monkeypatch):
    def without_cuda(*_, **__):
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch, "empty", without_cuda)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    text = (
        "PyTorch can't use the device 'cuda': Torch not compiled with CUDA enabled. This PyTorch is for the CPU only: "
        "install one with CUDA as https://pytorch.org/get-started/locally says, or name the device 'cpu'"
    )
    with pytest.raises(BackendUnavailable, match=f"^{text}$"):
        filled().sample(1, to="cuda")


@pytest.mark.parametrize("place", ["there", "cpu"])
def test_the_small_fields_of_a_batch_go_to_a_gpu_together(place, cuda, torch_device, monkeypatch):
    device = cuda if place == "there" else "cpu"
    fields = {
        "frame": Field((20, 20), np.uint8, "delta-rle", device=device),
        **{str(dtype): Field((3,), dtype) for dtype in (np.bool_, np.int16, np.float64, ml_dtypes.bfloat16)},
        "empty": Field((0, 2), np.float32),
    }
    ring = RingBuffer(20, fields)
    for i in range(20):
        ring.append(**{name: np.full(field.shape, i).astype(field.dtype) for name, field in fields.items()})
    ring.decide()
    arrays, copied, to = ring.sample(9, 0), [], torch.Tensor.to
    arrays["frame"] = np.broadcast_to(arrays[str(np.int16)][:, :1, None], (9, 20, 20)).astype(np.uint8)
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *of, **how: (copied.append(how), to(x, *of, **how))[1])
    tensors = ring.sample(9, 0, to="cuda")
    copies = [how for how in copied if how.get("non_blocking")]
    assert all(tensor.device == torch_device for tensor in tensors.values())
    assert_tensors_equal({name: tensor.cpu() for name, tensor in tensors.items()}, arrays)
    assert len(copies) == (1 if place == "there" else 2)


def test_the_parts_of_one_copy_are_tensors_of_their_own_for_autograd(monkeypatch):
    """On a GPU, for which the CPU stands here: torch itself keeps count of what is changed."""
    batch = TorchBatch("cpu")
    monkeypatch.setattr(batch, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *of, **how: tensor.clone())
    monkeypatch.setattr(torch, "empty", partial(_pinned, torch.empty))
    reward, action = batch.tensors([np.ones((4, 1), np.float32), np.ones((4, 2), np.float32)])
    weight = torch.nn.Parameter(torch.ones(4, 2))
    value = (weight * action).sum()
    reward.clamp_(-1, 0)
    value.backward()
    assert torch.equal(weight.grad, torch.ones(4, 2))
    assert torch.equal(reward, torch.zeros(4, 1))


def _pinned(empty, *of, device, pin_memory=False, **how):
    """What is pinned must be on the CPU, whatever the default device of torch is."""
    assert torch.device(device).type == "cpu"
    return empty(*of, device=device, **how)
