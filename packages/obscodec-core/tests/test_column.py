"""A Column equals a plain array, bit for bit, whatever is assigned to it."""

import copy
import mmap
import pickle
from pathlib import Path

import numpy as np
import pytest
from faults import at_every_line
from obscodec.columns import Column, ColumnReader, find_items, swap_row

SHAPE = 40, 2, 3
DTYPES = "float32", "float64", "int64", "int16", "uint8", "bool"


def bits(x):
    x = np.ascontiguousarray(x)
    return x.view(f"u{x.itemsize}")


def numbers_of(dtype, n, rng):
    """Numbers of every bit pattern, few of them distinct."""
    distinct = rng.integers(256, size=(n, np.dtype(dtype).itemsize)).astype(np.uint8)
    return (distinct % 2 if dtype == "bool" else distinct).view(dtype).reshape(-1)


@pytest.mark.parametrize("n_distinct", [2, 255, 600])
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_equals_a_plain_array(dtype, n_distinct):
    rng = np.random.default_rng(n_distinct)
    array, plain, numbers = Column.zeros(SHAPE, dtype), np.zeros(SHAPE, dtype), numbers_of(dtype, n_distinct, rng)
    indices = [3, -1, (4, 1), (5, 0, 2), slice(7, 20, 3), ..., np.array([1, 1, 30]), (np.arange(5), np.arange(5) % 2)]
    for i in range(300):
        index = indices[rng.integers(len(indices))]
        value = rng.choice(numbers, size=plain[index].shape)
        array[index] = value
        plain[index] = value
        np.testing.assert_array_equal(bits(array[...]), bits(plain), err_msg=str(i))
        found = array[index]
        np.testing.assert_array_equal(bits(found), bits(plain[index]))
        assert type(found) is type(plain[index])
    assert array.memory_bytes == array.size * (1 if n_distinct < 256 else plain.itemsize)
    assert (array.shape, array.dtype, array.ndim, array.nbytes) == (plain.shape, plain.dtype, plain.ndim, plain.nbytes)


def test_values_are_cast_as_numpy_casts_them():
    array, plain = Column.zeros((4, 2), np.float32), np.zeros((4, 2), np.float32)
    for x in (array, plain):
        x[0] = [True, False]
        x[1] = np.array([[1.1, 2.2]])
        x[2] = 7
        x[3, 1] = np.float64(0.1)
    np.testing.assert_array_equal(array, plain)
    for wrong in ([1, 2, 3], "text"):
        with pytest.raises(ValueError, match="could not"):
            array[0] = wrong
    with pytest.raises(IndexError):
        array[4] = 1
    np.testing.assert_array_equal(array, plain)


def test_it_computes_as_a_plain_array():
    array, plain = Column.zeros((4, 2), np.float32), np.zeros((4, 2), np.float32)
    array[:] = plain[:] = np.arange(8).reshape(4, 2)
    for x in (1 - array, array * array, np.sqrt(array), np.add(plain, array)):
        assert type(x) is np.ndarray
    np.testing.assert_array_equal(plain * (1 - array), plain * (1 - plain))
    assert (array == plain).all()
    assert np.mean(array) == array.mean() == plain.mean()
    assert array.sum(axis=0).tolist() == plain.sum(axis=0).tolist()
    same = array
    array *= 2
    array += array
    assert array is same
    np.testing.assert_array_equal(array, 4 * plain)
    assert [row.tolist() for row in array] == (4 * plain).tolist()
    with pytest.raises(TypeError, match="cannot use operands"):
        array + np.datetime64(1, "s")
    with pytest.raises(AttributeError, match="no_such"):
        array.no_such  # noqa: B018


@pytest.mark.parametrize("n_distinct", [3, 300])
def test_a_part_of_it_can_only_be_read(n_distinct):
    array = Column.zeros((400, 2), np.float32)
    array[:n_distinct, 0] = np.arange(n_distinct)
    for change in (
        lambda: array[3].__setitem__(0, 1),
        lambda: array[1:].__setitem__(0, 1),
        lambda: array.fill(3),
        lambda: array.sort(),
    ):
        with pytest.raises(ValueError, match="read-only"):
            change()
    chosen = array[[1, 2]]
    chosen[:] = 5  # a copy, as in numpy
    assert array[1, 0] == 1
    copied = np.array(array)
    copied[:] = 6
    assert array[1, 0] == 1
    with pytest.raises(ValueError, match="copy"):
        np.array(array, copy=False)


@pytest.mark.parametrize("n_distinct", [3, 300])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_independent(copied, n_distinct):
    array = Column.zeros((400, 1), np.float32)
    array[:n_distinct, 0] = np.arange(n_distinct)
    before, other = array[:].copy(), copied(array)
    assert not np.shares_memory(other.words, array.words)
    other[0], array[1] = -5, -7
    np.testing.assert_array_equal(other[1:], before[1:])
    assert other[0] == -5
    assert array[0] == before[0]
    exchange(other, 3, [9])
    assert (other[3], array[3]) == (9, before[3])


def exchange(array, step, numbers):
    """What the kernel of a step does; returns what was there."""
    row = np.array(numbers, array.dtype)
    items = np.zeros(row.nbytes, np.uint8)
    if not find_items(array.words, row.ctypes.data, items.ctypes.data):
        array.learn(row)
        assert find_items(array.words, row.ctypes.data, items.ctypes.data)
    swap_row(array.words, step, items.ctypes.data)
    return lambda: swap_row(array.words, step, items.ctypes.data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_exchange_rows(dtype):
    rng = np.random.default_rng(0)
    array, plain, numbers = Column.zeros((9, 3), dtype), np.zeros((9, 3), dtype), numbers_of(dtype, 300, rng)
    for i in range(1000):
        step, row = int(rng.integers(9)), rng.choice(numbers[: 1 + i // 3], size=3)
        undo = exchange(array, step, row)
        if rng.random() < 0.3:
            undo()
        else:
            plain[step] = row
        np.testing.assert_array_equal(bits(array[:]), bits(plain))


def test_an_interrupt_at_any_line_leaves_the_numbers():
    full = Column.zeros((300, 2), np.float32)
    full[:256, 0] = np.arange(256)
    expected, arrays = full[:].copy(), []

    def prepare():
        arrays.append(copy.deepcopy(full))
        return lambda: arrays[-1].__setitem__(7, [-1.0, 5.0])

    n_interrupts = 0
    for where in at_every_line(prepare):
        n_interrupts += 1
        array = arrays.pop()
        if array[7, 0] != -1:
            np.testing.assert_array_equal(array, expected, err_msg=where)
        exchange(array, 9, [-2.0, 3.0])
        array[10] = -3.0
        assert array[9:11].tolist() == [[-2, 3], [-3, -3]], where
        np.testing.assert_array_equal(array[11:], expected[11:], err_msg=where)
        np.testing.assert_array_equal(array[:7], expected[:7], err_msg=where)
    assert n_interrupts > 20


@pytest.mark.parametrize(("least", "most", "nbytes"), [(0, 255, 1), (-300, 900, 2), (-9, 99_999, 4), (0, 1 << 40, 8)])
def test_integers_take_as_few_bytes_as_all_need(least, most, nbytes):
    array, kernels = Column.zeros((500, 1), np.int64), Column.zeros((500, 1), np.int64)
    numbers = np.linspace(least, most, 500 if nbytes > 1 else 256).astype(np.int64)
    for at, number in enumerate(numbers):
        array[at] = number
        exchange(kernels, at, [number])
    for x in (array, kernels):
        np.testing.assert_array_equal(x[: len(numbers), 0], numbers)
        assert x[:].dtype == np.int64
        assert x.memory_bytes == 500 * nbytes


@pytest.mark.needs("/proc")
def test_becoming_plain_takes_no_memory_for_zeros():
    def resident():
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE

    array = Column.zeros((1 << 28, 1), np.float32)
    before = resident()
    array[:300, 0] = np.arange(300)
    assert array.memory_bytes == 1 << 30
    assert resident() - before < 1 << 28


@pytest.mark.parametrize("n_distinct", [2, 600])
def test_columns_are_read_together(n_distinct):
    rng = np.random.default_rng(0)
    arrays, plain = [], []
    for dtype, shape in (*((dtype, ()) for dtype in DTYPES), ("int64", (1,)), ("float32", (3,)), ("int64", (2, 2))):
        numbers = numbers_of(dtype, n_distinct, rng) if dtype != "int64" else rng.integers(-9, n_distinct, n_distinct)
        plain.append(rng.choice(numbers, size=(50, 3, *shape)).astype(dtype))
        arrays.append(Column.zeros((50, 3, *shape), dtype))
        arrays[-1][:] = plain[-1]
    arrays.append(Column(plain[0]))
    plain.append(plain[0])
    columns = ColumnReader(*([array] for array in arrays), arrays[:1] * 3)
    plain.append(plain[0])
    for n in (0, 1, 7, 64):
        steps, envs = rng.integers(50, size=n), rng.integers(3, size=n)
        for array, group in zip(plain, columns.take(steps, envs), strict=True):
            assert group.dtype == array.dtype
            assert group.ctypes.data % 8 == 0 or n == 0
            for found in group:
                np.testing.assert_array_equal(bits(found), bits(array[steps, envs]))
    assert len(group) == 3
    for steps, envs in (([-1, 2], [0, -3]), (np.array([3, 4], np.int32), [1, 1])):  # as numpy counts them
        for array, found in zip(plain, columns.take(np.asarray(steps), np.asarray(envs)), strict=True):
            np.testing.assert_array_equal(bits(found[-1]), bits(array[steps, envs]))
    for steps, envs in (([50], [0]), ([0], [3]), ([1 << 40], [1])):
        with pytest.raises(IndexError):
            columns.take(np.array(steps), np.array(envs))


@pytest.mark.slow
def test_columns_are_read_while_an_array_takes_another_form():
    array = Column.zeros((10, 1), np.int64)
    array[:] = np.arange(10)[:, None]
    columns, taken, places = ColumnReader([array]), [], (np.arange(10), np.zeros(10, np.int64))

    def change():
        for number in np.linspace(0, 1 << 40, 300).astype(np.int64):
            array[9] = number

    for _ in at_every_line(lambda: change, step=13):
        taken.append(columns.take(*places)[0][0])
        array[9] = 9
    assert len(taken) > 100
    np.testing.assert_array_equal([numbers[:9] for numbers in taken], [np.arange(9)] * len(taken))
