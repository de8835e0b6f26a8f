"""The memory that kernels of a simulated GPU may touch."""

import ctypes
import threading

import numpy as np
import numpy.typing as npt

# The libraries of the kernels know accesses to shared memory by it, so there is one for all devices.
_PHASE = ctypes.c_uint32(0)
SHADOW_NBYTES = 16  # of a byte: who wrote it last, and who has read it since


class _Table(ctypes.Structure):
    """``Memory`` of runtime.h."""

    _fields_ = (("regions", ctypes.c_void_p), ("n_regions", ctypes.c_uint64), ("phase", ctypes.c_void_p))


class Regions:
    """All allocations, and the memory of others that there are views of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: dict[int, tuple[int, npt.NDArray[np.uint64]]] = {}  # nbytes and shadow, by address
        self._foreign: dict[tuple[int, int], int] = {}  # how often each span was added; spans may overlap
        self._table: _Table | None = None

    def add(self, address: int, nbytes: int) -> None:
        """An allocation; the accesses to it are watched for races."""
        with self._lock:
            self._own[address] = (nbytes, np.zeros(nbytes * SHADOW_NBYTES // 8, np.uint64))
            self._table = None

    def remove(self, address: int) -> None:
        with self._lock:
            del self._own[address]
            self._table = None

    def lend(self, begin: int, end: int) -> None:
        """Memory that others allocated."""
        with self._lock:
            self._foreign[begin, end] = self._foreign.get((begin, end), 0) + 1
            self._table = None

    def take_back(self, begin: int, end: int) -> None:
        with self._lock:
            self._foreign[begin, end] -= 1
            if self._foreign[begin, end] == 0:
                del self._foreign[begin, end]
            self._table = None

    def table(self) -> _Table:
        """The table for the kernels, as it is now; what changes later is in another one."""
        with self._lock:
            if self._table is None:
                own = [(begin, begin + nbytes, shadow.ctypes.data) for begin, (nbytes, shadow) in self._own.items()]
                self._table = _Table(phase=ctypes.addressof(_PHASE))
                self._table.held = np.array(sorted(own + self._foreign_spans()), np.uint64).reshape(-1, 3)
                self._table.regions = self._table.held.ctypes.data
                self._table.n_regions = len(self._table.held)
            return self._table

    def _foreign_spans(self) -> list[tuple[int, int, int]]:
        spans: list[tuple[int, int, int]] = []
        for begin, end in sorted(self._foreign):
            if spans and begin <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]), 0)
            else:
                spans.append((begin, end, 0))
        return spans
