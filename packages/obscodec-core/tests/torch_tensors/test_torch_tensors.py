"""A compressed tensor fills and reads as the plain one of a buffer does, with PyTorch alone."""

import numpy as np
import pytest
from new_python import run_python
from obscodec import AutoStore, DTypeError, FrameStore, Layout, TensorArray
from obscodec.arrays import WriteBuffer

torch = pytest.importorskip("torch")

from obscodec.torch import CompressedTensor  # noqa: E402  # it needs torch
from torch.utils.data import default_collate  # noqa: E402

N = 30
KINDS = {
    "bytes": (Layout((3, 20, 20), np.uint8), {"decide_after": 8}),
    "a chain": (Layout((3, 20, 20), np.uint8), {"codec": "delta-rle|zstd:1", "decide_after": 8}),
    "stacks": (Layout((4, 20, 20), np.uint8), {"codec": "delta-rle", "decide_after": 8, "frame_stack": 4}),
    "floats of bytes": (Layout((4, 20, 20), np.float32), {"decide_after": 8}),
    "undecided": (Layout((3, 20, 20), np.uint8), {"decide_after": 1000}),
}


def two_tensors(store, device="cpu"):
    """Compressed tensors of observations and of next ones, with one store."""
    rows = WriteBuffer(store, 1)
    return [CompressedTensor(TensorArray.zeros((N,), store, rows), device) for _ in range(2)]


def played(layout, n):
    """Observations, of which each has the frame of the next one among its own."""
    rng = np.random.default_rng(0)
    frames = np.zeros((n + 4, *layout.shape[1:]), layout.dtype)
    for k in range(1, len(frames)):
        frames[k] = frames[k - 1]
        frames[k, rng.integers(20), rng.integers(20)] = rng.integers(256)
    return [torch.from_numpy(frames[k : k + layout.shape[0]].copy()) for k in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_that_writes_row_by_row_reads_what_it_wrote(kind):
    layout, options = KINDS[kind]
    store = AutoStore(layout, **options)
    tensors = two_tensors(store)
    plain = [torch.zeros(x.shape, dtype=x.dtype) for x in tensors]
    rng, obs = np.random.default_rng(0), played(layout, 3 * N)
    for k in range(3 * N - 1):
        if k == 20 and kind != "undecided":
            store.decide()
        for x, y, value in zip(tensors, plain, (obs[k], obs[k + 1]), strict=True):
            if k % 3:
                assert x[k % N].copy_(value).shape == value.shape
            else:
                x[k % N] = value
            y[k % N] = value
        if k % 7 == 0:
            rows = torch.from_numpy(rng.integers(N, size=9))
            for x, y in zip(tensors, plain, strict=True):
                assert torch.equal(x[rows], y[rows])
    for x, y in zip(tensors, plain, strict=True):
        assert torch.equal(x[:].clone(), y)
        assert torch.equal(x[5].clone(), y[5])


def test_rows_go_through_the_write_buffer(monkeypatch):
    store = FrameStore(Layout((4, 20, 20), np.uint8), frame_stack=4)
    obs, next_obs = two_tensors(store)
    monkeypatch.delattr(TensorArray, "_assign")  # which takes five times as long
    values = played(store.layout, 4)
    obs[3].copy_(values[0])
    obs[4] = values[1]
    next_obs[3] = values[1]
    obs[5].fill_(7)
    obs[6] = 9
    obs[4].zero_()
    obs[7].copy_(values[2].float())
    obs[8].copy_(torch.tensor(3))
    assert obs[:, 0, 0, 0].tolist()[3:9] == [*values[0][:1, 0, 0].tolist(), 0, 7, 9, *values[2][:1, 0, 0].tolist(), 3]
    assert torch.equal(next_obs[3].clone(), values[1])


def test_rows_that_wait_go_on_waiting_until_they_are_read():
    store = AutoStore(Layout((3, 20, 20), np.uint8), decide_after=1000)
    obs, next_obs = two_tensors(store)
    values = played(store.layout, 4)
    for k in range(3):
        obs[k].copy_(values[k])
        next_obs[k].copy_(values[k + 1])
    assert len(obs.array.write_buffer.waiting) == 6
    assert torch.equal(obs[:3].clone(), torch.stack(values[:3]))
    assert not obs.array.write_buffer.waiting


def test_what_torch_refuses_is_refused():
    obs, _ = two_tensors(FrameStore(Layout((3, 20, 20), np.uint8)))
    for wrong in (torch.zeros(2, 20, 20, dtype=torch.uint8), torch.zeros(1, 3, 20, 20, dtype=torch.uint8)):
        with pytest.raises(RuntimeError):
            obs[0].copy_(wrong)
    with pytest.raises(TypeError):
        obs[0].copy_([1])
    for row in (N, -N - 1):
        with pytest.raises(IndexError):
            obs[row]
    with pytest.raises(DTypeError, match="array must be a TensorArray, such as"):
        CompressedTensor(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="only be read"):
        obs[0][1].copy_(torch.zeros(20, 20, dtype=torch.uint8))
    with pytest.raises(RuntimeError):
        obs[0] = torch.zeros(2, 3, 20, 20, dtype=torch.uint8)
    obs[-1] = torch.ones(1, 1, 3, 20, 20, dtype=torch.uint8)
    assert obs[N - 1].clone().min() == 1
    obs[-1] = np.full((20, 20), 2)
    assert obs[N - 1].clone().min() == 2
    assert not obs[: N - 1].any()


def test_rows_are_set_without_gradients_and_read_with_them():
    obs, _ = two_tensors(FrameStore(Layout((3, 20, 20), np.float32)))
    obs[2] = torch.full((3, 20, 20), 2.0)
    with torch.inference_mode():
        obs[4] = obs[2]
        assert obs[4].mean() == 2
    obs.requires_grad_()
    assert obs[2].requires_grad


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "float32", "bfloat16"])
def test_an_item_of_any_shape_is_decoded(shape, dtype):
    tensor = CompressedTensor(TensorArray.zeros((5,), AutoStore(Layout(shape, dtype))))
    rows = (torch.arange(5).reshape(-1, *[1] * len(shape)) % 2).expand(5, *shape).to(tensor.dtype)
    tensor[...] = rows
    for k in range(5):
        for item in (tensor[k], tensor.drawn(np.array([k]))[0]):
            assert type(item.decoded()) is torch.Tensor
            assert torch.equal(item.decoded(), rows[k])
            assert item.tolist() == rows[k].tolist()


def test_a_cleared_tensor_leaves_nothing_in_its_store():
    store = FrameStore(Layout((4, 20, 20), np.uint8), frame_stack=4)
    obs, next_obs = two_tensors(store)
    for k, value in enumerate(played(store.layout, 2 * N)):
        obs[k % N] = next_obs[k % N - 1] = value
    obs.array.clear(...)
    assert torch.equal(next_obs[N - 2].clone(), played(store.layout, 2 * N)[-1])
    assert not obs[:].any()
    next_obs.array.clear(...)
    obs.array.write_buffer.flush()
    assert store.stats().n_tensors == 0


@pytest.mark.parametrize("batch_of", [torch.stack, default_collate, lambda rows: torch.cat([x[None] for x in rows])])
def test_rows_that_become_a_batch_are_decoded_together(batch_of, monkeypatch):
    store = FrameStore(Layout((3, 20, 20), np.uint8))
    obs, next_obs = two_tensors(store)
    for k, value in enumerate(played(store.layout, N)):
        obs[k], next_obs[k] = value, 255 - value
    wanted = [(obs, 3), (next_obs, 3), (obs, N - 1), (obs, 3), (next_obs, 0)]
    plain = torch.stack([x[k].clone() for x, k in wanted])
    n, read_into = [], FrameStore.read_into
    monkeypatch.setattr(FrameStore, "read_into", lambda self, ids, out: (n.append(len(ids)), read_into(self, ids, out)))
    batch = batch_of([x[k] for x, k in wanted])
    assert torch.equal(batch, plain)
    assert type(batch) is torch.Tensor
    assert n == [5]


def test_it_needs_torch_alone():
    code = """
import sys
for name in ("tensordict", "torchrl", "obscodec_torchrl", "gymnasium"):
    sys.modules[name] = None
import obscodec
assert "torch" not in sys.modules
from obscodec.torch import CompressedTensor
print(CompressedTensor(obscodec.TensorArray.zeros((2,), obscodec.FrameStore(obscodec.Layout((8,), "uint8")))).sum())
"""
    assert run_python("-c", code) == "tensor(0)\n"
