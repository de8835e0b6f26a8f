"""NarrowStore: wide tensors, stored as narrow codes where possible."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_option, check_kind
from obscodec.errors import DTypeError, ShapeError
from obscodec.fixed import Fixed
from obscodec.layout import same_values
from obscodec.segments import Ints
from obscodec.state import State, part_of
from obscodec.stats import StoreStats
from obscodec.stores.frame_store import FrameStore
from obscodec.stores.ids import are_narrow, narrow_ids, wide_ids
from obscodec.stores.narrow.narrow import Narrow
from obscodec.stores.parting import Parting, among, refuse
from obscodec.stores.store import MAKE_ANOTHER, Store
from obscodec.stores.stored_part import StoredPart


class NarrowStore(Store):
    """Wide tensors: a tensor that fits a :class:`Narrow` is stored as codes, another one as it is.

    Each tensor comes back bit for bit: when it is appended, the store checks that its codes stand for the same bits.
    Safe to use from several threads. Decodes on the CPU, wherever the inner stores do.

    Args:
        narrow: which numbers have codes.
        codes: the store of codes, used by this store alone.
        wide: the store of the tensors that do not fit, used by this store alone.
        threads: how many threads share the work on a large batch, None for half of the usable processors.

    Raises:
        ShapeError: the tensors of the two stores have different shapes.
        DTypeError: a store has another dtype than ``narrow``.
    """

    narrow: Fixed[Narrow] = Fixed(MAKE_ANOTHER)
    codes: Fixed[FrameStore] = Fixed(MAKE_ANOTHER)
    wide: Fixed[FrameStore] = Fixed(MAKE_ANOTHER)

    def __init__(self, narrow: Narrow, codes: FrameStore, wide: FrameStore, *, threads: int | None = None) -> None:
        check_kind("narrow", narrow, Narrow, "a Narrow")
        check_kind("codes", codes, FrameStore, "a FrameStore")
        check_kind("wide", wide, FrameStore, "a FrameStore")
        if codes.layout.shape != wide.layout.shape:
            raise ShapeError(f"codes of shape {codes.layout.shape} can't stand for tensors of {wide.layout.shape}")
        if (codes.layout.dtype, wide.layout.dtype) != (narrow.code_dtype, narrow.dtype):
            raise DTypeError(
                f"the stores are for {narrow.code_dtype.name} and {narrow.dtype.name}, "
                f"got {codes.layout.dtype.name} and {wide.layout.dtype.name}"
            )
        self.narrow = narrow
        self.codes = codes
        self.wide = wide
        self.layout = wide.layout
        self.device = codes.device
        self.threads = as_option("threads", threads)
        self._parting = Parting()
        self._code_0_is_zero = not narrow.tables.numbers[:1].view(np.uint8).any()

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        tensors = self.layout.tensors(self.layout.rows(self._to_host(tensors)))  # contiguous
        codes, fits = self.narrow.apply(tensors, threads=self.threads)
        number = np.where(fits, np.cumsum(fits), np.cumsum(~fits)) - 1  # of each tensor in its store
        narrow = fits[which]
        of_codes, of_wide = np.zeros(int(narrow.sum()), np.int64), np.zeros(int((~narrow).sum()), np.int64)
        stored = np.zeros(len(ids), np.int64)
        try:
            if len(of_wide):
                self.wide.take_in(tensors[~fits], number[which[~narrow]], sequences[~fits], of_wide)
            if len(of_codes):
                some = slice(None) if fits.all() else fits  # a slice: no copy
                self.codes.take_in(codes[some], number[which[narrow]], sequences[some], of_codes)
            stored[narrow] = narrow_ids(of_codes, code_0_is_zero=self._code_0_is_zero)
            stored[~narrow] = wide_ids(of_wide)
            ids[:] = stored
        finally:
            if not same_values(ids, stored) or not stored.any():  # interrupted before the ids were given out
                self.codes._give_back(of_codes)
                self.wide._give_back(of_wide)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        if not isinstance(out, np.ndarray):
            self._read_via_host(ids, out)
            return
        narrow, inner = are_narrow(ids, code_0_is_zero=self._code_0_is_zero), ids >> 1
        if narrow.all():
            with among(_CODES):
                codes = self.codes.read(inner)
            self.narrow.undo(codes, out, threads=self.threads)
        elif not narrow.any():
            with among(_WIDE):
                self.wide.read_into(inner, out)
        else:
            with among(_CODES):
                codes = self.codes.read(inner[narrow])
            with among(_WIDE):
                out[~narrow] = self.wide.read(inner[~narrow])
            self.narrow.undo(codes, out, np.flatnonzero(narrow), threads=self.threads)

    def parts(self, ids: Ints) -> list[StoredPart]:
        """See ``Store.parts``."""
        narrow, inner, found = are_narrow(ids, code_0_is_zero=self._code_0_is_zero), ids >> 1, list[StoredPart]()
        for store, mine, of in ((self.codes, narrow, self.narrow), (self.wide, ~narrow, None)):
            if (places := np.flatnonzero(mine)).size:
                (part,) = store.parts(inner[places])
                found.append(part._replace(places=places, narrow=of))
        return found

    def refuse(self, ids: Ints) -> None:
        """See ``FrameStore.refuse``."""
        refuse(*self._parted(ids))

    def _give_back(self, ids: Ints) -> None:
        self._parting.give_back(ids, *self._parted(ids))

    def _parted(self, ids: Ints) -> tuple[list[tuple[FrameStore, str]], Ints, Ints]:
        """Both stores, and for each id which of them has it, and its id there."""
        are_wide = ~are_narrow(ids, code_0_is_zero=self._code_0_is_zero)
        return [(self.codes, _CODES), (self.wide, _WIDE)], are_wide.astype(np.int64), ids >> 1

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        stores = {"codes": self.codes, "wide": self.wide}
        described = {name: {"kind": type(of).__name__, "arguments": of.arguments()} for name, of in stores.items()}
        return {"narrow": self.narrow, **described, "threads": self.threads}

    def _state(self) -> State:
        with self._parting.lock:
            self._parting.settle()
            return {"codes": self.codes.state(), "wide": self.wide.state()}

    def _restore(self, state: State) -> None:
        self.codes.restore(part_of(state, "codes", dict))
        self.wide.restore(part_of(state, "wide", dict))

    def _stats(self) -> StoreStats:
        """See ``Store.stats``; lookup tables count as tables."""
        stats = self.codes.stats().with_others([self.wide.stats()], self.layout.nbytes)
        return replace(stats, table_bytes=stats.table_bytes + self.narrow.nbytes)

    @property
    def _parts(self) -> tuple[Store, ...]:
        return self.codes, self.wide

    def __repr__(self) -> str:
        return f"NarrowStore({self.narrow}, {self.codes!r}, {self.wide!r})"


_CODES = "ids of narrow tensors are twice those among the codes"
_WIDE = "ids of wide tensors are twice those among the wide ones, plus 1"
