"""A view that is described by strides is the view that numpy has of the same geometry."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from obscodec import FrameStore, Layout, TensorArray
from obscodec.arrays import DrawnArray, PartArray, strided_view, strides_of

SHAPE = (5, 3, 4, 1, 6)
WHOLE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "slice": lambda x: x[1:4],
    "step": lambda x: x[::2, 1:],
    "integer": lambda x: x[2, 1],
    "transposed": lambda x: x.swapaxes(0, 1)[2],
    "flat": lambda x: x.reshape(15, 4, 1, 6),
    "one more axis": lambda x: x[:, None],
    "expanded": lambda x: np.broadcast_to(x[3], (7, 3, 4, 1, 6)),
    "nothing": lambda x: x[:0],
}
NOT_WHOLE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "part": lambda x: x[..., :3],
    "one number": lambda x: x[0, 0, 0, 0, 0, None].reshape(()),
    "transposed": lambda x: x.transpose(0, 1, 4, 3, 2),
    "other border": lambda x: x.reshape(5, 12, 1, 6),
    "steps into items": lambda x: as_strided(x, (3, 4, 1, 6), (12, 6, 6, 1)),
    "begins in an item": lambda x: as_strided(x.reshape(-1)[1:], (2, 4, 1, 6), (24, 6, 6, 1)),
}


def arrays() -> tuple[np.ndarray, TensorArray]:
    plain = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
    array = TensorArray.zeros(SHAPE[:2], FrameStore(Layout(SHAPE[2:], np.uint8)))
    array[...] = plain
    return plain, array


def view_of(array: TensorArray | PartArray, plain: np.ndarray, view: np.ndarray) -> TensorArray | PartArray | None:
    return strided_view(array, view.shape, view.strides, view.ctypes.data - plain.ctypes.data)  # an element is a byte


def test_strides_are_those_of_the_ndarray() -> None:
    plain, array = arrays()
    assert strides_of(array) == plain.strides
    assert strides_of(array.swapaxes(0, 1)) == plain.swapaxes(0, 1).strides


@pytest.mark.parametrize("kind", WHOLE)
def test_a_view_of_whole_items_is_the_same(kind: str) -> None:
    plain, array = arrays()
    view = view_of(array, plain, WHOLE[kind](plain))
    assert view is not None
    assert np.array_equal(view[...], WHOLE[kind](plain))


@pytest.mark.parametrize("kind", NOT_WHOLE)
def test_a_view_in_which_items_are_not_whole_is_none(kind: str) -> None:
    plain, array = arrays()
    assert view_of(array, plain, NOT_WHOLE[kind](plain)) is None


def test_a_view_writes_through() -> None:
    plain, array = arrays()
    for x, view in ((plain, plain[1:, 2]), (array, view_of(array, plain, plain[1:, 2]))):
        assert view is not None
        view[2] = np.ones((4, 1, 6), np.uint8)
        assert (x[3, 2] == 1).all()
    assert np.array_equal(array[...], plain)


@pytest.mark.parametrize("kind", WHOLE | NOT_WHOLE)
def test_any_view_of_parts_is_the_same_and_can_only_be_read(kind: str) -> None:
    plain, _ = arrays()
    wanted = (WHOLE | NOT_WHOLE)[kind](plain)
    parts = PartArray(plain)
    assert strides_of(parts) == plain.strides
    view = view_of(parts, plain, wanted)
    assert isinstance(view, PartArray)
    assert np.array_equal(view[...], wanted)
    with pytest.raises(TypeError, match="can only be read"):
        view[...] = 0


FRAME = (20, 20)


def frames(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *FRAME), np.uint8)


@pytest.fixture
def store() -> FrameStore:
    return FrameStore(Layout(FRAME, np.uint8), codec="raw", block_frames=1)


def test_what_was_drawn_stays_as_long_as_a_view_of_it(store: FrameStore) -> None:
    array = TensorArray.zeros((6,), store)
    array[...] = frames(6)
    view = DrawnArray(array, [5, 1, 1, 0]).reshape(2, 2, *FRAME).swapaxes(0, 1)
    array[...] = frames(6, seed=1)
    assert isinstance(view, DrawnArray)
    assert np.array_equal(view[...], frames(6)[[[5, 1], [1, 0]]])
    assert store.stats().n_tensors == 12
    del view
    assert store.stats().n_tensors == 6


def test_an_index_out_of_range_draws_nothing(store: FrameStore) -> None:
    array = TensorArray.zeros((6,), store)
    array[...] = frames(6)
    with pytest.raises(IndexError):
        DrawnArray(array, [6])
    array.clear()
    assert store.stats().n_tensors == 0


def test_what_was_drawn_is_not_written(store: FrameStore) -> None:
    array = TensorArray.zeros((6,), store)
    array[...] = frames(6)
    drawn = DrawnArray(array, [5, 1])
    for write in (lambda: drawn.__setitem__(0, 1), drawn.clear):
        with pytest.raises(TypeError, match="can't be assigned to"):
            write()
    assert np.array_equal(array[...], frames(6))
