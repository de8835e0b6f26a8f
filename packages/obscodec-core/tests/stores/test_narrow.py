import copy
import pickle
import re

import ml_dtypes
import numpy as np
import pytest
from atari_frames import frames
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec import CorruptStream, DTypeError, FrameStack, FrameStore, Layout, ShapeError, SpecError
from obscodec.stores import store_of
from obscodec.stores.narrow.find_narrow import find_narrow
from obscodec.stores.narrow.narrow import Narrow
from obscodec.stores.narrow.narrow_store import NarrowStore

F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)
PIXELS = Narrow(F4, 8, (("/", 255),), F4)
CENTERED = Narrow(F4, 8, (("/", 127.5), ("-", 1)), F4)  # code 0 is -1, no code is 0
STACK = Layout((4, 84, 84), F4)


def stacks(game: str = "MsPacman", n: int = 40) -> np.ndarray:
    """``u8[n, 4, 84, 84]``, consecutive frame stacks."""
    windows = np.lib.stride_tricks.sliding_window_view(frames(game, n + 3, seed=0), 4, axis=0)
    return np.ascontiguousarray(windows.transpose(0, 3, 1, 2))


def deep(n: int = 40) -> np.ndarray:
    """``u16[n, 4, 84, 84]`` with more than 256 numbers, the lowest one 0."""
    tensors = stacks(n=n).astype(np.uint16) * 150 + stacks("Pong", n)
    return tensors - tensors.min()


f4, f2 = np.float32, np.float16
SCALINGS = {
    "integers": lambda x: x.astype(f4),
    "zero and one": lambda x: (x > 100).astype(f4),
    "k/255 in float32": lambda x: x.astype(f4) / 255,
    "k/255 by the reciprocal": lambda x: x.astype(f4) * f4(1 / 255),
    "k/255 in float64, cast": lambda x: (x / 255).astype(f4),
    "k/255 in float64": lambda x: x / 255,
    "k/255 in float32, cast to float64": lambda x: (x.astype(f4) / 255).astype(F8),
    "k/255 in float16": lambda x: x.astype(f2) / f2(255),
    "k/255 in float32, cast to float16": lambda x: (x.astype(f4) / 255).astype(f2),
    "k/255 in bfloat16": lambda x: x.astype(BF16) / BF16.type(255),
    "k/255 in float32, cast to bfloat16": lambda x: (x.astype(f4) / 255).astype(BF16),
    "k/256": lambda x: x.astype(f4) / 256,
    "k/127.5-1": lambda x: x.astype(f4) / f4(127.5) - 1,
    "k/127.5-1 in float64, cast": lambda x: (x / 127.5 - 1).astype(f4),
    "k/127.5-1 in float16": lambda x: x.astype(f2) / f2(127.5) - f2(1),
    "k/255-0.5": lambda x: x.astype(f4) / 255 - f4(0.5),
    "(k/255-0.5)/0.5": lambda x: (x.astype(f4) / 255 - f4(0.5)) / f4(0.5),
    "(k-128)/128": lambda x: (x.astype(f4) - 128) / 128,
    "int64": lambda x: x.astype(np.int64),
    "uint16": lambda x: x.astype(np.uint16),
    "int32 around 0": lambda x: x.astype(np.int32) - 128,
}
DEEP_SCALINGS = {
    "integers": lambda x: x.astype(f4),
    "k/65535": lambda x: x.astype(f4) / 65535,
    "k/65535 in float64": lambda x: x / 65535,
    "millimetres": lambda x: x.astype(f4) / 1000,
    "millimetres by the reciprocal": lambda x: x.astype(f4) * f4(0.001),
    "int64": lambda x: x.astype(np.int64),
    "int32 around 0": lambda x: x.astype(np.int32) - 32768,
}
CASES = [(8, name, scale) for name, scale in SCALINGS.items()] + [(16, name, s) for name, s in DEEP_SCALINGS.items()]


def assert_same_bits(x: np.ndarray, y: np.ndarray) -> None:
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize(("bits", "name", "scale"), CASES, ids=[f"{bits} bits, {name}" for bits, name, _ in CASES])
def test_scaled_frames_are_narrowed_and_come_back_bit_for_bit(bits, name, scale):
    tensors = scale(stacks() if bits == 8 else deep())
    narrow = find_narrow(tensors)
    assert narrow is not None
    assert (narrow.bits, narrow.dtype) == (bits, tensors.dtype)
    codes, fits = narrow.apply(tensors)
    assert fits.all()
    out = np.empty_like(tensors)
    narrow.undo(codes, out)
    assert_same_bits(out, tensors)
    assert find_narrow(tensors) == narrow


def test_what_is_found_on_the_first_frames_holds_for_the_others():
    for name, scale in SCALINGS.items():
        narrow = find_narrow(scale(stacks(n=200)[:40]))
        _, fits = narrow.apply(scale(stacks(n=200)))
        assert fits.all(), name


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros((3, 4), f4),
        np.ones((3, 4), f4),
        np.zeros((0, 4), f4),
        np.zeros((3, 0), f4),
        np.array([0, 1, np.nan], f4),
        np.array([0, 1, np.inf], f4),
        np.array([0, 1, -0.0], f4),
        np.append(np.arange(30, dtype=f4) / 8, f4(-0.0)),
        np.array([0, 1, 1e-45], f4),
        np.random.default_rng(0).random(100),
        np.random.default_rng(0).random(100_000).astype(f4),
        np.arange(257, dtype=np.uint16),
        np.arange(65_537, dtype=f4),
        np.array([-1, 65_535], np.int64),
        np.array([-1, 2**63 - 1], np.int64),
        (np.arange(256, dtype=f4) / 255 - f4(0.485)) / f4(0.229),
        np.arange(256, dtype=np.uint8),
        np.arange(9, dtype=np.int8),
        np.array([True, False]),
        np.array([1j, 0]),
        np.array([0, 1], "M8[s]"),
        np.array([0, 1], ml_dtypes.float8_e4m3fn),
        np.array([0, 1], np.longdouble) if np.dtype(np.longdouble).itemsize > 8 else np.zeros(1),
    ],
    ids=str,
)
def test_what_is_scaled_in_no_known_way_or_tells_nothing_is_left_alone(samples):
    assert find_narrow(samples) is None


def test_8_bits_are_preferred():
    assert find_narrow(np.array([0, 255], f4)).bits == 8
    assert find_narrow(np.array([0, 256, 1], f4)).bits == 16


NARROWS = [
    PIXELS,
    CENTERED,
    Narrow(F8, 16, (("/", 65535),)),
    Narrow(np.dtype(f2), 8, (("/", 255),), F4),
    Narrow(BF16, 8, (("/", 255),), F4),
    Narrow(np.dtype(np.int64), 8),
    Narrow(np.dtype(np.uint32), 16),
    Narrow(np.dtype(np.int16), 8, (("-", 128),)),
    Narrow(F4, 8, (("/", -255),), F4),  # falling
]
NARROW_IDS = [f"{narrow.dtype.name} {narrow.bits} {narrow}" for narrow in NARROWS]


@pytest.mark.parametrize("narrow", NARROWS, ids=NARROW_IDS)
def test_a_row_fits_if_and_only_if_its_bits_come_back(narrow):
    unsigned = np.dtype(f"u{narrow.dtype.itemsize}")
    known = set(narrow.tables.numbers.view(unsigned).tolist())
    all_bits = st.integers(0, 2 ** (8 * unsigned.itemsize) - 1)
    near = st.builds(
        lambda k, off: (k + off) % 2 ** (8 * unsigned.itemsize), st.sampled_from(sorted(known)), st.integers(-1, 1)
    )
    elements = st.one_of(st.sampled_from(sorted(known)), near, all_bits)

    @given(hnp.arrays(unsigned, hnp.array_shapes(max_dims=3, max_side=5), elements=elements), st.integers(1, 3))
    @settings(deadline=None, max_examples=60)
    def check(patterns, threads):
        tensors = patterns.view(narrow.dtype)
        codes, fits = narrow.apply(tensors, threads=threads)
        assert (codes.shape, codes.dtype) == (tensors.shape, narrow.code_dtype)
        assert fits.tolist() == [known.issuperset(row.reshape(-1).tolist()) for row in patterns]
        out = np.empty_like(tensors)
        narrow.undo(codes, out, threads=threads)
        assert out[fits].tobytes() == tensors[fits].tobytes()

    check()


ODD = {
    "NaN": np.nan,
    "another NaN": np.array(0x7FC00001, np.uint32).view(f4),
    "-0.0": -0.0,
    "inf": np.inf,
    "-inf": -np.inf,
    "denormal": 1e-45,
    "one ulp up": np.nextafter(f4(100) / f4(255), f4(1)),
    "one ulp down": np.nextafter(f4(100) / f4(255), f4(0)),
    "one step above": f4(256) / f4(255),
    "one step below": f4(-1) / f4(255),
    "large": 3e38,
}


def narrow_single_store(narrow: Narrow, shape: tuple[int, ...], **options) -> NarrowStore:
    options = {"codec": "zstd:1", "block_frames": 1, **options}
    return NarrowStore(narrow, *(FrameStore(Layout(shape, of), **options) for of in (narrow.code_dtype, narrow.dtype)))


def narrow_frame_store(narrow: Narrow, shape: tuple[int, ...]) -> NarrowStore:
    return narrow_single_store(narrow, shape, codec="delta-rle", block_frames=4)


def narrow_stack_store(narrow: Narrow, shape: tuple[int, ...], depth: int = 2, axis: int = 0) -> NarrowStore:
    return narrow_single_store(narrow, shape, codec="delta-rle", block_frames=16, frame_stack=FrameStack(depth, axis))


STORES = [narrow_single_store, narrow_frame_store, narrow_stack_store]


@pytest.mark.parametrize("value", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("make", STORES)
def test_a_tensor_with_an_odd_value_is_stored_wide_and_comes_back_bit_for_bit(make, value):
    tensors = stacks(n=9).astype(f4) / 255
    tensors[4, 2, 50, 50] = value
    store = make(PIXELS, STACK.shape)
    ids = store.append(tensors)
    assert np.flatnonzero(ids & 1).tolist() == [4]
    assert (store.codes.stats().n_tensors > 0, store.wide.stats().n_tensors) == (True, 1)
    assert_same_bits(store.read(ids[::-1]), tensors[::-1])


@pytest.mark.parametrize("scale", [lambda x: x.astype(f4) / 255, lambda x: x.astype(f4) / f4(127.5) - 1])
@pytest.mark.parametrize("make", STORES)
def test_zeros_whole_and_partly_and_code_0_are_told_apart(make, scale):
    of_code_0 = scale(np.zeros((1, 4, 6), np.uint8))
    tensors = np.concatenate([of_code_0, np.zeros((1, 4, 6), f4), -np.zeros((1, 4, 6), f4), of_code_0])
    store = make(find_narrow(scale(stacks(n=1))), (4, 6))
    ids = store.append(tensors)
    assert_same_bits(store.read(ids), tensors)
    assert_same_bits(store.read([0, ids[0], 0]), np.stack([np.zeros((4, 6), f4), tensors[0], np.zeros((4, 6), f4)]))
    store.release([*ids, 0])
    assert not store.read([0]).any()


class NarrowStoreEqualsDict(RuleBasedStateMachine):
    """Small frames of few values, so that repetitions, zeros and stacks that are no run are frequent."""

    @initialize(make=st.sampled_from(STORES), narrow=st.sampled_from([PIXELS, CENTERED]), last=st.booleans())
    def make(self, make, narrow, last):
        axis = {"axis": -1} if last and make is narrow_stack_store else {}
        self.store = make(narrow, (3, 2), **axis) if axis else make(narrow, (2, 3))
        self.numbers = np.concatenate(
            [narrow.tables.numbers[[0, 0, 0, 7, 255]], np.array([0, 0, -0.0, np.nan, 0.3], f4)]
        )
        self.model = []

    @rule(data=st.data(), n=st.integers(0, 6), odd=st.booleans())
    def append(self, data, n, odd):
        shape = (n, *self.store.layout.shape)
        kinds = data.draw(hnp.arrays(np.int8, shape, elements=st.integers(0, 9 if odd else 4)))
        tensors = self.numbers[kinds]
        streams = data.draw(st.one_of(st.integers(0, 2), hnp.arrays(np.int64, n, elements=st.integers(0, 2))))
        self.model += zip(self.store.append(tensors, streams).tolist(), tensors, strict=True)

    @rule(data=st.data())
    def release(self, data):
        which = data.draw(st.sets(st.integers(0, max(0, len(self.model) - 1)), max_size=len(self.model)))
        which &= set(range(len(self.model)))
        self.store.release(np.array([self.model[i][0] for i in which], np.int64))
        self.model = [held for i, held in enumerate(self.model) if i not in which]

    @rule(rebuild=st.sampled_from([lambda store: pickle.loads(pickle.dumps(store)), copy.deepcopy]))
    def rebuild(self, rebuild):
        self.store = rebuild(self.store)

    @invariant()
    def equal(self):
        if not hasattr(self, "store"):
            return
        ids = [held for held, _ in self.model]
        expected = np.array([tensor for _, tensor in self.model], f4).reshape(-1, *self.store.layout.shape)
        assert_same_bits(self.store.read(ids[::-1]), expected[::-1].copy())
        out = np.full((len(ids) + 1, *self.store.layout.shape), 9, f4)
        assert self.store.read([*ids, 0], out=out) is out
        assert_same_bits(out[:-1], expected)
        assert not out[-1:].view(np.uint32).any()


TestNarrowStoreEqualsDict = pytest.mark.slow(NarrowStoreEqualsDict.TestCase)
TestNarrowStoreEqualsDict.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("game", ["MsPacman", "Pong", "Breakout"])
def test_float_stacks_take_hardly_more_memory_than_those_of_uint8(game):
    pixels = stacks(game, 1200)
    plain = FrameStore(Layout(STACK.shape, np.uint8), frame_stack=4)
    store = narrow_stack_store(PIXELS, STACK.shape, 4)
    for start in range(0, len(pixels), 100):
        plain.append(pixels[start : start + 100])
        store.append(pixels[start : start + 100].astype(f4) / 255)
    stats = store.stats()
    assert stats.n_tensors == 1200
    assert stats.raw_bytes == 1200 * STACK.nbytes
    assert stats.total_bytes <= 1.1 * plain.stats().total_bytes + PIXELS.nbytes


def test_a_narrow_prints_as_numbers_are_computed():
    assert str(Narrow(F8, 8)) == "k in float64"
    assert str(Narrow(F8, 8, (("-", 128), ("/", 64)), F4)) == "(k - 128) / 64 in float32"
    assert str(Narrow(F8, 8, (("/", 255), ("-", 0.5), ("*", 2)))) == "(k / 255 - 0.5) * 2 in float64"


def test_strides_byte_order_and_threads_change_nothing():
    tensors = stacks(n=60).astype(f4) / 255
    codes, _ = PIXELS.apply(tensors)
    for same in (
        tensors.astype(">f4"),
        np.asfortranarray(tensors),
        tensors.repeat(2, axis=3)[..., ::2],
        tensors[::-1][::-1],
    ):
        again, fits = PIXELS.apply(same, threads=2)
        assert fits.all()
        np.testing.assert_array_equal(again, codes)
    wide = np.empty((60, 4, 84, 168), f4)
    for out in (np.empty_like(tensors), np.empty(tensors.shape, ">f4"), np.asfortranarray(tensors * 0), wide[..., ::2]):
        PIXELS.undo(codes, out, threads=3)
        np.testing.assert_array_equal(out, tensors)


def test_codes_go_to_the_places_that_are_named():
    out = np.full((4, 3), 9, f4)
    PIXELS.undo(np.array([[0, 0, 255], [255, 0, 0]], np.uint8), out, np.array([2, 0]))
    np.testing.assert_array_equal(out, [[1, 0, 0], [9, 9, 9], [0, 0, 1], [9, 9, 9]])


WIDER = "use a wider float or integer"
EVEN = "does not give 256 evenly rising numbers of"
STEP = "a step is one of - * / and a finite number, got"
CAST = "convert the array, nothing is cast here"
READ_ONLY = np.broadcast_to(f4(0), (1, 3))
REFUSED = [
    (lambda: Narrow(F4, 9), SpecError, "codes have 8 or 16 bits, got 9"),
    (lambda: Narrow(F4, 32), SpecError, "codes have 8 or 16 bits, got 32"),
    (lambda: Narrow(np.dtype("u1"), 8), DTypeError, f"uint8 can't be narrowed to 8 bits, {WIDER}"),
    (lambda: Narrow(np.dtype(f2), 16), DTypeError, f"float16 can't be narrowed to 16 bits, {WIDER}"),
    (lambda: Narrow(np.dtype("c8"), 8), DTypeError, f"complex64 can't be narrowed to 8 bits, {WIDER}"),
    (lambda: Narrow(np.dtype("i4"), 8, (("/", 2),)), SpecError, f"k / 2 in float64 {EVEN} int32"),
    (lambda: Narrow(np.dtype("u4"), 8, (("-", 1),)), SpecError, f"k - 1 in float64 {EVEN} uint32"),
    (lambda: Narrow(F4, 8, (("-", -1e9),)), SpecError, f"k - -1e+09 in float64 {EVEN} float32"),
    (lambda: Narrow(F4, 16, (), np.dtype(f2)), SpecError, f"k in float16 {EVEN} float32".replace("256", "65536")),
    (lambda: Narrow(F4, 8, (("^", 2),)), SpecError, f"{STEP} '^' and 2"),
    (lambda: Narrow(F4, 8, (("/", 0),)), SpecError, f"{STEP} '/' and 0"),
    (lambda: Narrow(F4, 8, (("-", np.inf),)), SpecError, f"{STEP} '-' and inf"),
    (lambda: Narrow(F4, 8, (), np.dtype("i4")), DTypeError, "numbers are computed in a float dtype, got int32"),
    (lambda: PIXELS.apply(np.zeros((2, 3))), DTypeError, f"items have dtype float32, got float64: {CAST}"),
    (lambda: undo((2, 3), np.zeros((2, 4), f4)), ShapeError, "codes have shape (2, 4), got (2, 3)"),
    (lambda: undo((2, 3), np.zeros((2, 3), f4), "i1"), DTypeError, f"items have dtype uint8, got int8: {CAST}"),
    (lambda: undo((2, 3), np.zeros((2, 3))), DTypeError, f"items have dtype float32, got float64: {CAST}"),
    (lambda: PIXELS.undo(np.zeros((1, 3), np.uint8), np.zeros((2, 3), f4), np.array([2])), IndexError,
     "places are in 0..1, got 2..2"),
    (lambda: undo((1, 3), READ_ONLY), DTypeError, "out is a read-only ndarray, pass one that can be written"),
    (lambda: NarrowStore(PIXELS, narrow_frame_store(PIXELS, (3,)).codes, narrow_frame_store(PIXELS, (4,)).wide),
     ShapeError, "codes of shape (3,) can't stand for tensors of (4,)"),
    (lambda: NarrowStore(NARROWS[2], narrow_frame_store(PIXELS, (3,)).codes, narrow_frame_store(PIXELS, (3,)).wide),
     DTypeError, "the stores are for uint16 and float64, got uint8 and float32"),
]  # fmt: skip


def undo(shape: tuple[int, ...], out: np.ndarray, dtype: str = "u1") -> None:
    PIXELS.undo(np.zeros(shape, dtype), out)


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_bad_input_is_refused(call, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        call()


def test_a_store_of_unknown_parts_is_refused():
    part = {"kind": "Nothing", "arguments": {}}
    with pytest.raises(CorruptStream, match=r"^a store has a part of no known kind: 'Nothing'$"):
        store_of("NarrowStore", {"narrow": None, "codes": part, "wide": part, "threads": 1})
