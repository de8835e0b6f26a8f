"""torch tensors go in and come out, though the core does not know torch."""

import numpy as np
import pytest
import torch
from cuda_on_cpu.device import SimulatedDevice
from new_python import run_python
from obscodec import DTypeError, Field, Layout, RingBuffer, ShapeError, SpecError, codec, decode, encode
from obscodec_cupy.codecs.codec import CudaCodec
from obscodec_cupy.device.array import require_writable

INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bfloat16]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]
SPECS = ["raw", "rle", "zstd:3", "shuffle|lz4"]


def noise(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits, NaN payloads among them."""
    drawn = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (*shape, dtype.itemsize), np.uint8))
    return drawn[..., 0] < 128 if dtype == torch.bool else drawn.view(dtype).squeeze(-1)


def bits(x: torch.Tensor) -> bytes:
    return x.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", INTEGERS + UNSIGNED + FLOATS + FLOAT8, ids=str)
def test_a_tensor_keeps_its_bits(dtype: torch.dtype, spec: str) -> None:
    x = noise(dtype, 4, 6)
    encoded = encode(x, spec)
    assert encoded.layout.shape == (4, 6)
    assert decode(encoded).tobytes() == bits(x)
    out = torch.zeros(4, 6, dtype=dtype)
    decode(encoded, out)
    assert bits(out) == bits(x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16, torch.float8_e5m2], ids=str)
def test_any_strides(dtype: torch.dtype) -> None:
    x = noise(dtype, 4, 6, 5)
    for view in (x.permute(2, 0, 1), x[:, ::2], x[1, 2, 3], x[:0], x[:, 1:2].expand(4, 7, 5)):
        assert decode(encode(view, "zstd")).tobytes() == bits(view)
        assert encode(view, "rle").layout.shape == tuple(view.shape)


def test_out_with_gaps_is_filled() -> None:
    x = noise(torch.bfloat16, 3, 4)
    memory = torch.zeros(3, 8, dtype=torch.bfloat16)
    decode(encode(x, "zstd"), memory[:, ::2])
    assert bits(memory[:, ::2]) == bits(x)
    assert not memory[:, 1::2].any()


def test_out_of_another_layout_is_refused() -> None:
    encoded = encode(torch.zeros(3, dtype=torch.bfloat16), "raw")
    with pytest.raises(DTypeError) as wrong_dtype:
        decode(encoded, torch.zeros(3, dtype=torch.float16))
    assert str(wrong_dtype.value) == "out has dtype float16, the codec is for bfloat16"
    with pytest.raises(ShapeError) as wrong_shape:
        decode(encoded, torch.zeros(4, dtype=torch.bfloat16))
    assert str(wrong_shape.value) == "out has shape (4,), the codec is for (3,)"


def test_a_decoded_array_becomes_a_tensor_without_a_copy() -> None:
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    decoded = decode(encode(x, "lz4"))
    assert torch.equal(torch.from_numpy(decoded), x)


def test_a_tensor_that_is_freed_was_read_before() -> None:
    encoded = [encode(torch.full((1000,), i, dtype=torch.int32), "rle") for i in range(50)]
    assert [int(decode(e)[0]) for e in encoded] == list(range(50))


def test_a_tensor_that_is_no_memory_is_refused() -> None:
    with pytest.raises(DTypeError) as caught:
        encode(torch.zeros(3, device="meta"), "raw")
    assert str(caught.value) == "Tensor can't be read by DLPack: Unknown device type meta for Dlpack"


def test_a_tensor_that_needs_gradients() -> None:
    with pytest.raises(DTypeError) as caught:
        encode(torch.nn.Parameter(torch.zeros(3)), "raw")
    assert str(caught.value) == (
        "Parameter can't be read by DLPack: Can't export tensors that require gradient, use tensor.detach()"
    )


def test_a_whole_number_may_be_a_tensor() -> None:
    assert RingBuffer(torch.tensor(4), {"reward": Field((), np.float32)}).capacity == 4
    with pytest.raises(DTypeError, match=r"^capacity must be a whole number, 1 or more, got tensor\(4\.\)$"):
        RingBuffer(torch.tensor(4.0), {"reward": Field((), np.float32)})


def test_what_torch_has_of_its_own_is_no_argument() -> None:
    with pytest.raises(SpecError, match=r"^a device is a text such as 'cpu' or 'cuda:1', got device$"):
        Field((84, 84), np.uint8, device=torch.device("cpu"))  # type: ignore[arg-type]
    text = r"^a dtype is one of numpy, or its name, such as 'uint8', got torch\.uint8: write 'uint8'$"
    with pytest.raises(DTypeError, match=text):
        Layout((84, 84), torch.uint8)  # type: ignore[arg-type]
    layout = Layout((4,), np.float32)
    text = r"^items are a numpy array, got Tensor: convert it, as in numpy\.asarray\(x\)$"
    for call in (layout.check, layout.rows, codec("zstd", layout).fit):
        with pytest.raises(DTypeError, match=text):
            call(torch.zeros(3, 4))


@pytest.mark.filterwarnings("ignore")  # PyTorch may change them
def test_masked_tensors_are_refused() -> None:
    masked = torch.masked.masked_tensor(torch.ones(3), torch.tensor([True, False, True]))
    with pytest.raises(DTypeError, match=r"^MaskedTensor can't be read by DLPack: "):
        encode(masked, "raw")


class Exporter:
    """An array of a library that only knows DLPack, of version 1 or before."""

    def __init__(self, memory: np.ndarray, *, versioned: bool) -> None:
        self._memory = memory
        self._versioned = versioned

    def __dlpack__(self, **options: object) -> object:
        if not self._versioned and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self._memory.__dlpack__(**options | {"stream": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


def memory(*, read_only: bool) -> np.ndarray:
    array = np.zeros((1, 2, 2), np.uint8)
    array.flags.writeable = not read_only
    return array


READ_ONLY = [memory(read_only=True), Exporter(memory(read_only=True), versioned=True)]
WRITABLE = [
    memory(read_only=False),
    Exporter(memory(read_only=False), versioned=True),
    Exporter(memory(read_only=False), versioned=False),
    torch.zeros(1, 2, 2, dtype=torch.uint8),
    torch.nn.Parameter(torch.zeros(1, 2, 2)),
]


@pytest.mark.parametrize("x", READ_ONLY, ids=lambda x: type(x).__name__)
def test_a_read_only_array_is_refused(x: object) -> None:
    with pytest.raises(DTypeError) as caught:
        require_writable("out", x)
    assert str(caught.value) == f"out is a read-only {type(x).__name__}, pass one that can be written"


@pytest.mark.parametrize("x", WRITABLE, ids=lambda x: type(x).__name__)
def test_an_array_that_can_be_written_is_not(x: object) -> None:
    require_writable("out", x)


@pytest.mark.parametrize("x", READ_ONLY[1:], ids=lambda x: type(x).__name__)
def test_a_codec_does_not_write_it(x: Exporter) -> None:
    device = SimulatedDevice(seed=1)
    tested = CudaCodec(codec("rle", Layout((2, 2), "uint8")), device)
    streams = tested.encode_batch(device.zeros((1, 2, 2), np.uint8))
    n_launches = device.n_launches
    for refused in (
        lambda: tested.decode_batch(streams, x),
        lambda: tested.encode_batch(device.zeros((1, 4), np.uint8), x),
    ):
        with pytest.raises(DTypeError, match="out is a read-only"):
            refused()
    assert device.n_launches == n_launches


@pytest.mark.slow
def test_an_array_of_jax_is_read_only() -> None:
    """In a process of its own, since JAX warns of each fork in one that has imported it."""
    script = """
import jax
from test_torch_arrays import test_a_codec_does_not_write_it, test_a_read_only_array_is_refused
for refuse in test_a_codec_does_not_write_it, test_a_read_only_array_is_refused:
    refuse(jax.numpy.zeros((1, 2, 2), "uint8"))
"""
    run_python("-c", script)
