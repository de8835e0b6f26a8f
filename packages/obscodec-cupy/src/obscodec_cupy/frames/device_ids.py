"""DeviceIds: the ids of a compressed array in device memory, where kernels look them up."""

from collections.abc import Sequence

import numpy as np
from obscodec import TensorArray
from obscodec.stores import Store

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.writes import Writes


class DeviceIds:
    """A copy of the ids of one array, those of the store that decodes its items.

    Args:
        device: where the copy is.
        array: the array, no view of another one.

    Attributes:
        copy: ``i32[n_items]`` on the device, None before it was first written.
        address: where it begins.
        watch: the rows that have changed since it was written.

    Raises:
        ShapeError: the array is a view.
    """

    def __init__(self, device: Device, array: TensorArray) -> None:
        self.device, self.array = device, array
        self.copy: DeviceArray | None = None
        self.address = 0
        self.watch = array.watch()


def write_ids(store: Store, arrays: Sequence[DeviceIds], writes: Writes) -> None:
    """Have be written what was assigned to arrays of a store since the last call.

    If that is not queued, all rows must be noted in the watches.

    Raises:
        HeapFull: the device has not enough free memory.
    """
    changed, somes = [], []
    with store.changing:
        for one in arrays:
            ids = one.array.ids  # what waited to be stored is noted then
            changed.append(rows := one.watch.take())
            somes.append(ids[rows].reshape(-1))
    _, inner = store.device_reader(np.concatenate(somes).astype(np.int64))
    values = inner.astype(np.int32)
    for one, rows, some in zip(arrays, changed, somes, strict=True):
        if one.copy is None:
            one.copy = one.device.empty((one.array.ids.size,), np.int32)
            one.address = one.device.address(one.copy)
        writes.add_rows(one.address, 4 * (len(some) // max(1, len(rows))), rows, values[: len(some)])
        values = values[len(some) :]
