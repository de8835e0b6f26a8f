"""Arrays of any strides as contiguous ones."""

import numpy as np
import pytest
from obscodec_cupy.device.contiguous import contiguous
from obscodec_cupy.device.device import Device

WHOLE = np.random.default_rng(0).integers(256, size=(6, 9, 8, 10), dtype=np.uint8)
PARTS = [
    np.s_[::2],
    np.s_[:, 1:-1],
    np.s_[:, :, ::3],
    np.s_[..., 1::2],
    np.s_[1:, ::-2, 3:4],
    np.s_[::-1],
    np.s_[:, :, 2, 3],
    np.s_[3:3],
]


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize(
    "dtype", [np.uint8, np.float16, np.int32, np.float64, np.complex128], ids=lambda dtype: dtype.__name__
)
def test_parts_are_copied(device: Device, part: object, dtype: type) -> None:
    whole = WHOLE.astype(dtype)
    view = device.upload(whole)[part]
    copy = contiguous(device, view)
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(device.download(copy), whole[part])


@pytest.mark.parametrize("axes", [(0, 3, 1, 2), (0, 2, 1, 3), (1, 0, 2, 3), (3, 2, 1, 0)])
def test_axes_are_put_in_order(device: Device, axes: tuple[int, ...]) -> None:
    for whole in (WHOLE, WHOLE.astype(np.float32)):
        copy = contiguous(device, device.upload(whole).transpose(axes))
        np.testing.assert_array_equal(device.download(copy), whole.transpose(axes))


def test_items_that_are_not_aligned_are_copied(device: Device) -> None:
    rows = device.upload(np.arange(220, dtype=np.uint8).reshape(20, 11))
    copy = contiguous(device, rows[:, 1:9].view(np.uint16))
    np.testing.assert_array_equal(
        device.download(copy), np.arange(220, dtype=np.uint8).reshape(20, 11)[:, 1:9].view(np.uint16)
    )


def test_large_rows_take_several_thread_blocks(device: Device) -> None:
    whole = np.arange(3 * 90 * 101, dtype=np.int32).reshape(3, 90, 101)
    np.testing.assert_array_equal(
        device.download(contiguous(device, device.upload(whole).transpose((0, 2, 1)))), whole.swapaxes(1, 2)
    )


def test_what_is_contiguous_is_not_copied(device: Device) -> None:
    whole = device.upload(WHOLE)
    for view in (whole, whole[2:4], whole[3, 1:2], whole[:, :, :, :], whole[1:1], whole[0, 0, 0, 0:1]):
        assert device.address(contiguous(device, view)) == device.address(view)
    turned = whole[:1, :, :1, :1].transpose((0, 3, 2, 1))
    assert contiguous(device, turned).shape == (1, 1, 1, 9)
