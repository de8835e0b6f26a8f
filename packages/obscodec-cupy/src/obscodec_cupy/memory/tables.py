"""Tables in device memory, and what is written to them from the host: many pieces in one launch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.copies import move, scatter
from obscodec_cupy.device.device import Device

_ROW_ALIGNMENT = 16


class DeviceTable:
    """Rows of bytes in device memory, zeros until they are written.

    Args:
        device: where.
        row_nbytes: bytes of a row.
        n_rows: how many rows there are.

    Raises:
        HeapFull: the device has not enough free memory.
    """

    def __init__(self, device: Device, row_nbytes: int, n_rows: int = 0) -> None:
        self.device = device
        self.row_nbytes = row_nbytes
        self.n_rows = n_rows
        self.memory: DeviceArray = device.zeros((max(_ROW_ALIGNMENT, n_rows * row_nbytes),), np.uint8)
        self.address = device.address(self.memory)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.n_rows * self.row_nbytes

    def with_rows(self, n_rows: int) -> DeviceTable:
        """This table if it has so many rows; else another one, twice as large or larger, that begins with these.

        Raises:
            HeapFull: the device has not enough free memory.
        """
        if n_rows <= self.n_rows:
            return self
        grown = DeviceTable(self.device, self.row_nbytes, max(n_rows, 2 * self.n_rows))
        here, there = np.array([[self.address], [grown.address]], np.uint64)
        move(self.device, here, there, np.array([self.nbytes]))
        return grown


class PendingWrites:
    """Bytes on their way to places on a device.

    Args:
        device: where the places are. No two of them may overlap.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._addresses: list[npt.NDArray[np.uint64]] = []
        self._lengths: list[npt.NDArray[np.int64]] = []

    def add(self, address: int, data: npt.NDArray[np.generic]) -> None:
        """Write an array to an address."""
        if data.nbytes:
            self._put(data, np.array([address], np.uint64), np.array([data.nbytes]))

    def add_rows(
        self, address: int, row_nbytes: int, rows: npt.NDArray[np.int64], data: npt.NDArray[np.generic]
    ) -> None:
        """Write rows of a table.

        Args:
            address: where it begins.
            row_nbytes: bytes of a row.
            rows: ``i64[n]``, their numbers, rising.
            data: ``[n, ...]``, what they are to be, contiguous.
        """
        if len(rows) == 0:
            return
        begins = np.append(0, np.flatnonzero(np.diff(rows) != 1) + 1)  # of rows without a gap, which go as one piece
        lengths = np.diff(np.append(begins, len(rows))) * row_nbytes
        self._put(data, np.uint64(address) + (rows[begins] * row_nbytes).astype(np.uint64), lengths)

    def launch(self) -> None:
        """Queue all; nothing if there is nothing.

        Raises:
            HeapFull: the device has not enough free memory; nothing is queued.
        """
        if self._pieces:
            addresses, lengths = np.concatenate(self._addresses), np.concatenate(self._lengths)
            scatter(self._device, np.concatenate(self._pieces), addresses, lengths)

    def _put(
        self, data: npt.NDArray[np.generic], addresses: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int64]
    ) -> None:
        self._pieces.append(np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        self._addresses.append(addresses)
        self._lengths.append(lengths)
