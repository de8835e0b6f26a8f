"""SlotTable: where the stream of each slot of a heap lies."""

import numpy as np
import numpy.typing as npt

from obscodec.runtime import new_table
from obscodec.segments import Ints


class SlotTable:
    """For each slot the number of a chunk, 0 for none, and the offset and length of the stream in it.

    Not safe to use from several threads: its heap locks, and makes sure that slots are in range. A slot that was never
    used costs no memory.
    """

    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.entries = new_table((max(1, n_slots), 3), np.uint32)
        self._first_used, self._n_used = n_slots, 0  # no slot before the one, and from the other on, was ever used
        self._changed: set[int] | None = None  # slots; None while nobody watches

    @property
    def nbytes(self) -> int:
        """Bytes for the slots that were ever used."""
        return self.entries[self._first_used : self._n_used].nbytes

    def find(self, slots: Ints) -> npt.NDArray[np.int64]:
        """``i64[3, n]``: the chunk of each stream, its offset, its length; all 0 for a slot that holds nothing."""
        return self.entries.take(slots, axis=0).T.astype(np.int64, order="C")

    def holds(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which slots hold a stream."""
        held: npt.NDArray[np.bool_] = self.entries[slots, 0] != 0
        return held

    def held(self) -> Ints:
        """All slots that hold a stream, rising."""
        return np.flatnonzero(self.entries[: self._n_used, 0])

    def in_chunk(self, number: int) -> Ints:
        """The slots with a stream in a chunk, in the order of their offsets."""
        slots = np.flatnonzero(self.entries[: self._n_used, 0] == number)
        return slots[np.argsort(self.entries[slots, 1], kind="stable")]

    def set(self, slots: Ints, entries: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Set chunk, offset and length, ``u32[n, 3]``, of at least one slot; of all slots, or of none if this raises.

        Returns:
            What :meth:`find` returned before.
        """
        before = self.find(slots)
        self.note(slots)
        self._first_used = min(self._first_used, int(slots.min()))
        self._n_used = max(self._n_used, int(slots.max()) + 1)
        self.entries[slots] = entries
        return before

    def clear(self, slots: Ints) -> None:
        """Empty all ``slots``, or none if it raises."""
        self.note(slots)
        self.entries[slots] = 0

    def grow(self, n_slots: int) -> None:
        """Make room for more slots."""
        grown = new_table((n_slots, 3), np.uint32)
        used = slice(self._first_used, self._n_used)
        grown[used] = self.entries[used]
        self.entries, self.n_slots = grown, n_slots

    def watch(self) -> None:
        """Note from now on which slots change; all slots that hold a stream count as changed."""
        self._changed = set(self.held().tolist())

    def note(self, slots: Ints) -> None:
        """Count slots as changed, if somebody watches."""
        if self._changed is not None:
            self._changed.update(slots.tolist())

    def changed(self) -> Ints:
        """The slots, rising, that changed since the last call, or since :meth:`watch`."""
        assert self._changed is not None
        slots = np.array(sorted(self._changed), np.int64)
        self._changed.clear()
        return slots
