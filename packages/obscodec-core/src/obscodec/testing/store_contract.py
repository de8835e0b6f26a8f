"""StoreContract: the laws of a store of tensors."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError, ShapeError, SlotError
from obscodec.segments import Ints
from obscodec.stores import Store
from obscodec.testing.law import accepted, check, check_refused, equal

Tensors = npt.NDArray[np.generic]

_N_TENSORS, _N_STEPS, _N_THREADS = 24, 60, 2
_UNKNOWN = 10**6


class StoreContract:
    """The laws that every store keeps. A subclass gives :meth:`make`.

        class TestMyStore(StoreContract):
            def make(self) -> Store:
                return MyStore(Layout((6, 5), "uint8"))

    The store must take tensors from host memory.
    """

    def make(self) -> Store:
        """A new empty store with room for 1000 tensors; all are alike."""
        raise NotImplementedError(f"{type(self).__name__} has to say how a store is made: override make()")

    def tensors(self, n: int) -> Tensors:
        """``[n, *shape]``: the first ``n`` tensors of a walk, all different, without the zero tensor.

        Most tensors differ in one byte from the one before them, some in all bytes.
        """
        layout, rng = self.make().layout, np.random.default_rng(0)
        rows = np.empty((n, layout.nbytes), np.uint8)
        for i, row in enumerate(rows):
            row[:] = rng.integers(0, 256, layout.nbytes, np.uint8) if i % 8 == 0 else rows[i - 1]
            row[rng.integers(layout.nbytes)] ^= rng.integers(1, 256, dtype=np.uint8)
        if layout.dtype == np.bool_:
            rows &= 1
        return layout.tensors(rows)

    def test_a_store_equals_a_dict_of_arrays(self) -> None:
        """A tensor is read as it was appended, in any order and repeatedly, until its last reference is released."""
        rng, model, tensors = np.random.default_rng(0), _Model(self.make()), self.tensors(_N_TENSORS)
        tensors = np.concatenate([np.zeros_like(tensors[:1]), tensors])
        for _ in range(_N_STEPS):
            n = int(rng.integers(7))
            which = rng.integers(len(tensors), size=n)
            if rng.integers(2):  # consecutive ones, as a loop appends them
                which = (which[:1] + np.arange(n)) % len(tensors)
            some = rng.permutation(len(model))[:n]
            if rng.integers(3):
                model.append(tensors[which], rng.integers(3, size=n))
            else:
                model.release(some)
            model.check(rng.integers(max(1, len(model)), size=2 * len(model)))
        model.release(np.arange(len(model)))

    def test_id_0_is_the_zero_tensor(self) -> None:
        """Id 0 is the zero tensor for ever: releasing it does nothing."""
        store, tensors = self.make(), self.tensors(3)
        zeros = np.zeros_like(tensors[:2])
        with accepted(store, "using id 0"):
            check(equal(store.read([0, 0]), zeros), store, "id 0 of an empty store is not the zero tensor")
            store.append(tensors)
            store.release([0, 0, 0])
            check(equal(store.read([0, 0]), zeros), store, "id 0 is not the zero tensor after it was released")
            ids = store.append(zeros)
            check(equal(store.read(ids), zeros), store, "the zero tensor is read as another one")
            store.release(ids)
            check(equal(store.read([0, 0]), zeros), store, "id 0 goes with an appended zero tensor")

    def test_a_reference_is_released_once(self) -> None:
        """Each id that an append returns is one reference; releasing it again raises SlotError and changes nothing."""
        store, tensors = self.make(), self.tensors(6)
        ids = store.append(tensors)
        held, before = ids[1:], store.read(ids[1:])
        with accepted(store, "releasing one of two references"):
            store.release(store.append(tensors[1:2]))
            check(equal(store.read(held), before), store, "a tensor is gone with one of its two references")
            store.release(ids[:1])
        stats = store.stats()
        for what, wrong in (
            ("releasing a reference again", ids[:1]),
            ("releasing a reference twice in a call", ids[[1, 5, 5]]),
            ("releasing an id that was never given, after one that was", [ids[2], _UNKNOWN]),
        ):
            check_refused(SlotError, store, what, partial(store.release, wrong))
            check(store.stats() == stats, store, f"{what} is refused, but changes the store")
            with accepted(store, f"reading after {what}"):
                check(equal(store.read(held), before), store, f"{what} is refused, but changes a tensor")
        with accepted(store, "releasing each reference once"):
            store.release(held)

    def test_unknown_ids_are_refused(self) -> None:
        """Reading an id that was never returned raises SlotError."""
        store = self.make()
        store.append(self.tensors(3))
        for wrong in ([_UNKNOWN], [0, -_UNKNOWN], [0.5]):
            check_refused(SlotError, store, f"reading the ids {wrong}", partial(store.read, wrong))
        check_refused(ShapeError, store, "reading ids of two axes", lambda: store.read([[0]]))

    def test_released_tensors_are_counted_down(self) -> None:
        """``stats().n_tensors`` counts the tensors that are held, up and down to 0."""
        store, n = self.make(), 9
        ids = store.append(self.tensors(n))
        for held in (n, n - 4, 0):
            store.release(ids[held:])
            ids = ids[:held]
            counted = store.stats().n_tensors
            check(counted == held, store, f"it holds {held} tensors, stats() counts {counted}")

    def test_a_refused_append_stores_nothing(self) -> None:
        """Tensors of another shape or dtype, and wrong sequences, are refused before any tensor is stored."""
        store, tensors = self.make(), self.tensors(4)
        other = np.complex128 if tensors.dtype != np.complex128 else np.uint8
        ids = store.append(tensors)
        stats, before = store.stats(), store.read(ids)
        for error, what, wrong, sequences in (
            (ShapeError, "appending tensors with an axis too many", tensors[..., None], 0),
            (ShapeError, "appending a tensor without an axis for their number", tensors[0], 0),
            (DTypeError, f"appending tensors of {other.__name__}", np.zeros(tensors.shape, other), 0),
            (ShapeError, "appending four tensors of three sequences", tensors, [0, 1, 2]),
            (DTypeError, "appending tensors of the sequence 0.5", tensors, 0.5),
        ):
            check_refused(error, store, what, partial(store.append, wrong, sequences))
            check(store.stats() == stats, store, f"{what} is refused, but changes the store")
        check(equal(store.read(ids), before), store, "a refused append changes a tensor")

    def test_read_fills_what_it_is_given(self) -> None:
        """``read(ids, out)`` fills ``out``, strided or not, and refuses another shape or dtype."""
        store, tensors = self.make(), self.tensors(4)
        ids, shape = store.append(tensors), tensors.shape
        expected = store.read(ids)
        with accepted(store, "reading into an array"):
            for out in (np.empty_like(tensors), np.empty((*shape, 2), tensors.dtype)[..., 0]):
                kind = "contiguous" if out.flags.c_contiguous else "strided"
                check(store.read(ids, out) is out, store, f"reading into a {kind} array gives another one")
                check(equal(out, expected), store, f"reading into a {kind} array fills it with something else")
        other = np.complex128 if tensors.dtype != np.complex128 else np.uint8
        for error, what, wrong in (
            (ShapeError, "reading four tensors into an array for three", np.empty_like(tensors[:3])),
            (ShapeError, "reading into an array with an axis too many", np.empty((*shape, 1), tensors.dtype)),
            (DTypeError, f"reading into an array of {other.__name__}", np.empty(shape, other)),
            (DTypeError, "reading into an array that is read-only", np.broadcast_to(tensors[:1], shape)),
        ):
            check_refused(error, store, what, partial(store.read, ids, wrong))

    def test_a_rebuilt_store_holds_the_same(self) -> None:
        """A pickled or copied store holds the same tensors and references, and shares nothing with the first."""
        for how, rebuild in (
            ("pickling", lambda store: pickle.loads(pickle.dumps(store))),
            ("pickling into memory that is read-only", _pickled_out_of_band),
            ("deepcopy", copy.deepcopy),
        ):
            store, tensors = self.make(), self.tensors(_N_TENSORS)
            ids = store.append(tensors[:18])
            twice = store.append(tensors[17:18])
            store.release(ids[:5])
            ids = ids[5:]
            before, n = store.read(ids), store.stats().n_tensors
            with accepted(store, f"rebuilding it by {how}"):
                rebuilt = rebuild(store)
                check(rebuilt.stats().n_tensors == n, store, f"after {how} it counts other tensors")
                check(equal(rebuilt.read(ids), before), store, f"{how} changes the tensors")
                rebuilt.release(twice)
                added = rebuilt.append(tensors[18:])
                check(equal(rebuilt.read(ids), before), store, f"after {how}, a second reference is lost")
                rebuilt.release(ids)
            with accepted(store, f"using both stores after {how}"):
                once = store.read(store.append(tensors[18:]))
                check(equal(rebuilt.read(added), once), store, f"after {how} it stores other tensors")
                check(equal(store.read(ids), before), store, f"after {how} one store changes with the other")
                store.release(ids)

    def test_threads_change_nothing(self) -> None:
        """Two threads that append, read and release at the same time get the tensors that one thread gets."""
        store, alone = self.make(), self.make()
        inputs = [self.tensors(_N_TENSORS)[i::_N_THREADS] for i in range(_N_THREADS)]
        expected = [alone.read(alone.append(tensors)) for tensors in inputs]
        kept = [store.append(tensors) for tensors in inputs]  # the others append, and release, equal ones
        begin = threading.Barrier(_N_THREADS)

        def work(i: int) -> bool:
            begin.wait()
            return all(_there_and_back(store, inputs[i], i, expected[i]) for _ in range(8))

        with ThreadPoolExecutor(_N_THREADS) as pool, accepted(store, "working in two threads"):
            check(all(pool.map(work, range(_N_THREADS))), store, "threads read other tensors than one alone")
            for ids, tensors in zip(kept, expected, strict=True):
                check(equal(store.read(ids), tensors), store, "threads lose a reference of another one")
                store.release(ids)


class _Model:
    """A store, and the references that it returned, each with the tensor that was appended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids = np.empty(0, np.int64)
        self._tensors: list[Tensors] = []

    def __len__(self) -> int:
        return len(self._ids)

    def append(self, tensors: Tensors, sequences: Ints) -> None:
        with accepted(self._store, "appending tensors"):
            ids = self._store.append(tensors, sequences)
        check(ids.shape == (len(tensors),), self._store, f"{len(tensors)} tensors get {ids.shape} ids")
        self._ids = np.append(self._ids, ids)
        self._tensors.extend(tensors)

    def release(self, which: Ints) -> None:
        with accepted(self._store, "releasing references"):
            self._store.release(self._ids[which])
        gone = set(which.tolist())
        self._ids = np.delete(self._ids, which)
        self._tensors = [tensor for i, tensor in enumerate(self._tensors) if i not in gone]

    def check(self, which: Ints) -> None:
        """Read some references, and compare the tensors."""
        with accepted(self._store, "reading what was appended"):
            found = self._store.read(self._ids[which])
        for i, tensor in zip(which.tolist(), found, strict=True):
            check(equal(tensor, self._tensors[i]), self._store, f"id {self._ids[i]} is read as another tensor")


def _pickled_out_of_band(store: Store) -> Store:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(store, 5, buffer_callback=buffers.append)
    rebuilt: Store = pickle.loads(pickled, buffers=[bytes(buffer) for buffer in buffers])
    return rebuilt


def _there_and_back(store: Store, tensors: Tensors, sequence: int, expected: Tensors) -> bool:
    """Whether appended tensors are read as expected; releases them."""
    ids = store.append(tensors, sequence)
    found = store.read(ids)
    store.release(ids)
    return equal(found, expected)
