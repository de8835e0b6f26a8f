"""``lorenzo`` as ``docs/formats/lorenzo.md`` describes it, and what it is good for."""

from math import gcd, prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obscodec import EncodedTensor, Layout, codec, decode, encode
from test_properties import quick, tensors


def differences(x: npt.NDArray[np.generic]) -> bytes:
    """What the filter makes of an item, number by number."""
    nbytes = gcd(x.dtype.itemsize, 8)
    *in_front, height, width, n_channels = (1, 1, *x.shape, *(() if x.ndim >= 3 and x.shape[-1] <= 4 else (1,)))
    n_channels *= x.dtype.itemsize // nbytes
    row, written = x.tobytes(), bytearray()
    for image in range(prod(in_front)):

        def bits(y: int, x: int, c: int, image: int = image) -> int:
            if min(x, y) < 0:
                return 0
            at = nbytes * (c + n_channels * (x + width * (y + height * image)))
            return int.from_bytes(row[at : at + nbytes], "little")

        for y in range(height):
            for x_ in range(width):
                for c in range(n_channels):
                    d = bits(y, x_, c) - bits(y, x_ - 1, c) - bits(y - 1, x_, c) + bits(y - 1, x_ - 1, c)
                    d = (d + 2 ** (8 * nbytes - 1)) % 2 ** (8 * nbytes) - 2 ** (8 * nbytes - 1)
                    written += (2 * d if d >= 0 else -2 * d - 1).to_bytes(nbytes, "little")
    return bytes(written)


@quick
@given(tensors(), st.integers(1, 3))
def test_it_is_as_documented(x: npt.NDArray[np.generic], times: int) -> None:
    if x.ndim:
        x = np.concatenate([x] * times, axis=-1)
    encoded = encode(x, "lorenzo|raw")
    assert encoded.stream.tobytes() == differences(x)
    assert decode(encoded).tobytes() == x.tobytes()


SPECIAL = {
    "float16": [0x7C00, 0xFC00, 0x7E01, 0xFFFF, 0x8000, 0x0001, 0x03FF, 0x7BFF],
    "bfloat16": [0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x8000, 0x0001, 0x007F, 0x7F7F],
    "float32": [0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x80000000, 0x00000001, 0x007FFFFF, 0x7F7FFFFF],
    "float64": [0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 1, 2**64 - 1, 1 << 63, 1, 2**52 - 1, (0x7FF << 52) - 1],
}


@pytest.mark.parametrize("spec", ["lorenzo|raw", "lorenzo|shuffle|zstd:1", "lorenzo|shuffle|pred", "shuffle|pred"])
@pytest.mark.parametrize("dtype", SPECIAL)
@pytest.mark.parametrize("shape", [(40,), (16, 520), (9, 10, 3), (3, 16, 24), (2, 3, 10, 16, 1)])
def test_special_numbers_are_exact(spec: str, dtype: str, shape: tuple[int, ...]) -> None:
    """Infinities, NaNs with payloads, negative zeros and denormals, among each other; of any strides."""
    layout = Layout(shape, dtype)
    bits = np.array(SPECIAL[dtype], f"u{layout.dtype.itemsize}")
    items = layout.tensors(layout.rows(np.random.default_rng(0).choice(bits, (2, *shape)).view(layout.dtype)))
    for x in (items[0], items[1].T, items[0][..., ::-1], items[1][::2]):
        decoded = decode(EncodedTensor.from_bytes(encode(x, spec).to_bytes()))
        assert (decoded.dtype, decoded.shape, decoded.tobytes()) == (x.dtype, x.shape, x.tobytes())


def slopes(n: int, dtype: str) -> npt.NDArray[np.generic]:
    """``[n, 40, 48]``: smooth ground that comes nearer, and a wall before it."""
    y, x = np.mgrid[:40, :48]
    ground = 90 / (3 + y / 4 + np.hypot(x - 20, 30) / 50 - np.arange(n)[:, None, None] / 40)
    return np.where((x > 30) & (y > 12), 2 + x / 300 + np.arange(n)[:, None, None] / 50, ground).astype(dtype)


def sizes(x: npt.NDArray[np.generic], *specs: str) -> list[int]:
    return [len(codec(spec, Layout.of(x)).encode(x).stream) for spec in specs]


@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.7), ("float64", 0.92)])
def test_smooth_images_are_smaller(dtype: str, share: float) -> None:
    x = slopes(1, dtype)
    planes, both = sizes(x, "shuffle|pred", "lorenzo|shuffle|pred")
    plain, lorenzo = sizes(x, "shuffle|zstd:3", "lorenzo|shuffle|zstd:3")
    assert both < planes < plain
    assert both < lorenzo < share * plain
    assert len(encode(x).stream) <= lorenzo


def test_channels_are_no_neighbours() -> None:
    """Those of an image are hardly larger than three images."""
    images = np.stack([slopes(1, "float32")[0], 9 * slopes(2, "float32")[1], np.full((40, 48), 7, np.float32)])
    last = np.ascontiguousarray(np.moveaxis(images, 0, -1))
    assert sizes(last, "lorenzo|shuffle|zstd:3")[0] < 1.2 * sizes(images, "lorenzo|shuffle|zstd:3")[0]


def test_pred_takes_float16() -> None:
    x = slopes(2, "float16")
    plain, pred = sizes(x, "shuffle|zstd:3", "pred")
    assert pred < 0.7 * plain
    as_integers = encode(x.view(np.uint16), "pred")
    assert as_integers.stream.tobytes() == encode(x, "pred").stream.tobytes()
