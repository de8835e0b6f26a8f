"""Tensors of torch on a GPU become streams and tensors again there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from obscodec import DTypeError, Layout, codec

DTYPES = ["bool", "uint8", "int16", "float16", "float32", "complex64"]


def noise(dtype: str) -> torch.Tensor:
    """``[3, 4, 6]``, few values and any bits."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (2, 3, 4, 6 * np.dtype(dtype).itemsize), np.uint8)
    return torch.from_numpy((values[0] * (1 if dtype == "bool" else 255 - values[1])).view(dtype))


@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_become_streams_of_the_cpu_and_tensors_again(
    cuda: str, torch_device: torch.device, spec: str, dtype: str
) -> None:
    layout = Layout((4, 6), dtype)
    x, cpu, tested = noise(dtype), codec(spec, layout), codec(spec, layout, device=cuda)
    room = torch.empty(3 * tested.bound(), dtype=torch.uint8, device=torch_device)
    streams = tested.encode_batch(x.to(torch_device), out=room)
    expected = cpu.encode_batch(layout.rows(x.numpy()), np.empty(3 * cpu.bound(), np.uint8))
    assert [bytes(s) for s in streams.download()] == [bytes(s) for s in expected]
    assert room.cpu().numpy()[: expected.nbytes].tobytes() == b"".join(map(bytes, expected))
    out = torch.empty((3, 4, 6), dtype=x.dtype, device=torch_device)
    tested.decode_batch(streams, out).check()
    assert out.cpu().numpy().tobytes() == x.numpy().tobytes()


@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
def test_dtypes_that_the_device_has_no_name_for_come_as_bytes(cuda: str, torch_device: torch.device, spec: str) -> None:
    tested = codec(spec, Layout((4, 6), "bfloat16"), device=cuda)
    x = noise("float32").view(torch.bfloat16)[..., :6].contiguous().to(torch_device)
    rows = x.view(torch.uint8).reshape(3, -1)
    out = torch.zeros_like(x)
    tested.decode_batch(tested.encode_batch(rows), out.view(torch.uint8).reshape(3, -1)).check()
    assert torch.equal(out.view(torch.int16), x.view(torch.int16))


def test_a_tensor_of_the_cpu_is_refused(cuda: str) -> None:
    text = r"^expected an array on cuda:0, got one in host memory; copy it there first$"
    with pytest.raises(DTypeError, match=text):
        codec("rle", Layout((4, 6), "uint8"), device=cuda).encode_batch(torch.zeros((1, 4, 6), dtype=torch.uint8))
