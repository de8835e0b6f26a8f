"""Batches that are drawn and read on the device equal those of numpy arrays."""

import gc
import pickle
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from atari_frames import frames
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import (
    AutoStore,
    DTypeError,
    Field,
    FrameStack,
    FrameStore,
    HeapFull,
    Layout,
    RingBuffer,
    ShapeError,
    SlotError,
    SpecError,
    TensorArray,
)
from obscodec.arrays import BorrowedArray, WriteBuffer
from obscodec.frames import frame_log
from obscodec_cupy import BatchReader
from obscodec_cupy.device import opened
from obscodec_cupy.frames import batch_reader
from stores_in_pairs import move_chunks
from together import meanwhile

STACK = Layout((4, 84, 84), np.uint8)
SMALL = Layout((3, 6, 8), np.uint8)


def atari(n: int) -> np.ndarray:
    """Observations of a game, four frames each."""
    return frames("MsPacman", 320, 0)[(np.arange(n)[:, None] + np.arange(-3, 1)) % 320]


def small_stacks(n: int, layout: Layout = SMALL) -> np.ndarray:
    rng = np.random.default_rng(n)
    walk = np.cumsum(rng.integers(2, size=(n + 3, *layout.shape[1:])), axis=0).astype(layout.dtype)
    return walk[np.arange(n)[:, None] + np.arange(3)]


def small_arrays(device: str, n_arrays: int = 2, n_steps: int = 40, n_envs: int = 2, layout: Layout = SMALL, **options):
    """Arrays that are full, and what they hold."""
    store = FrameStore(layout, frame_stack=FrameStack(3), device=device, **options)
    arrays = [TensorArray.zeros((n_steps, n_envs), store) for _ in range(n_arrays)]
    model = [small_stacks(n_steps * n_envs, layout).reshape(n_steps, n_envs, *layout.shape) for _ in range(n_arrays)]
    for array, expected in zip(arrays, model, strict=True):
        array[:] = expected
    return arrays, model


def read(reader: BatchReader, device, places, shape, dtype=np.uint8, n_arrays=2, shifts=None) -> list[np.ndarray]:
    outs = [device.empty((len(places), *shape), dtype) for _ in range(n_arrays)]
    reader.read(device.upload(np.asarray(places, np.int64)), outs, shifts and [device.upload(of) for of in shifts])
    return [device.download(out) for out in outs]


def flat(model: np.ndarray) -> np.ndarray:
    return model.reshape(-1, *model.shape[2:])


@pytest.mark.parametrize("waits", [False, True])
def test_a_buffer_that_goes_on_while_it_is_read(cuda, waits):
    device = opened.device(cuda)
    store = AutoStore(STACK, codec="delta-rle", frame_stack=FrameStack(4), device=cuda)
    write_buffer = WriteBuffer(store, 2) if waits else None
    arrays = [TensorArray.zeros((160, 2), store, write_buffer) for _ in range(2)]
    model = [np.zeros((160, 2, *STACK.shape), np.uint8) for _ in range(2)]
    played, rng = atari(320), np.random.default_rng(0)
    reader = BatchReader(arrays)
    for step in range(190):
        for k in range(2):
            model[k][step % 160] = played[step + k], played[(step + k + 100) % 320]
            arrays[k][step % 160] = model[k][step % 160]
        if step > 150:
            reader.sync()
            places = rng.integers(0, 320, 12)
            for out, expected in zip(read(reader, device, places, STACK.shape), model, strict=True):
                np.testing.assert_array_equal(out, flat(expected)[places])
    reader.sync()


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1 / 255), ("float16", 1 / 255), ("float16", 3.0), ("float32", 1)]
)
def test_bytes_are_converted_and_scaled_as_numpy_does(cuda, dtype, scale):
    device = opened.device(cuda)
    arrays, model = small_arrays(cuda)
    reader = BatchReader(arrays, dtype=dtype, scale=scale)
    reader.sync()
    places = np.random.default_rng(0).integers(80, size=30)
    for out, expected in zip(read(reader, device, places, SMALL.shape, dtype), model, strict=True):
        np.testing.assert_array_equal(
            out, (flat(expected)[places].astype(np.float32) * np.float32(scale)).astype(dtype)
        )


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_items_are_shifted_and_their_border_repeated(cuda, dtype):
    device, rng = opened.device(cuda), np.random.default_rng(0)
    arrays, model = small_arrays(cuda)
    reader = BatchReader(arrays, dtype=dtype, shifted_axes=(1, 2))
    reader.sync()
    places, shifts = rng.integers(80, size=30), [rng.integers(-4, 5, (30, 2)).astype(np.int32) for _ in range(2)]
    outs = read(reader, device, places, SMALL.shape, dtype or np.uint8, shifts=shifts)
    for out, expected, of in zip(outs, model, shifts, strict=True):
        y = np.clip(np.arange(6) + of[:, :1], 0, 5)[:, None, :, None]
        x = np.clip(np.arange(8) + of[:, 1:], 0, 7)[:, None, None, :]
        each = np.arange(30)[:, None, None, None]
        np.testing.assert_array_equal(out, flat(expected)[places][each, np.arange(3)[:, None, None], y, x])


def test_arrays_of_several_stores_and_an_odd_number_of_them(cuda):
    device = opened.device(cuda)
    (one, two, three), model = small_arrays(cuda, 3)
    (other,), (of_other,) = small_arrays(cuda, 1, codec="raw")
    reader = BatchReader([one, other, two, three])
    reader.sync()
    places = np.arange(79, -1, -3)
    outs = read(reader, device, places, SMALL.shape, n_arrays=4)
    for out, expected in zip(outs, [model[0], of_other, *model[1:]], strict=True):
        np.testing.assert_array_equal(out, flat(expected)[places])


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
@pytest.mark.parametrize("is_named", [False, True])
def test_new_arrays_are_made_for_places(cuda, dtype, is_named):
    device, (arrays, model) = opened.device(cuda), small_arrays(cuda)
    names = ["first", "second"]
    reader = BatchReader(dict(zip(names, arrays, strict=True)) if is_named else arrays, dtype=dtype)
    reader.sync()
    at = np.array([5, 0, 79, 5])
    made = reader.read(places := device.upload(at))
    outs = {name: device.empty(made[name].shape, made[name].dtype) for name in names[::-1]} if is_named else made
    again = reader.read(places, outs)
    assert again is outs
    for i, expected in enumerate(model):
        found = [device.download(of[names[i]] if is_named else of[i]) for of in (made, again)]
        wanted = flat(expected)[at].astype(np.float32 if dtype == "bfloat16" else dtype or np.uint8)
        for x in found:
            read = (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else x
            np.testing.assert_array_equal(read, wanted, strict=True)


def test_new_arrays_for_bfloat16_are_its_bits(cuda):
    device = opened.device(cuda)
    layout = Layout((6, 8), ml_dtypes.bfloat16)
    array = TensorArray.zeros((40,), FrameStore(layout, codec="delta-rle", device=cuda))
    model = np.random.default_rng(0).random((40, 6, 8)).astype(ml_dtypes.bfloat16)
    array[:] = model
    reader = BatchReader([array])
    reader.sync()
    (made,) = reader.read(device.upload(np.array([3, 7])))
    np.testing.assert_array_equal(device.download(made), model[[3, 7]].view(np.uint16), strict=True)


class OfAnotherLibrary:
    """An array of the standard of arrays, such as one of JAX."""

    def __init__(self, numbers) -> None:
        self.memory = np.asarray(numbers)

    def __dlpack__(self, **options):
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()

    def __array_namespace__(self):
        return np


def test_new_arrays_are_of_the_library_of_the_places(simulated):
    simulated(eager=True)
    arrays, model = small_arrays("cuda")
    reader = BatchReader({"one": arrays[0]})
    reader.sync()
    read = reader.read(OfAnotherLibrary([3, 7]))["one"]
    assert isinstance(read, np.ndarray)
    np.testing.assert_array_equal(read, flat(model[0])[[3, 7]])


@pytest.mark.parametrize("index", [
    3, -1, slice(4, 9), slice(None, None, 7), [1, 5, -2], (np.array([2, 2, 8]), np.array([0, 1, 1])), (slice(None), 1),
    ..., (5, 0), np.arange(40) % 3 == 0,
], ids=str)  # fmt: skip
def test_whatever_is_assigned_arrives(cuda, index):
    device = opened.device(cuda)
    (array,), (model,) = small_arrays(cuda, 1)
    reader = BatchReader([array])
    reader.sync()
    model[index] = array[index] = small_stacks(1)[0]
    reader.sync()
    (out,) = read(reader, device, np.arange(80), SMALL.shape, n_arrays=1)
    np.testing.assert_array_equal(out, flat(model))


def test_what_is_assigned_through_views_arrives(cuda):
    device = opened.device(cuda)
    (array,), (model,) = small_arrays(cuda, 1)
    across, flat_array = array.swapaxes(0, 1), array.reshape(80, *SMALL.shape)
    reader = BatchReader([array])
    reader.sync()
    for assign in (0, 1):
        if assign:
            across[1, 3] = model[3, 1] = small_stacks(1)[0]
        else:
            flat_array[50:60] = flat(model)[50:60] = small_stacks(2)[1]
        reader.sync()
        (out,) = read(reader, device, np.arange(80), SMALL.shape, n_arrays=1)
        np.testing.assert_array_equal(out, flat(model))
    array.clear()
    reader.sync()
    assert not read(reader, device, np.arange(80), SMALL.shape, n_arrays=1)[0].any()


def test_the_arrays_of_a_ring_buffer(cuda):
    device = opened.device(cuda)
    ring = RingBuffer(300, {"image": Field(SMALL.shape, np.uint8, "delta-rle", frame_stack=FrameStack(3), device=cuda)})
    tensors = small_stacks(400)
    array = ring._arrays["image"]
    reader = BatchReader([array])
    for step in range(400):
        ring.append(image=tensors[step])
        if step % 50 == 0 and step >= 300:
            reader.sync()
            (out,) = read(reader, device, np.arange(len(array)), SMALL.shape, n_arrays=1)
            rows = np.arange(step - 299, step + 1) % len(array)
            np.testing.assert_array_equal(out[rows], tensors[step - 299 : step + 1])


def test_a_recorded_launch_goes_on_to_be_right(cuda, monkeypatch):
    device, recorded = opened.device(cuda), []
    if not isinstance(device, SimulatedDevice):
        pytest.skip("on a GPU, a CUDA graph records it")
    monkeypatch.setattr(frame_log, "MIN_BLOCKS", 2)
    arrays, model = small_arrays(cuda, block_frames=4)
    reader = BatchReader(arrays)
    reader.sync()
    launch = device.launch
    places, outs = device.upload(np.arange(10) * 2), [device.empty((10, *SMALL.shape), np.uint8) for _ in range(2)]
    monkeypatch.setattr(device, "launch", lambda *of, **how: recorded.append((of, how)))
    reader.read(places, outs)
    monkeypatch.undo()
    ((of, how),) = recorded
    rng = np.random.default_rng(0)
    for step in range(20):
        arrays[step % 2][step] = model[step % 2][step] = rng.integers(256, size=(2, *SMALL.shape), dtype=np.uint8)
        reader.sync()
        device.write(rng.integers(80, size=10), places)
        launch(*of, **how)
        for out, expected in zip(outs, model, strict=True):
            np.testing.assert_array_equal(device.download(out), flat(expected)[device.download(places)])


@pytest.mark.slow
def test_what_is_recorded_sees_the_arrays_as_they_were_until_the_next_sync(simulated):
    """Chunks that the heap gives back, and rooms that are too small, stay until then."""
    device = simulated(seed=3)
    rng = np.random.default_rng(0)
    arrays, model = small_arrays("cuda", block_frames=2)
    reader = BatchReader(arrays)
    for _ in range(5):
        reader.sync()
        before = [expected.copy() for expected in model]
        for k in range(2):
            arrays[k][:] = model[k] = rng.integers(256, size=model[k].shape, dtype=np.uint8)
            move_chunks(arrays[0].store.log.heap)
            gc.collect()
            device.synchronize()
        places = rng.integers(80, size=30)
        for out, expected in zip(read(reader, device, places, SMALL.shape), before, strict=True):
            np.testing.assert_array_equal(out, flat(expected)[places])


def test_what_another_thread_assigns_during_a_sync_is_there_at_the_next_one(cuda, monkeypatch):
    array = TensorArray.zeros((20,), FrameStore(SMALL, device=cuda, block_frames=2, recent=1))
    before, after = np.random.default_rng(0).integers(256, size=(2, *array.shape), dtype=np.uint8)
    array[:] = before
    write_ids, assigned = batch_reader.write_ids, []

    def write_and_assign(*of):
        write_ids(*of)
        if not assigned:
            array[:] = after
            assigned.append(True)

    reader = BatchReader([array])
    with monkeypatch.context() as patch:
        patch.setattr(batch_reader, "write_ids", write_and_assign)
        reader.sync()
    for expected in (before, after):
        (found,) = read(reader, opened.device(cuda), np.arange(20), SMALL.shape, n_arrays=1)
        np.testing.assert_array_equal(found, expected)
        reader.sync()
    reader.check()


@pytest.mark.parametrize("other", ["another reader", "the store"])
def test_a_reader_sees_the_arrays_as_they_are_when_something_else_has_read_from_their_store(cuda, other):
    device = opened.device(cuda)
    store = FrameStore(SMALL, device=cuda, block_frames=2, recent=1)
    array = TensorArray.zeros((20,), store)
    before, after = np.random.default_rng(0).integers(256, size=(2, *array.shape), dtype=np.uint8)
    array[:] = before
    reader, another = BatchReader([array]), BatchReader([array])
    reader.sync()
    array[:] = after
    if other == "the store":
        store.read_into(array.ids[3:4].astype(np.int64), device.empty((1, *SMALL.shape), np.uint8))
    else:
        another.sync()
    (found,) = read(reader, device, np.arange(20), SMALL.shape, n_arrays=1)
    np.testing.assert_array_equal(found, after)
    reader.check()


def test_readers_of_one_store_in_several_threads(simulated):
    """Each item says which one it is, so that a reader sees at once whether it was given a part of another one."""
    device = simulated(seed=7, eager=True)
    items = np.random.default_rng(0).integers(256, size=(256, *SMALL.shape), dtype=np.uint8)
    items[:, 0, 0, 0] = np.arange(256)
    array = TensorArray.zeros((20,), FrameStore(SMALL, device="cuda", block_frames=2, recent=1))
    array[:] = items[:20]

    def work(reader: BatchReader) -> None:
        reader.sync()
        (found,) = read(reader, device, np.arange(20), SMALL.shape, n_arrays=1)
        np.testing.assert_array_equal(found, items[found[:, 0, 0, 0]])

    with meanwhile(*(partial(work, BatchReader([array])) for _ in range(2))):
        for i in range(300):
            array[i % 3 :: 3] = items[np.arange(i % 3, 20, 3) + i % 230]


def test_streams_take_turns(simulated):
    device = simulated(seed=11)
    rng = np.random.default_rng(0)
    arrays, model = small_arrays("cuda", block_frames=4)
    reader, streams, pending = BatchReader(arrays), on_new_streams(device, 3), []
    for step in range(40):
        with streams[rng.integers(3)]():
            arrays[step % 2][step % 40] = model[step % 2][step % 40] = rng.integers(
                256, size=(2, *SMALL.shape), dtype=np.uint8
            )
            reader.sync()
        with streams[rng.integers(3)]():
            places = rng.integers(80, size=10)
            outs = [device.empty((10, *SMALL.shape), np.uint8) for _ in range(2)]
            reader.read(device.upload(places), outs)
            pending.append((outs, [flat(expected)[places] for expected in model], device.mark()))
    for outs, expected, mark in pending:
        mark.synchronize()
        for out, tensors in zip(outs, expected, strict=True):
            np.testing.assert_array_equal(device.download(out), tensors)


@pytest.mark.slow
def test_a_recorded_launch_keeps_the_memory_that_it_works_in(simulated, monkeypatch):
    device, recorded = simulated(seed=5), []
    layout = Layout((3, 400, 300), np.uint8)
    arrays, model = small_arrays("cuda", 2, 6, 1, layout)
    reader = BatchReader(arrays)
    reader.sync()
    launch = device.launch
    places, outs = device.upload(np.array([4, 1])), [device.empty((2, *layout.shape), np.uint8) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(device, "launch", lambda *of, **how: recorded.append((of, how)))
        reader.read(places, outs)
    read(reader, device, [0, 2, 2, 5, 3], layout.shape)
    rng = np.random.default_rng(0)
    for k in range(2):
        arrays[k][:3] = model[k][:3] = rng.integers(256, size=(3, 1, *layout.shape), dtype=np.uint8)
    reader.sync()
    move_chunks(arrays[0].store.log.heap)  # what was held for the kernels goes
    ((of, how),) = recorded
    launch(*of, **how)
    for out, expected in zip(outs, model, strict=True):
        np.testing.assert_array_equal(device.download(out), flat(expected)[[4, 1]])


def test_places_outside_of_the_arrays_are_complained_of(cuda):
    device = opened.device(cuda)
    arrays, model = small_arrays(cuda)
    reader = BatchReader(arrays)
    reader.sync()
    out, _ = read(reader, device, [3, 80, -1, 5], SMALL.shape)
    np.testing.assert_array_equal(out[[0, 3]], flat(model[0])[[3, 5]])
    assert not out[[1, 2]].any()
    with pytest.raises(SlotError, match=r"^sample 1 of a batch asks for a tensor that the store does not have$"):
        reader.sync()
    reader.check()


def test_a_store_that_has_not_decided(cuda):
    store = AutoStore(SMALL, device=cuda)
    array = TensorArray.zeros((300,), store)
    array[:100] = small_stacks(100)
    reader, device = BatchReader([array]), opened.device(cuda)
    text = r"^it is not decided yet how tensors are stored: it waits for 156 more tensors; decide\(\) chooses now"
    for _ in range(2):
        with pytest.raises(SpecError, match=text):
            reader.sync()
    with pytest.raises(SpecError, match=r"^the device knows nothing of the arrays yet: call sync\(\) first$"):
        reader.read(device.upload(np.arange(3)), [device.empty((3, *SMALL.shape), np.uint8)])
    array[100:300] = small_stacks(200)
    reader.sync()
    (out,) = read(reader, device, np.arange(300), SMALL.shape, n_arrays=1)
    np.testing.assert_array_equal(out, np.concatenate([small_stacks(100), small_stacks(200)]))


def test_a_device_without_memory_is_told_all_at_the_next_sync(simulated):
    device = simulated(seed=3, capacity=2_000_000)
    arrays, model = small_arrays("cuda")
    reader = BatchReader(arrays)
    reader.sync()
    arrays[0][:9] = model[0][:9] = np.random.default_rng(0).integers(256, size=(9, 2, *SMALL.shape), dtype=np.uint8)
    rest = device.empty((device.free - 500,), np.uint8)
    with pytest.raises(HeapFull):
        reader.sync()
    del rest
    reader.sync()
    out, _ = read(reader, device, np.arange(80), SMALL.shape)
    np.testing.assert_array_equal(out, flat(model[0]))


def test_an_array_of_the_same_ids_and_one_that_was_pickled(cuda):
    device = opened.device(cuda)
    (array,), (model,) = small_arrays(cuda, 1)
    same = BorrowedArray(array.ids, array.store, array)
    restored = pickle.loads(pickle.dumps(array))
    restored[3] = model[3]
    for one in (same, restored):
        reader = BatchReader([one])
        reader.sync()
        (out,) = read(reader, device, np.arange(80), SMALL.shape, n_arrays=1)
        np.testing.assert_array_equal(out, flat(model))


def test_what_a_reader_refuses(cuda):
    device = opened.device(cuda)
    (array, other), _ = small_arrays(cuda)
    with pytest.raises(ShapeError, match=r"^a BatchReader is for one array or more, got none$"):
        BatchReader([])
    with pytest.raises(ShapeError, match=r"^this array is a view, made by reshape, swapaxes or transpose: watch the "):
        BatchReader([array.swapaxes(0, 1)])
    (on_cpu,), _ = small_arrays("cpu", 1)
    with pytest.raises(SpecError, match=r"^a BatchReader is for arrays of stores on one GPU, got them on cpu, cuda$"):
        BatchReader([array, on_cpu])
    for wrong in (array, None, [np.zeros((3, *SMALL.shape), np.uint8)]):
        with pytest.raises(
            DTypeError, match=r"^a BatchReader is for a list of TensorArrays, got (TensorArray|None|list)$"
        ):
            BatchReader(wrong)
    with pytest.raises(SpecError, match=r"^a scale needs a dtype, such as 'float32', got 0\.5 without one$"):
        BatchReader([array], scale=0.5)
    with pytest.raises(DTypeError, match=r"^uint8 is converted to float16, bfloat16, float32, got uint8 to float64$"):
        BatchReader([array], dtype="float64")
    with pytest.raises(ShapeError, match=r"^rows and columns are two axes"):
        BatchReader([array], shifted_axes=(2, 3))
    with pytest.warns(UserWarning, match="decoded on the CPU"):
        zipped = TensorArray.zeros((3,), FrameStore(SMALL, codec="zstd:3", device=cuda))
    with pytest.raises(SpecError, match=r"^a FrameStore on 'cuda' can't be read by ids on a GPU: that takes frames"):
        BatchReader([zipped])

    reader = BatchReader([array, other])
    reader.sync()
    places = device.upload(np.arange(4))
    outs = [device.empty((4, *SMALL.shape), np.uint8) for _ in range(2)]
    with pytest.raises(ShapeError, match=r"^outs must have 2 arrays, got 1$"):
        reader.read(places, outs[:1])
    with pytest.raises(ShapeError, match=r"^outs must be a list, as the arrays are, got one of a, b$"):
        reader.read(places, dict(zip("ab", outs, strict=True)))
    named = BatchReader({"a": array, "b": other})
    named.sync()
    by_key = BatchReader({("next", "a"): array})
    by_key.sync()
    with pytest.raises(
        ShapeError, match=r"^outs must be a dictionary of \('next', 'a'\), as the arrays are, got one of b$"
    ):
        by_key.read(places, {"b": outs[0]})
    for given, text in (outs, "list"), ({"a": outs[0], "c": outs[1]}, "one of a, c"):
        with pytest.raises(ShapeError, match=f"^outs must be a dictionary of a, b, as the arrays are, got {text}$"):
            named.read(places, given)
    with pytest.raises(ShapeError, match=r"^shifts must have 0 arrays, got 2$"):
        reader.read(places, outs, [device.zeros((4, 2), np.int32)] * 2)
    with pytest.raises(DTypeError, match=r"^places has dtype int64, got int32$"):
        reader.read(device.upload(np.arange(4, dtype=np.int32)), outs)
    with pytest.raises(ShapeError, match=r"^places has shape \(4,\), got \(2, 2\)$"):
        reader.read(places.reshape((2, 2)), outs)
    with pytest.raises(ShapeError, match=r"^out has shape \(3, 3, 6, 8\), got \(4, 3, 6, 8\)$"):
        reader.read(places[:3], outs)
