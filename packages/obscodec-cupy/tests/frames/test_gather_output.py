"""What the gather makes of frames on the way: floats, as numpy rounds them, shifts, and stacks along the last axis."""

import ml_dtypes
import numpy as np
import pytest
from mirrors import gathered
from obscodec import DTypeError, FrameStack, FrameStore, Layout, ShapeError
from obscodec_cupy.device.device import Device
from obscodec_cupy.frames.gather import Gather

SCALES = [1.0, 1 / 255, 0.1, -3.7, 1e-7, 2.0**-24, 2.0**-25, 257.3, 300.0, 1e-39, 3e-41, 1e37]
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def stored(stacks: np.ndarray, stack: FrameStack) -> tuple[FrameStore, np.ndarray]:
    layout = Layout.of(stacks[0])
    store = FrameStore(layout, frame_stack=stack)
    return store, store.append(stacks)


def images(n: int, *shape: int, dtype: str = "u1") -> np.ndarray:
    rng = np.random.default_rng(n)
    return rng.integers(0, 256, (n, *shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]


def shifted(image: np.ndarray, rows: int, columns: int, axes: tuple[int, int]) -> np.ndarray:
    for axis, by in zip(axes, (rows, columns), strict=True):
        length = image.shape[axis]
        image = image.take((np.arange(length) + by).clip(0, length - 1), axis)
    return image


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("axis", [0, -1])
def test_bytes_become_floats_as_numpy_rounds_them(device: Device, dtype: str, scale: float, axis: int) -> None:
    stacks = np.stack([np.arange(256, dtype=np.uint8).reshape(2, 16, 8), images(3, 2, 16, 8)[0]])
    stacks = stacks if axis == 0 else np.ascontiguousarray(np.moveaxis(stacks, 1, -1))
    store, ids = stored(stacks, FrameStack(2, axis))
    (found,) = gathered(device, store, [ids], dtype=dtype, scale=scale)
    with np.errstate(over="ignore"):
        expected = (stacks.astype(np.float32) * np.float32(scale)).astype(DTYPES[dtype])
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "axis", "height", "width"),
    [(None, 0, 12, 16), ("float16", -1, 12, 16), (None, -1, 5, 7), ("float16", 0, 5, 7)],
)
def test_each_field_is_shifted_on_its_own(
    device: Device, dtype: str | None, axis: int, height: int, width: int
) -> None:
    n, pixels = 6, (1, 2) if axis == 0 else (0, 1)
    stacks = images(n, *((6, height, width) if axis == 0 else (height, width, 6)))
    store, ids = stored(stacks, FrameStack(3, axis))
    rng = np.random.default_rng(0)
    shifts = rng.integers(-4, 5, (2, n, 2)).astype(np.int32)
    shifts[0, :2] = [[2**31 - 1, -(2**31)], [100, 0]]
    both = gathered(device, store, [ids, ids[::-1]], dtype=dtype, shifts=shifts, shifted_axes=pixels)
    for found, images_, by in zip(both, (stacks, stacks[::-1]), shifts.astype(np.int64), strict=True):
        expected = np.stack([shifted(image, *s, pixels) for image, s in zip(images_, by, strict=True)])
        np.testing.assert_array_equal(found, expected.astype(dtype or "u1"))


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16"])
def test_pixels_of_several_elements_are_shifted_whole(device: Device, dtype: str) -> None:
    rows = images(4, 6, 8, 3, dtype=dtype)
    store = FrameStore(Layout.of(rows[0]))
    shifts = np.array([[1, -2], [0, 3], [-2, 0], [0, 0]], np.int32)
    (found,) = gathered(device, store, [store.append(rows)], shifts=shifts[None], shifted_axes=(0, 1))
    expected = np.stack([shifted(row, *by, (0, 1)) for row, by in zip(rows, shifts, strict=True)])
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("dtype", "channels"), [("u1", 1), ("u1", 3), ("i2", 3), ("f4", 1), ("f8", 3), ("c16", 1)])
def test_stacks_along_the_last_axis(device: Device, dtype: str, channels: int) -> None:
    stacks = images(5, 6, 5, 4 * channels, dtype=dtype)
    store, ids = stored(stacks, FrameStack(4, -1))
    (found,) = gathered(device, store, [ids])
    assert found.tobytes() == stacks.tobytes()


def test_what_is_refused(device: Device) -> None:
    image = Layout((4, 12, 12), np.uint8)
    with pytest.raises(DTypeError) as caught:
        Gather(device, Layout((4,), np.int8), 16, dtype="float32")
    assert str(caught.value) == "uint8 is converted to float16, bfloat16, float32, got int8 to float32"
    with pytest.raises(DTypeError) as caught:
        Gather(device, image, 16, dtype="float64")
    assert str(caught.value) == "uint8 is converted to float16, bfloat16, float32, got uint8 to float64"
    for axes in ((0, 1), (1, 3), (2, 1), (-5, 1), (2, 3)):
        with pytest.raises(ShapeError) as caught:
            Gather(device, image, 16, frame_stack=FrameStack(4), shifted_axes=axes)
        assert str(caught.value) == (
            "rows and columns are two axes that follow each other, along which no frames are stacked, "
            f"got {axes} of shape (4, 12, 12)"
        )
    with pytest.raises(ShapeError) as caught:
        Gather(device, Layout((17, 2), np.uint8), 16, frame_stack=FrameStack(17))
    assert str(caught.value) == "stacks of at most 16 frames, not empty, are read on a device, got 17 of 2 bytes"
    with pytest.raises(ShapeError) as caught:
        Gather(device, Layout((1 << 31,), np.uint8), 16)
    assert str(caught.value).startswith("frames of at most 1073741824 bytes are decoded on ")
    with pytest.raises(DTypeError) as caught:
        Gather(device, Layout((2, 2), "G"), 16, shifted_axes=(0, 1))
    assert str(caught.value) == ("elements of at most 16 bytes are put in another order on a device, got complex256")
