"""Arrays with any strides as contiguous ones, by one launch."""

import math

import numpy as np

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device, Kernel

KERNELS = [Kernel("contiguous.cu", "gather_items", (("ITEM_NBYTES", item),)) for item in (1, 2, 4, 8, 16)]
THREADS = 256
_ITEMS_OF_A_THREAD = 8
_LARGEST_ITEM = 16  # bytes

Axes = list[tuple[int, int]]  # of (size, stride in bytes)


def contiguous(device: Device, x: DeviceArray) -> DeviceArray:
    """The same items in C order: ``x`` itself if they lie so, else a copy, queued on the current stream.

    Args:
        device: where ``x`` is.
        x: ``[n, ...]``; the part at each index of the first axis has less than 2^31 items.

    Raises:
        HeapFull: the device has not enough free memory.
    """
    strides = list(zip(x.shape, x.strides, strict=True))
    if _merged([*strides, (x.dtype.itemsize, 1)]) in ([], [(x.nbytes, 1)]) or x.size == 0:
        return x
    out = device.empty(x.shape, x.dtype)
    item, row, in_row = _split(device.address(x), strides, x.dtype.itemsize)
    row_items = math.prod(size for size, _ in in_row)
    tiles = -(-row_items // (THREADS * _ITEMS_OF_A_THREAD))
    table = device.upload(np.array(in_row[::-1], np.int64).reshape(-1, 2))
    device.launch(
        KERNELS[item.bit_length() - 1],
        row[0] * tiles,
        THREADS,
        np.uint64(device.address(x)),
        np.int64(row[1]),
        np.uint64(device.address(table)),
        np.uint32(len(in_row)),
        np.uint32(row_items),
        np.uint32(tiles),
        np.uint64(device.address(out)),
    )
    return out


def _split(address: int, strides: Axes, itemsize: int) -> tuple[int, tuple[int, int], Axes]:
    """Bytes of the items to copy, to which all of them are aligned; the first axis; the axes behind it."""
    item = math.gcd(address, itemsize, _LARGEST_ITEM, *(stride for size, stride in strides if size > 1))
    return item, strides[0], _merged([*strides[1:], (itemsize // item, item)])


def _merged(axes: Axes) -> Axes:
    """Axes of the same items, those together that lie one behind the other."""
    merged: Axes = []
    for size, stride in axes:
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    return merged
