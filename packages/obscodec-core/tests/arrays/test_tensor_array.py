import copy
import pickle
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec import DTypeError, FrameStore, HeapFull, Layout, ShapeError, TensorArray
from obscodec.arrays import BorrowedArray

LEADING, ITEM = (4, 3), (2, 5)
SHAPE = LEADING + ITEM


def zeros(leading=LEADING, item=ITEM, dtype="i2", spec="zstd:1", **options) -> TensorArray:
    return TensorArray.zeros(leading, FrameStore(Layout(item, dtype), codec=spec, block_frames=1, **options))


def filled(**options) -> tuple[TensorArray, np.ndarray]:
    array = zeros(**options)
    model = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(array.dtype)
    array[...] = model
    return array, model


def assert_no_leak(array: TensorArray) -> None:
    assert array.store.stats().n_tensors == len(np.unique(array.ids[array.ids != 0]))


def one_axis(n: int, basic: bool) -> st.SearchStrategy:
    """Indices of one axis; out of range now and then."""
    position = st.integers(-n - 1 if n > 3 else -n, n - 1)
    bound = st.none() | st.integers(-n - 1, n + 1)
    slices = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1]))
    if basic:
        return st.one_of(position, position.map(np.int64), slices)
    positions = st.lists(position, max_size=5)
    masks = st.lists(st.booleans(), min_size=n, max_size=n)
    return st.one_of(positions, positions.map(lambda p: np.array(p, np.int32)), masks.map(np.array), masks, slices)


@st.composite
def indices(draw) -> object:
    if draw(st.integers(0, 9)) == 0:
        mask = draw(st.lists(st.booleans(), min_size=12, max_size=12))
        return np.array(mask).reshape(LEADING)
    n_axes = draw(st.integers(0, len(SHAPE)))
    n_advanced = draw(st.integers(0, 2))
    parts = [draw(one_axis(n, basic=axis >= n_advanced)) for axis, n in enumerate(SHAPE[:n_axes])]
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from([None, Ellipsis])))
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return tuple(parts)


@st.composite
def values(draw, shape: tuple[int, ...]) -> np.ndarray | int:
    """Something that broadcasts to ``shape``."""
    if draw(st.booleans()):
        return draw(st.integers(-100, 100))
    kept = shape[draw(st.integers(0, len(shape))) :]
    axes = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in kept)
    if len(axes) == len(shape) > 0 and draw(st.booleans()):
        axes = (1, *axes)
    seed = draw(st.integers(0, 1000))
    return np.random.default_rng(seed).integers(-100, 100, size=axes).astype(draw(st.sampled_from(["i2", "i8", ">i4"])))


class ArrayEqualsNdarray(RuleBasedStateMachine):
    @initialize(spec=st.sampled_from(["raw", "zstd:1"]))
    def make(self, spec):
        self.array = zeros(spec=spec)
        self.model = np.zeros(SHAPE, np.int16)

    @rule(index=indices())
    def read(self, index):
        try:
            expected = self.model[index]
        except IndexError:
            with pytest.raises(IndexError):
                self.array[index]
            return
        try:
            read = self.array[index]
        except IndexError as error:
            assume("is not supported" not in str(error))
            raise
        assert read.dtype == expected.dtype
        np.testing.assert_array_equal(read, expected, strict=True)

    @rule(index=indices(), data=st.data())
    def write(self, index, data):
        try:
            shape = self.model[index].shape
        except IndexError:
            with pytest.raises(IndexError):
                self.array[index] = 1
            return
        value = data.draw(values(shape))
        try:
            self.array[index] = value
        except IndexError as error:
            assume("is not supported" not in str(error))
            raise
        self.model[index] = value

    @rule(index=indices())
    def refuse_a_shape(self, index):
        value = np.ones((7, 7, 7))
        with pytest.raises((ShapeError, IndexError)):
            self.array[index] = value

    @rule(rebuild=st.sampled_from([lambda array: pickle.loads(pickle.dumps(array)), copy.deepcopy]))
    def rebuild(self, rebuild):
        self.array = rebuild(self.array)

    @invariant()
    def equal(self):
        np.testing.assert_array_equal(self.array[:], self.model, strict=True)
        assert_no_leak(self.array)


TestArrayEqualsNdarray = pytest.mark.slow(ArrayEqualsNdarray.TestCase)
TestArrayEqualsNdarray.settings = settings(max_examples=75, stateful_step_count=20, deadline=None)


def test_it_has_the_attributes_of_the_ndarray():
    array, model = filled()
    for name in ("shape", "dtype", "ndim", "nbytes"):
        assert getattr(array, name) == getattr(model, name)
    assert len(array) == len(model)
    np.testing.assert_array_equal(np.stack(list(array)), model)


VIEWS = [
    lambda a: a.swapaxes(0, 1),
    lambda a: a.swapaxes(-4, 1),
    lambda a: a.transpose(1, 0, 2, 3),
    lambda a: a.reshape(12, *ITEM),
    lambda a: a.reshape((2, 2, 3, *ITEM)),
    lambda a: a.reshape(-1, *ITEM),
    lambda a: a.reshape(2, -1, 3, *ITEM).swapaxes(0, 2),
]


@pytest.mark.parametrize("view", VIEWS)
def test_views_write_through(view):
    array, model = filled()
    np.testing.assert_array_equal(view(array)[:], view(model), strict=True)
    view(array)[1] = 7
    view(model)[1] = 7
    view(array)[0, ..., 3] = -1
    view(model)[0, ..., 3] = -1
    np.testing.assert_array_equal(array[:], model)
    assert_no_leak(array)


def test_a_reshape_that_is_no_view_can_only_be_read():
    """As in Stable-Baselines3's ``swap_and_flatten``; writing to it would drop tensors that the original still has."""
    array, model = filled()
    flat = array.swapaxes(0, 1).reshape(12, *ITEM)
    np.testing.assert_array_equal(flat[:], model.swapaxes(0, 1).reshape(12, *ITEM))
    text = r"^this array can only be read: reshape could not make a view, assign to the original$"
    for copied in (flat, flat.reshape(4, 3, *ITEM)):
        with pytest.raises(ValueError, match=text):
            copied[0] = 1
    np.testing.assert_array_equal(array[:], model)
    assert_no_leak(array)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a: a.swapaxes(0, 2), "axis 2 is not one of the 2 axes before the items of shape (4, 3, 2, 5)"),
        (lambda a: a.swapaxes(-1, 0), "axis -1 is not one of the 2 axes before the items of shape (4, 3, 2, 5)"),
        (lambda a: a.transpose(0, 1, 3, 2), "the axes of the items, (2, 3), must stay last, got (0, 1, 3, 2)"),
        (lambda a: a.transpose(), "the axes of the items, (2, 3), must stay last, got ()"),
        (lambda a: a.reshape(-1), "the last axes must stay those of an item, (2, 5), got (-1,)"),
        (lambda a: a.reshape(5, *ITEM), "12 items of shape (2, 5) don't fit shape (5, 2, 5)"),
        (lambda a: a.reshape(12, 10), "the last axes must stay those of an item, (2, 5), got (12, 10)"),
    ],
)
def test_the_axes_of_items_stay_as_they_are(call, text):
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        call(zeros())


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.swapaxes(0, 1), lambda x: x.reshape(12, *ITEM)])
def test_numpy_decodes_all_of_a_small_array(view):
    array, model = (view(x) for x in filled())
    np.testing.assert_array_equal(np.asarray(array), model, strict=True)
    np.testing.assert_array_equal(np.array(array, np.float64), model.astype(np.float64), strict=True)
    np.testing.assert_array_equal(array == model, np.ones(model.shape, bool))
    assert np.allclose(array, model)
    assert np.sum(array) == model.sum()
    with pytest.raises(ValueError, match=r"^a TensorArray can't be read without a copy: it is decoded$"):
        np.array(array, copy=False)


def test_a_large_array_is_not_decoded_as_a_whole_by_accident():
    store = FrameStore(Layout((1 << 20,), "u1"))
    largest, too_large = TensorArray.zeros((64,), store), TensorArray.zeros((65,), store)
    assert np.asarray(largest).nbytes == 1 << 26
    text = (
        "decoding this whole TensorArray takes 68,157,440 bytes, and numpy.asarray stops at 67,108,864: index it, as "
        "in array[:100], or array[:] for all"
    )
    for convert in (np.asarray, np.array, np.ascontiguousarray, np.sum):
        with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
            convert(too_large)


def test_indices_across_the_border_are_refused():
    text = (
        "an index that combines arrays or integers of the axes before the items with those of the items is not "
        "supported: read the items first, as in array[...][...]"
    )
    array, model = filled()
    for index in (([0, 1], 0, 0), (0, 0, [0, 1]), (slice(None), [0, 1], 1), np.ones(SHAPE, bool)):
        with pytest.raises(IndexError, match=f"^{re.escape(text)}$"):
            array[index]
        with pytest.raises(IndexError, match=f"^{re.escape(text)}$"):
            array[index] = 1
    np.testing.assert_array_equal(array[:], model)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("u1", np.array(256)),
        ("u1", np.array(0.5)),
        ("u1", np.array(1 + 1j)),
        ("u1", np.array("a")),
        ("u1", np.array(None)),
        ("?", np.array(2)),
        ("f4", np.array(2**24 + 1)),
        ("f8", np.array(2**53 + 1)),
        ("f4", np.array(1j)),
        ("M8[s]", np.array(1500, "M8[ms]")),
        ("i8", np.array(0, "M8[s]")),
    ],
)
def test_a_value_that_would_change_is_refused(dtype, value):
    array = zeros(dtype=dtype)
    array[1] = np.zeros(ITEM, dtype)
    before = array[:].tobytes(), array.store.stats()
    is_named = value.dtype.kind in "iuf" and dtype != "f8"  # 2**53 + 1 equals its float
    found = f"values of dtype {value.dtype}{f', such as {value},' if is_named else ''}"
    text = f"{found} would be changed by dtype {array.dtype}: cast them yourself, or use a dtype that can hold them"
    with pytest.raises(DTypeError, match=f"^{re.escape(text)}$"):
        array[0, 0] = value
    assert (array[:].tobytes(), array.store.stats()) == before


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("u1", np.array(255.0)),
        ("f4", np.array(0.1)),
        ("f2", np.array(0.1, np.float32)),
        ("c8", np.array(0.1 + 0.1j)),
        ("f4", np.array(2**24)),
        ("f4", np.array(True)),
        ("f8", np.array(np.nan, np.float32)),
        ("M8[ms]", np.array(1, "M8[s]")),
        ("M8[ms]", np.array("NaT", "M8[s]")),
        ("i2", np.array(-3, ">i8")),
    ],
)
def test_a_value_that_fits_is_stored_as_numpy_does(dtype, value):
    array, model = zeros(dtype=dtype), np.zeros(SHAPE, dtype)
    array[1:3] = value
    model[1:3] = value
    assert array[:].tobytes() == model.tobytes()


class Far(FrameStore):
    """A store whose ids do not fit into 32 bits."""

    def take_in(self, tensors, which, streams, ids):
        super().take_in(tensors, which, streams, ids)
        ids += 1 << 31

    def _give_back(self, ids):
        super()._give_back(np.where(ids == 0, 0, ids - (1 << 31)))
        ids[:] = 0


def test_an_id_that_does_not_fit_is_not_cut_off():
    store = Far(Layout((4,), np.uint8), codec="raw", block_frames=1)
    narrow, wide = TensorArray.zeros((3,), store), TensorArray(np.zeros(3, np.int64), store)
    text = f"the store has given out an id over {2**31 - 1}: use an array of ids of a wider dtype"
    with pytest.raises(HeapFull, match=f"^{text}$"):
        narrow[1] = np.ones(4, np.uint8)
    assert (narrow.ids == 0).all()
    assert store.stats().n_tensors == 0
    wide[1] = np.ones(4, np.uint8)
    assert wide.ids.tolist() == [0, 2**31 + 1, 0]


@given(st.lists(st.integers(-4, 3), min_size=1, max_size=20))
@settings(deadline=None)
def test_of_two_values_for_one_item_the_last_stays(where):
    array, model = filled()
    value = np.arange(len(where), dtype=np.int16)[:, None, None, None]
    array[where] = value
    model[where] = value
    np.testing.assert_array_equal(array[:], model)
    assert_no_leak(array)


def test_items_of_no_axes():
    array = zeros(leading=(5,), item=(), dtype="f4")
    array[[1, 3]] = [1.5, 2.5]
    np.testing.assert_array_equal(array[:], np.array([0, 1.5, 0, 2.5, 0], np.float32), strict=True)
    assert array[3].shape == ()


def test_a_new_array_of_a_million_items_takes_no_memory():
    array = zeros(leading=(1_000_000,), item=(84, 84), dtype="u1")
    assert array.nbytes == 7_056_000_000
    assert array.store.stats().total_bytes < 100


@pytest.mark.parametrize("index", [3, slice(2, 5), [1, 4, 1], np.array([True] * 3 + [False] * 4), ..., (2, 1)])
def test_ids_that_are_assigned_take_the_place_of_others(index: object) -> None:
    store = FrameStore(Layout((6, 6), np.uint8))
    array, expected = TensorArray.zeros((7, 2), store), np.zeros((7, 2, 6, 6), np.uint8)
    for seed in range(3):
        new = np.random.default_rng(seed).integers(0, 256, expected[index].shape, np.uint8)  # type: ignore[index]
        ids = store.append(new.reshape(-1, 6, 6)).reshape(new.shape[:-2])
        array.assign_ids(index, ids)  # type: ignore[arg-type]
        expected[index] = new  # type: ignore[index]
    assert np.array_equal(array[...], expected)
    assert store.stats().n_tensors == np.count_nonzero(array.ids)
    array.clear()
    assert not array[...].any()
    assert store.stats().n_tensors == 0


def test_a_single_item_is_assigned_without_an_index() -> None:
    array = TensorArray.zeros((3,), FrameStore(Layout((6, 6), np.uint8)))
    one = BorrowedArray(array.ids[1:2].reshape(()), array.store, array)
    one[...] = 5
    assert array[...].sum() == 5 * 36
