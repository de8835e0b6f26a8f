import ml_dtypes
import numpy as np
import torch
from obscodec import Field, RingBuffer


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


def test_bfloat16_comes_out_through_a_view_as_integers():
    values = torch.randn(5, 4).to(torch.bfloat16)
    buffer = RingBuffer(5, {"x": Field((4,), ml_dtypes.bfloat16, "raw")})
    for value in values:
        buffer.append(x=value)
    rng = np.random.default_rng(0)
    x = buffer.sample(20, rng, convert=lambda array: torch.from_numpy(array.view(np.int16)).view(torch.bfloat16))["x"]
    assert torch.equal(x, values[np.random.default_rng(0).integers(5, size=20)])
