"""The contract finds broken stores: each one here breaks one law, and fails exactly that law."""

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest
from broken_laws import broken_laws, laws
from obscodec import FrameStore, Layout, SlotError
from obscodec.stats import StoreStats
from obscodec.stores import Store
from obscodec.testing import StoreContract

SMALL = Layout((6, 5), "uint8")


class Sound(FrameStore):
    def __init__(self) -> None:
        super().__init__(SMALL, codec="raw", block_frames=4)

    def arguments(self) -> dict[str, Any]:
        return {}


class ReadsInTheOrderOfIds(Sound):
    """If many are read at once."""

    def read(self, ids: Any, out: Any = None) -> Any:
        return super().read(np.sort(ids) if np.size(ids) > 30 else ids, out)


class LosesAReference(Sound):
    """A frame that comes twice in a call is counted once."""

    def append(self, tensors: Any, streams: Any = 0) -> Any:
        ids = super().append(tensors, streams)
        ordered = np.sort(ids)
        self.release(ordered[1:][ordered[1:] == ordered[:-1]])
        return ids


class ReleasesTheZeroTensor(Sound):
    """If it is released several times at once."""

    def release(self, ids: Any) -> None:
        self.released = np.array_equal(ids, [0, 0, 0]) or vars(self).get("released", False)
        super().release(ids)

    def read(self, ids: Any, out: Any = None) -> Any:
        if vars(self).get("released") and np.any(np.asarray(ids) == 0):
            raise SlotError("id 0 holds nothing")
        return super().read(ids, out)


class ReleasesWhatItKnows(Sound):
    """Leaves ids alone that are of no tensor."""

    def release(self, ids: Any) -> None:
        for id_ in np.asarray(ids).tolist():
            with suppress(SlotError):
                super().release([id_])


class InventsTensors(Sound):
    """Reads zeros where there is nothing."""

    def read(self, ids: Any, out: Any = None) -> Any:
        given = np.asarray(ids)
        held = (given > 0) & (given < 1000)
        return super().read(np.where(held, given, 0).astype(np.int64), out)


class CountsWhatIsGone(Sound):
    def stats(self) -> StoreStats:
        stats, most = super().stats(), vars(self).get("most", 0)
        self.most = max(most, stats.n_tensors)
        return replace(stats, n_tensors=self.most)


class CastsInSilence(Sound):
    def append(self, tensors: Any, streams: Any = 0) -> Any:
        return super().append(tensors.astype(np.uint8), streams)


class StoresWhatItRefuses(Sound):
    def append(self, tensors: Any, streams: Any = 0) -> Any:
        if tensors.dtype != np.uint8:
            super().append(np.ones((1, *SMALL.shape), np.uint8))
        return super().append(tensors, streams)


class ReadsIntoAnArrayOfItsOwn(Sound):
    def read(self, ids: Any, out: Any = None) -> Any:
        return super().read(ids) if out is not None and not out.flags.c_contiguous else super().read(ids, out)


class ForgetsWhatIsPickled(Sound):
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), ()


class IsItsOwnCopy(Sound):
    def __deepcopy__(self, memo: Any) -> Self:
        return self


class SharesItsScratch(Sound):
    """All threads write through the same memory."""

    def append(self, tensors: Any, streams: Any = 0) -> Any:
        self.scratch = tensors
        if getattr(tensors, "shape", ()) == (12, *SMALL.shape):
            time.sleep(1e-3)
        return super().append(self.scratch, streams)


BROKEN = {
    ReadsInTheOrderOfIds: "test_a_store_equals_a_dict_of_arrays",
    LosesAReference: "test_a_store_equals_a_dict_of_arrays",
    ReleasesTheZeroTensor: "test_id_0_is_the_zero_tensor",
    ReleasesWhatItKnows: "test_a_reference_is_released_once",
    InventsTensors: "test_unknown_ids_are_refused",
    CountsWhatIsGone: "test_released_tensors_are_counted_down",
    CastsInSilence: "test_a_refused_append_stores_nothing",
    StoresWhatItRefuses: "test_a_refused_append_stores_nothing",
    ReadsIntoAnArrayOfItsOwn: "test_read_fills_what_it_is_given",
    ForgetsWhatIsPickled: "test_a_rebuilt_store_holds_the_same",
    IsItsOwnCopy: "test_a_rebuilt_store_holds_the_same",
    SharesItsScratch: "test_threads_change_nothing",
}


def contract_of(kind: type[Store]) -> StoreContract:
    class Contract(StoreContract):
        def make(self) -> Store:
            return kind()

    return Contract()


@pytest.mark.parametrize("kind", [Sound, *BROKEN], ids=lambda kind: kind.__name__)
def test_a_store_fails_the_law_that_it_breaks(kind: type[Store]) -> None:
    assert broken_laws(StoreContract, contract_of(kind)) == ([BROKEN[kind]] if kind in BROKEN else [])


def test_each_law_is_broken_by_some_store() -> None:
    assert set(BROKEN.values()) == set(laws(StoreContract))


def test_a_broken_law_is_explained() -> None:
    with pytest.raises(AssertionError) as caught:
        contract_of(CountsWhatIsGone).test_released_tensors_are_counted_down()
    assert str(caught.value).startswith("FrameStore('raw', uint8[6, 5], block_frames=4, ")
    assert str(caught.value).endswith("): it holds 5 tensors, stats() counts 9")
    with pytest.raises(AssertionError) as caught:
        contract_of(InventsTensors).test_unknown_ids_are_refused()
    assert str(caught.value).endswith(": reading the ids [1000000] is accepted, it should raise SlotError")


def test_a_contract_that_makes_no_store_says_so() -> None:
    with pytest.raises(NotImplementedError) as caught:
        StoreContract().test_id_0_is_the_zero_tensor()
    assert str(caught.value) == "StoreContract has to say how a store is made: override make()"
