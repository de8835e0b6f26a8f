"""Steps that are stored at once: read as they lie, all or nothing, and undone."""

import numpy as np
import pytest
from faults import at_every_line
from obscodec import AutoStore, FrameStack, FrameStore, HeapFull, Layout, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.columns import Column
from obscodec.errors import ShapeError
from obscodec.frames.frame_log import FrameLog
from obscodec.frames.kernels.steps import exchange_step
from together import meanwhile

N_STEPS = 7
KINDS = {
    "frames": (Layout((3, 5, 4), np.uint8), 1, 0),
    "stacks": (Layout((4, 6, 5), np.uint8), 4, 0),
    "stacks of colours": (Layout((6, 6, 5), np.uint8), 2, 0),
    "frames last": (Layout((6, 5, 4), np.uint8), 4, -1),
    "colours last": (Layout((6, 5, 9), np.uint8), 3, -1),
    "floats": (Layout((3, 4, 4), np.float32), 3, 0),
    "floats last": (Layout((4, 4, 3), np.float32), 3, -1),
    "shorts": (Layout((4, 9), np.uint16), 4, 0),
    "vectors": (Layout((12,), np.uint8), 3, 0),
}


def store_of(kind: str, codec: str = "delta-rle|lz4:6") -> FrameStore:
    layout, depth, axis = KINDS[kind]
    stack = FrameStack(depth, axis) if depth > 1 else None
    return FrameStore(layout, frame_stack=stack, codec=codec, block_frames=4)


class Player:
    """Observations of environments, stacks of frames that come back, repeat or begin anew."""

    def __init__(self, kind: str, n_envs: int) -> None:
        self.layout, self.depth, self.axis = KINDS[kind]
        self.n_envs, self.rng = n_envs, np.random.default_rng(len(kind))
        self.now = np.zeros((n_envs, *self.layout.shape), self.layout.dtype)

    def step(self) -> np.ndarray:
        frames = np.moveaxis(self.now, -1, 1) if self.axis else self.now
        frames = frames.reshape(self.n_envs, self.depth, -1).copy()
        chance = self.rng.random()
        if chance < 0.1:
            frames = self.rng.integers(200, size=frames.shape).astype(frames.dtype)
        elif chance < 0.9:
            frames[:, :-1] = frames[:, 1:]
            frames[np.arange(self.n_envs), -1, self.rng.integers(frames.shape[2], size=self.n_envs)] += 1
        shape = self.layout.shape
        if self.axis:
            self.now = np.moveaxis(frames.reshape(self.n_envs, shape[-1], *shape[:-1]), 1, -1).copy()
        else:
            self.now = frames.reshape(self.n_envs, *shape)
        return self.as_it_may_lie(self.now)

    def as_it_may_lie(self, x: np.ndarray) -> np.ndarray:
        """The same numbers in memory of another order."""
        way = self.rng.integers(6)
        if way == 0:
            return np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1)  # channels last, as VecTransposeImage has them
        if way == 1:
            return np.moveaxis(np.moveaxis(x, -1, 1).copy(), 1, -1)
        if way == 2:
            return np.asfortranarray(x)
        if way == 3:
            return x.repeat(2, axis=0)[::2]
        if way == 4:
            return np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape)  # read-only
        return x.copy()


def arrays_of(store, n_envs, dtype=np.int32):
    write_buffer = WriteBuffer(store, n_envs)
    return [TensorArray(np.zeros((N_STEPS, n_envs), dtype), store, write_buffer) for _ in range(2)]


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_equal_plain_ones(kind, n_envs, monkeypatch):
    monkeypatch.delattr(TensorArray, "_assign")  # which takes ten times as long
    n_some: list[int] = []
    store, player = store_of(kind), Player(kind, n_envs)
    arrays, rng = arrays_of(store, n_envs, np.int32 if n_envs == 1 else np.int64), player.rng
    plain = [np.zeros(array.shape, array.dtype) for array in arrays]
    columns = Column.zeros((N_STEPS, n_envs), np.float32), Column.zeros((N_STEPS, n_envs, 2), np.int16)
    rows, expected = [column[0].copy() for column in columns], [column.copy() for column in columns]
    write_buffer = arrays[0].write_buffer
    assert write_buffer.writer is not None
    write_buffer.writer.state.bind_columns([*zip(columns, rows, strict=True)])
    obs = player.step()
    for i in range(400):
        at, next_obs, way = int(rng.integers(N_STEPS)), player.step(), rng.integers(8)
        given = obs, next_obs
        if way == 0:  # one array alone
            which = int(rng.integers(2))
            arrays[which][at] = given[which]
            plain[which][at] = given[which]
        elif way in (6, 7):  # some environments, of a step each, maybe one twice
            which, n = int(rng.integers(2)), int(rng.integers(1, n_envs + 1))
            some = rng.integers(N_STEPS, size=n), rng.integers(n_envs, size=n)
            n_some.append(n)
            arrays[which][some] = given[which][:n]
            plain[which][some] = given[which][:n]
        elif way == 1:  # a step that is undone
            write_buffer.reserve(at, 2)
            for array, value in zip(arrays, given, strict=True):
                array[at] = value
            write_buffer.forget(at)
            write_buffer.forget(at)
        else:
            rows[0][:], rows[1][:] = rng.random(n_envs), rng.integers(99, size=(n_envs, 2))
            changed = rows[0].copy(), rows[1].copy()
            write_buffer.put_both(at, (arrays[0].ids, arrays[1].ids), *given)
            if way == 2:
                write_buffer.forget(at)
                write_buffer.forget(at)
            else:
                plain[0][at], plain[1][at] = given
                expected[0][at], expected[1][at] = changed
        obs = next_obs
        if i % 23 == 0:
            for array, other in zip((*arrays, *columns), (*plain, *expected), strict=True):
                np.testing.assert_array_equal(array[:], other)
    for array, other in zip(arrays, plain, strict=True):
        np.testing.assert_array_equal(array[:], other)
    write_buffer.flush()
    for array in arrays:
        store.release(array.ids.reshape(-1))
    assert store.stats().n_tensors == 0
    assert {*n_some} == {*range(1, n_envs + 1)}
    assert len(exchange_step.signatures) == 1  # of all these forms


def test_a_step_that_finds_no_room_changes_nothing(monkeypatch):
    store, player = store_of("stacks"), Player("stacks", 2)
    arrays = arrays_of(store, 2)
    for at in range(N_STEPS):
        arrays[0][at] = player.step()
    before = arrays[0][:]

    def full(*_):
        raise HeapFull("full")

    ids = arrays[0].ids, arrays[1].ids
    with monkeypatch.context() as patch:
        patch.setattr(FrameLog, "_prepare", full)
        failed = 0
        for _ in range(30):
            try:
                arrays[0].write_buffer.put_both(3, ids, player.step(), player.step())
            except HeapFull:
                failed += 1
            else:
                arrays[0].write_buffer.forget(3)
        store.log.open.queue.table[0, 1] = 0  # no room for full blocks
        for _ in range(30):
            noise = player.rng.integers(1, 99, size=(2, 4, 6, 5)).astype(np.uint8)
            with pytest.raises(HeapFull):  # eight new frames of each sequence are two blocks
                arrays[0].write_buffer.put_both(3, ids, noise, noise + 100)
    np.testing.assert_array_equal(arrays[0][:], before)
    assert not arrays[1].ids.any()


def test_other_indices_and_values_are_assigned_as_numpy_does_it():
    store, player = store_of("stacks"), Player("stacks", 3)
    array, _ = arrays_of(store, 3)
    plain = np.zeros(array.shape, array.dtype)
    rows, envs = np.array([4, 2]), np.array([0, 2])
    for index, value in (
        ((rows - N_STEPS, envs), player.step()[:2]),
        ((rows, envs), player.step()[:1]),
        ((rows, envs), player.step()[0]),
        ((rows, envs), player.step()[:2].astype(np.int64)),
        ((rows.repeat(3), np.arange(6) % 3), player.step()[[0, 1, 2, 2, 1, 0]]),
        ((rows[:, None], envs), player.step()[:2]),
        ((rows, 1), player.step()[:2]),
        ((rows.astype(np.int32), envs), player.step()[:2]),
        ((rows, envs, slice(2)), player.step()[:2, :2]),
        ((rows[:0], envs[:0]), player.step()[:0]),
        ((np.arange(N_STEPS) > 4, 1), player.step()[:2]),
    ):
        array[index] = value
        plain[index] = value
        np.testing.assert_array_equal(array[:], plain)
    for wrong, message in ((rows + N_STEPS, "out of bounds"), (rows - 2 * N_STEPS, "out of bounds")):
        with pytest.raises(IndexError, match=message):
            array[wrong, envs] = player.step()[:2]
    with pytest.raises(ShapeError):
        array[rows, envs] = player.step()
    np.testing.assert_array_equal(array[:], plain)


def test_some_that_find_no_room_change_nothing(monkeypatch):
    store, player = store_of("stacks"), Player("stacks", 3)
    array, _ = arrays_of(store, 3)
    for at in range(N_STEPS):
        array[at] = player.step()
    before = array[:]

    def full(*_):
        raise HeapFull("full")

    monkeypatch.setattr(FrameLog, "_prepare", full)
    store.log.open.queue.table[0, 1] = 0  # no room for full blocks
    for _ in range(20):
        noise = player.rng.integers(1, 99, size=(2, 4, 6, 5)).astype(np.uint8)
        with pytest.raises(HeapFull):  # eight new frames of a sequence are two blocks
            array[np.array([1, 2]), np.array([2, 2])] = noise
    np.testing.assert_array_equal(array[:], before)


def test_some_that_are_interrupted_are_stored_or_not():
    store, player = store_of("stacks"), Player("stacks", 3)
    array, _ = arrays_of(store, 3)
    assert array.write_buffer.writer is not None
    model, some, given, n_interrupts = np.zeros(array.shape, array.dtype), None, None, 0

    def prepare():
        nonlocal some, given
        some, given = (player.rng.integers(N_STEPS, size=2), np.array([2, 0])), player.step()[1:]
        return lambda: array.__setitem__(some, given)

    for _ in range(4):
        for where in at_every_line(prepare):
            n_interrupts += 1
            if (array[some] == given).all():
                model[some] = given
            np.testing.assert_array_equal(array[:], model, err_msg=where)
    assert n_interrupts > 50
    array.write_buffer.flush()
    store.release(array.ids.reshape(-1))
    assert store.stats().n_tensors == 0


@pytest.mark.slow
def test_a_step_that_is_interrupted_is_done_or_not():
    store, player = store_of("stacks"), Player("stacks", 2)
    arrays = arrays_of(store, 2)
    ids, write_buffer = (arrays[0].ids, arrays[1].ids), arrays[0].write_buffer
    assert write_buffer.writer is not None
    models = [np.zeros(array.shape, np.uint8) for array in arrays]
    given, at, n_interrupts = [models[0][0]] * 2, 0, 0

    def prepare():
        nonlocal at
        at, given[:] = int(player.rng.integers(N_STEPS)), (player.step(), player.step())
        return lambda: write_buffer.put_both(at, ids, *given)

    for _ in range(25):
        for where in at_every_line(prepare):
            n_interrupts += 1
            if all((array[at] == value).all() for array, value in zip(arrays, given, strict=True)):
                for model, value in zip(models, given, strict=True):
                    model[at] = value
            for array, model in zip(arrays, models, strict=True):
                np.testing.assert_array_equal(array[:], model, err_msg=where)
    assert n_interrupts > 500
    write_buffer.flush()
    for array in arrays:
        store.release(array.ids.reshape(-1))
    assert store.stats().n_tensors == 0


def test_an_interrupted_view_leaves_the_next_step_as_it_lies():
    arrays, rng = arrays_of(store_of("stacks"), 2), np.random.default_rng(0)
    as_it_is = rng.integers(99, size=(2, 4, 6, 5)).astype(np.uint8)
    view = np.moveaxis(np.moveaxis(as_it_is, 1, -1).copy(), -1, 1)
    ids, write_buffer = (arrays[0].ids, arrays[1].ids), arrays[0].write_buffer
    assert write_buffer.writer is not None
    for where in at_every_line(lambda: lambda: write_buffer.put_both(1, ids, as_it_is, view)):
        write_buffer.put_both(2, ids, as_it_is, as_it_is)
        np.testing.assert_array_equal(arrays[1][2], as_it_is, err_msg=where)


def test_frames_of_some_are_of_their_sequences():
    """So a frame that an environment had before is stored once, whoever steps with it."""
    store, rng = FrameStore(Layout((5, 4), np.uint8), block_frames=4), np.random.default_rng(0)
    array = TensorArray(np.zeros((N_STEPS, 3), np.int32), store, WriteBuffer(store, 3))
    frames = rng.integers(256, size=(3, 5, 4)).astype(np.uint8)
    array[0] = frames
    for some in ([2], [1, 0], [0, 2]):
        array[np.full(len(some), 1), np.array(some)] = frames[some]
    assert np.array_equal(array[1], frames)
    assert store.stats().n_tensors == 3


def test_watches_see_the_rows():
    store = store_of("frames")
    array, other = arrays_of(store, 1)
    watches = [array.watch(), other.watch()]
    for watch in watches:
        watch.drain()
    array[2] = np.ones((1, 3, 5, 4), np.uint8)
    assert [watch.drain().tolist() for watch in watches] == [[2], []]
    other[np.array([5]), np.array([0])] = np.ones((1, 3, 5, 4), np.uint8)
    assert [watch.drain().tolist() for watch in watches] == [[], [5]]
    array.write_buffer.put_both(4, (array.ids, other.ids), *np.ones((2, 1, 3, 5, 4), np.uint8))
    assert [watch.drain().tolist() for watch in watches] == [[4], [4]]


def test_threads_read_while_another_writes():
    array, _ = arrays_of(store_of("stacks"), 1)

    def read():
        found = array[:]
        assert (found == found[:, :, :, :1, :1]).all()

    with meanwhile(read, read):
        for i in range(3000):
            array[i % N_STEPS] = np.full((1, 4, 6, 5), (np.arange(4) + i)[:, None, None] % 251, np.uint8)


def test_a_store_that_decides_writes_at_once_from_then_on():
    store = AutoStore(Layout((4, 20, 20), np.uint8), codec="delta-rle", frame_stack=4, decide_after=8)
    array, _ = arrays_of(store, 1)
    write_buffer, played = array.write_buffer, np.random.default_rng(0).integers(99, size=(40, 1, 4, 20, 20))
    assert write_buffer.writer is None
    for i, row in enumerate(played.astype(np.uint8)):
        array[i % N_STEPS] = row
        if i == 20:
            array[:]  # which stores what waits
    assert write_buffer.writer is not None
    np.testing.assert_array_equal(array[:], [played[i] for i in (35, 36, 37, 38, 39, 33, 34)])
