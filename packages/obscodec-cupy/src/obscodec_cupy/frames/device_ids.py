"""DeviceIds: the ids of a compressed array in device memory, where kernels look them up."""

import math

import numpy as np
from obscodec import TensorArray
from obscodec.stores import Store

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device
from obscodec_cupy.memory.tables import DeviceTable, PendingWrites


class DeviceIds:
    """A copy of the ids of one array, those of the store that decodes its items.

    Args:
        device: where the copy is.
        array: the array, no view of another one.

    Attributes:
        ids: ``i32[n_items]`` on the device, always at the same place.

    Raises:
        ShapeError: the array is a view.
        HeapFull: the device has not enough free memory.
    """

    def __init__(self, device: Device, array: TensorArray) -> None:
        self.array = array
        self._watch = array.watch()
        n_rows, *rest = array.ids.shape
        self._table = DeviceTable(device, 4 * math.prod(rest), n_rows)
        self.ids: DeviceArray = self._table.memory[: self._table.nbytes].view(np.int32)

    def update(self, writes: PendingWrites) -> Store:
        """Have what was assigned since the last call be written; returns the store that decodes the items.

        Raises:
            SpecError: it is not decided yet which store that is.
        """
        with self.array.store.changing:
            ids = self.array.ids  # what waited to be stored is noted then
            rows = self._watch.take()
            some = ids[rows].astype(np.int64)
        try:
            store, inner = self.array.store.resolve(some.reshape(-1))
        except BaseException:
            self.forget()
            raise
        writes.add_rows(self._table.address, self._table.row_nbytes, rows, inner.astype(np.int32))
        return store

    def forget(self) -> None:
        """Have the next update write all."""
        self._watch.note(())
