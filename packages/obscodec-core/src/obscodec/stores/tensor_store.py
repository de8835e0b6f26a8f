"""TensorStore: tensors of one layout, each encoded on its own."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, check_kind, says_arguments
from obscodec.codecs import Codec
from obscodec.errors import CorruptStream, ShapeError, SlotError
from obscodec.fixed import Fixed
from obscodec.heap import SlotHeap
from obscodec.layout import Rows
from obscodec.runtime import as_threads, over_ranges
from obscodec.segments import Ints, Segments
from obscodec.state import State
from obscodec.stats import StoreStats
from obscodec.stores.exchange import Place
from obscodec.stores.free_slots import FreeSlots
from obscodec.stores.ids import NO_TENSOR, as_ids
from obscodec.stores.store import MAKE_ANOTHER, Store

_SCRATCH_NBYTES = 1 << 22
_MIN_ROWS_BYTES_PER_THREAD = 1 << 17  # below, waking a thread costs more than it saves


@says_arguments
class TensorStore(Store):
    """Tensors in the slots ``1..n_slots``, each encoded on its own; slot 0 is the zero tensor.

    Choose the slots yourself with :meth:`write`, or let :meth:`append` and :meth:`release` choose them; not both.
    Safe to use from several threads.

    Args:
        codec: encodes each tensor.
        n_slots: the most tensors; unused slots take no memory.
        max_bytes: the most bytes to reserve for streams, None for no limit.
        threads: how many threads share the work on a large batch, None for half of the usable processors.

    Raises:
        ShapeError: a number is out of range.
        DTypeError: an argument has another type.

    Example:
        >>> import numpy as np, obscodec
        >>> store = TensorStore(obscodec.codec("zstd:1", obscodec.Layout((84, 84), np.uint8)), n_slots=100)
        >>> store.write([1, 2], np.stack([np.zeros((84, 84), np.uint8), np.ones((84, 84), np.uint8)]))
        >>> store.read([2, 1]).mean(axis=(1, 2))
        array([1., 0.])
    """

    codec: Fixed[Codec] = Fixed(MAKE_ANOTHER)
    n_slots: Fixed[int] = Fixed(MAKE_ANOTHER)

    def __init__(self, codec: Codec, n_slots: int, *, max_bytes: int | None = None, threads: int | None = None) -> None:
        check_kind("codec", codec, Codec, "a Codec, such as obscodec.codec('zstd:1', layout)")
        self.codec = codec
        self.layout, self.device = codec.layout, "cpu"
        self.n_slots = as_count("n_slots", n_slots, 0)
        self.threads = as_threads(threads)
        self._heap = SlotHeap(self.n_slots + 1, max_bytes=max_bytes)
        self._free = FreeSlots(self.n_slots, self._heap.holds)
        self._taken: tuple[Ints, Ints] | None = None  # slots of a call that fills or empties them, and its ids

    def write(self, slots: npt.ArrayLike, tensors: npt.NDArray[np.generic]) -> None:
        """Encode tensors into ``slots``, overwriting what is there. Either all are stored or none.

        Args:
            slots: ``[n]``.
            tensors: ``[n, *shape]``.

        Raises:
            SlotError: a slot is out of range, or 0.
            ShapeError: the tensors have another shape, or are not as many as the slots.
            DTypeError: the tensors have another dtype.
            HeapFull: there is not enough room below ``max_bytes``.
        """
        slots = np.atleast_1d(np.asarray(slots))
        if np.any(slots == NO_TENSOR):
            raise SlotError(f"slot {NO_TENSOR} is the zero tensor and can't be written, use 1..{self.n_slots}")
        streams = self._encode(tensors)
        if len(slots) != len(streams):
            raise ShapeError(f"{len(slots)} slots take {len(slots)} tensors, got {len(streams)}")
        self._heap.put(slots, streams)

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``.

        Raises:
            SlotError: there are not enough free slots.
        """
        self._fill(ids, self._encode(tensors).take(which))

    def replace(self, old: Ints, tensors: npt.NDArray[np.generic], sequences: npt.ArrayLike = 0) -> Ints:
        """See ``Store.replace``. Tensors take over the slots of different ids."""
        old = as_ids(old)
        if len(old) == self.number_of(tensors) and self._are_different(old) and (old != NO_TENSOR).all():
            self._check_held(old)
            self.write(old, tensors)
            return old.copy()
        return super().replace(old, tensors, sequences)

    def exchange(self, places: Sequence[Place], tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints) -> None:
        """See ``Store.exchange``. New tensors take over the slots of the old ones, if no guard keeps these."""
        with self.changing:
            old = [np.array(ids[index], np.int64).reshape(-1) for ids, index in places]
            held = np.concatenate(old)
            if self._references.must_wait or not self._are_different(held) or not held.any():
                super().exchange(places, tensors, which, sequences)
                return
            self._check_held(held[held != NO_TENSOR])
            encoded = self._encode(tensors)
            for (ids, index), of_place in zip(places, old, strict=True):
                empty = np.flatnonzero(of_place == NO_TENSOR)
                if len(empty):  # they get slots with zeros, which read the same, and then change with the others
                    at = np.arange(ids.size).reshape(ids.shape)[index].reshape(-1)[empty]
                    zeros = np.zeros((1, *self.layout.shape), self.layout.dtype)
                    place = Place(ids, np.unravel_index(at, ids.shape))
                    super().exchange([place], zeros, np.zeros(len(empty), np.int64), np.zeros(1, np.int64))
            slots = np.concatenate([np.reshape(ids[index], -1) for ids, index in places], dtype=np.int64)
            self._heap.put(slots, encoded.take(which))

    def transfer_alike(self, other: Store, ids: Ints, out: Ints) -> bool:
        """See ``Store.transfer``: copies the streams of a store with an equal codec."""
        if not isinstance(other, TensorStore) or other.codec != self.codec:
            return False
        stored = np.flatnonzero(ids != NO_TENSOR)
        streams, here = other._heap.get(ids[stored]), np.zeros(len(stored), np.int64)
        try:
            self._fill(here, streams)
            out[stored] = here
        finally:
            if not np.array_equal(out[stored], here):
                self.give_back(here)
        return True

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        if not isinstance(out, np.ndarray):
            self.read_via_host(ids, out)
            return
        rows = self.layout.rows(out)
        stored = ids != NO_TENSOR
        if stored.all():
            self._decode(self._heap.get(ids), rows)
            return
        some = np.empty((int(stored.sum()), self.layout.nbytes), np.uint8)
        self._decode(self._heap.get(ids[stored]), some)
        rows[stored] = some
        rows[~stored] = 0

    def give_back(self, ids: Ints) -> None:
        """See ``Store.give_back``."""
        slots = ids[ids != NO_TENSOR]
        with self._heap.lock:
            self._settle()
            if len(slots) == 0:
                return
            self._check_held(slots)
            try:
                self._taken = slots, ids
                ids[:] = NO_TENSOR
            finally:
                self._settle()

    def _stats(self) -> StoreStats:
        """See ``Store.stats``."""
        with self._heap.lock:
            self._settle()
            heap = self._heap.stats()
        return StoreStats(
            n_tensors=heap.n_streams,
            raw_bytes=heap.n_streams * self.layout.nbytes,
            live_bytes=heap.live_bytes,
            reserved_bytes=heap.reserved_bytes,
            table_bytes=heap.table_bytes,
            dictionary_bytes=len(self.codec.dictionary),
            disk_bytes=heap.disk_bytes,
            growing_bytes=heap.taken_bytes + heap.table_bytes,
            codec=self.codec.spec,
            block_frames=1,
        )

    @property
    def memory_bytes(self) -> int:
        """See ``Store.memory_bytes``."""
        return self._heap.memory_bytes

    def spill(self, folder: str, nbytes: int) -> int:
        """See ``Store.spill``."""
        return self._heap.spill(folder, nbytes)

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        limit = self._heap.max_bytes
        return {"codec": self.codec, "n_slots": self.n_slots, "max_bytes": limit, "threads": self.threads}

    def _state(self) -> State:
        with self._heap.lock:
            self._settle()
            return self._heap.state()

    def _restore(self, state: State) -> None:
        """See ``Store.restore``."""
        self._heap.restore(state, unreadable=b"\xff" * (self.codec.read_bound() + 1))  # longer than any stream
        if self._heap.holds([NO_TENSOR])[0]:
            raise CorruptStream(f"slot {NO_TENSOR} is the zero tensor, and has a stream")
        self._free.begin(self._heap.state()["slots"])

    def _fill(self, ids: Ints, streams: Segments) -> None:
        """Put streams into free slots, and fill ``ids`` with the slots; as ``Store.take_in``, if it is interrupted."""
        with self._heap.lock:
            self._settle()
            try:
                slots = self._free.find(len(ids))
                self._taken = slots, ids
                if len(slots):
                    self._heap.put(slots, streams)
                ids[:] = slots
            finally:
                self._settle()

    def _settle(self) -> None:
        """Empty the slots of a call whose ids do not name them: it was interrupted, or gave the ids back."""
        if self._taken is not None:
            slots, ids = self._taken
            if not np.array_equal(ids[ids != NO_TENSOR], slots):
                self._heap.free(slots)
                self._free.given_back(slots)
            self._taken = None

    def _are_different(self, ids: Ints) -> bool:
        """Whether no tensor is named twice."""
        return len(np.unique(ids[ids != NO_TENSOR])) == np.count_nonzero(ids)

    def _check_held(self, slots: Ints) -> None:
        held = self._heap.holds(slots)
        if not held.all():
            raise SlotError(f"slot {slots[~held][0]} holds nothing that could be released")
        if len(slots) > 1:
            ordered = np.sort(slots)
            twice = ordered[1:] == ordered[:-1]
            if twice.any():
                raise SlotError(f"slot {ordered[1:][twice][0]} is released twice, it holds one tensor")

    def _encode(self, tensors: npt.NDArray[np.generic]) -> Segments:
        """The streams of tensors, encoded piece by piece, so that the scratch memory stays small."""
        rows = self.layout.rows(self.to_host(tensors))
        per_piece = max(1, _SCRATCH_NBYTES // max(1, self.codec.bound()))
        scratch = np.empty(min(len(rows), per_piece) * self.codec.bound(), np.uint8)
        if len(rows) <= per_piece:
            return self.codec.encode_batch(rows, scratch)
        pieces = []
        for start in range(0, len(rows), per_piece):
            streams = self.codec.encode_batch(rows[start : start + per_piece], scratch)
            pieces.append(Segments.packed(scratch[: streams.nbytes].copy(), streams.lengths))
        return Segments.joined(pieces)

    def _decode(self, streams: Segments, rows: Rows) -> None:
        def decode(start: int, stop: int) -> None:
            self.codec.decode_batch(streams.take(slice(start, stop)), rows[start:stop])

        over_ranges(decode, len(rows), min(self.threads, rows.nbytes // _MIN_ROWS_BYTES_PER_THREAD))

    def __repr__(self) -> str:
        return f"TensorStore({self.codec.spec!r}, {self.layout}, {self.stats()})"
