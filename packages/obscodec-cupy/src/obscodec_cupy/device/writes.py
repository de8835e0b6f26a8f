"""Writes: bytes of the host on their way to places on a device, all in one copy and one launch."""

import numpy as np
import numpy.typing as npt
from obscodec.segments import Ints

from obscodec_cupy.device.device import Device, Kernel

SCATTER = Kernel("copies.cu", "scatter")
THREADS = 128
PIECE_NBYTES = 16 << 10  # of one thread block
_MOST_NBYTES = 32 << 20  # more are launched early, so that little memory is pinned


class Writes:
    """Collects what is to be written to places on a device, which don't overlap.

    :meth:`launch` has the device write it, queued on the current stream. Data may change as soon as it returns.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._data: list[npt.NDArray[np.generic]] = []
        self._pieces: list[Ints] = []
        self._nbytes = 0

    def add(self, pieces: Ints, data: npt.NDArray[np.generic]) -> None:
        """Write contiguous data in pieces, which lie in it one behind the other.

        ``pieces`` are ``i64[n, 2]``: the address of each on the device, and its bytes.
        """
        self._pieces.append(pieces)
        self._data.append(data)
        self._nbytes += data.nbytes

    def add_long(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        """Write data to one address. If there is much, some is launched at once."""
        for begin in range(0, len(data), _MOST_NBYTES):
            part = data[begin : begin + _MOST_NBYTES]
            self.add(np.array([[address + begin, len(part)]]), part)
            if self._nbytes >= _MOST_NBYTES:
                self.launch()

    def add_rows(self, address: int, row_nbytes: int, rows: Ints, data: npt.NDArray[np.generic]) -> None:
        """Write rows of a table at an address: their numbers, ``i64[n]``, rise; ``[n, ...]`` data are contiguous."""
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:  # most are
            self.add(np.array([[address + int(rows[0]) * row_nbytes, data.nbytes]]), data)
        elif len(rows):
            (behind_gaps,) = (rows[1:] != rows[:-1] + 1).nonzero()
            begins = np.zeros(len(behind_gaps) + 1, np.int64)  # of rows without a gap, which go as one piece
            begins[1:] = behind_gaps + 1
            pieces = np.empty((len(begins), 2), np.int64)
            pieces[:, 0] = address + rows[begins] * row_nbytes
            pieces[:-1, 1], pieces[-1, 1] = begins[1:], len(rows)
            pieces[:, 1] = (pieces[:, 1] - begins) * row_nbytes
            self.add(pieces, data)

    def launch(self) -> None:
        """Queue all; if it raises HeapFull, nothing of what was added since the last launch is queued."""
        if not self._nbytes:
            return
        addresses, lengths = _cut(*np.concatenate(self._pieces).T)
        pieces = np.empty((len(lengths), 3), np.int64)  # see kernels/copies.cu
        pieces[:, 0] = lengths.cumsum() - lengths + pieces.nbytes
        pieces[:, 1], pieces[:, 2] = addresses, lengths

        staged = self._device.staging(pieces.nbytes + self._nbytes)
        there = self._device.empty((len(staged),), np.uint8)
        end = pieces.nbytes
        staged[:end] = pieces.reshape(-1).view(np.uint8)
        for data in self._data:
            staged[end : end + data.nbytes] = data.reshape(-1).view(np.uint8)
            end += data.nbytes
        self._device.write_from(staged, there)
        self._device.launch(SCATTER, len(pieces), THREADS, np.uint64(self._device.address(there)))
        self._pieces, self._data, self._nbytes = [], [], 0


def _cut(addresses: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Pieces of at most ``PIECE_NBYTES``, one behind the other."""
    if lengths.max() <= PIECE_NBYTES:
        return addresses, lengths
    counts = -(-lengths // PIECE_NBYTES)
    which = np.arange(len(lengths)).repeat(counts)
    begins = (np.arange(len(which)) - (counts.cumsum() - counts)[which]) * PIECE_NBYTES
    return addresses[which] + begins, np.minimum(lengths[which] - begins, PIECE_NBYTES)
