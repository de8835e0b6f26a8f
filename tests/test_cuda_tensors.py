"""Tensors of the simulated GPU mix with those of the CPU where tensors of CUDA do; on a real one, the same holds."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from obscodec import DTypeError, Layout, codec

Call = Callable[[torch.Tensor, torch.Tensor], object]
REFUSED: dict[str, Call] = {
    "arithmetic": lambda here, there: here + there,
    "arithmetic in place": lambda here, there: there.add_(here),
    "a number that is changed": lambda here, there: here[0].add_(there[0]),
    "a tensor of the CPU with a number of the GPU": lambda here, there: here * there[0],
    "out": lambda here, there: torch.add(there, 1, out=here),
    "cat": lambda here, there: torch.cat([here, there]),
    "a stack of numbers": lambda here, there: torch.stack([here[0], there[0]]),
    "where": lambda here, there: torch.where(there > 1, there, here),
    "gather": lambda here, there: there.gather(0, here.long()),
    "index_select": lambda here, there: here.index_select(0, there.long()),
    "an index of the GPU": lambda here, there: here[there.long()],
    "a mask of the GPU": lambda here, there: here[there > 1],
    "assignment by an index of the GPU": lambda here, there: here.__setitem__(there.long(), 1),
    "values of the CPU": lambda here, there: there.__setitem__(there.long(), here),
    "equal": lambda here, there: torch.equal(here, there),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_on_two_devices_is_refused(cuda: str, torch_device: torch.device, call: Call) -> None:
    here = torch.arange(3.0)
    with pytest.raises(RuntimeError, match=r"(?i)device|cpu"):
        call(here, here.to(torch_device))


def test_what_is_not_read_by_the_cpu(cuda: str, torch_device: torch.device) -> None:
    there = torch.zeros(3, device=torch_device)
    for read in (there.numpy, lambda: np.asarray(there)):
        with pytest.raises(TypeError, match=r"^can't convert cuda:0 device type tensor to numpy\. Use Tensor\.cpu\(\)"):
            read()


def test_what_crosses(cuda: str, torch_device: torch.device) -> None:
    here, there = torch.arange(3.0), torch.full((3,), 5.0, device=torch_device)
    assert there.is_cuda
    assert there.device == torch_device
    assert (there * here[1]).tolist() == (here[1] * there).tolist() == [5, 5, 5]
    assert there[here.long()].device == there[[0, 2]].device == there[0].device == torch_device
    there[1:] = here[1:]
    assert there.tolist() == [5, 1, 2]
    here.copy_(there)
    assert here.tolist() == there.cpu().tolist() == [5, 1, 2]
    there[torch.tensor([0])] = torch.tensor(7.0)
    assert there.cpu().numpy().tolist() == there.numpy(force=True).tolist() == [7, 1, 2]
    assert type(there.cpu()) is type(here) is torch.Tensor
    assert torch.as_tensor(there) is there.to(torch_device) is there


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
