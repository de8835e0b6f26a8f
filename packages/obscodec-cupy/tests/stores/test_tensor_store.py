"""TensorStore on a device: what it holds, reads and refuses is what a store on the CPU does."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pytest
from atari_frames import frames
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import CorruptStream, DTypeError, HeapFull, Layout, ShapeError, SlotError, SpecError, TensorStore, codec
from obscodec.segments import Segments
from obscodec_cupy.device import opened

HEAPS = pytest.mark.parametrize("heap", ["device", "pinned"])
SPECS = pytest.mark.parametrize("spec", ["raw", "rle", "delta-rle"])
FRAMES = Layout((84, 84), np.uint8)
LAYOUTS = [
    Layout((3, 20, 7), np.uint8),
    Layout((), "<f4"),
    Layout((5,), "<i2"),
    Layout((2, 33), "<f8"),
    Layout((9, 3), "<c8"),
    Layout((4, 0), "u1"),
    Layout((17,), "?"),
]


@pytest.fixture
def late(device, monkeypatch):
    """A device that works late on what it is given, under the name ``"cuda"``."""
    monkeypatch.setattr(opened, "device", lambda name: device)
    return device


def store_on(cuda: str, spec: str = "rle", layout: Layout = FRAMES, n_slots: int = 100, **options) -> TensorStore:
    return TensorStore(codec(spec, layout), n_slots, device=cuda, **options)


def few_values(layout: Layout, n: int, seed: int = 0) -> np.ndarray:
    """Tensors with long runs of equal bytes, and others without."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.integers(3, size=(n, layout.nbytes // 16 + 1)), 16, axis=1)[:, : layout.nbytes]
    rows[::3] = rng.integers(256, size=rows[::3].shape)
    tensors = layout.tensors(rows.astype(np.uint8).copy())
    return tensors if layout.dtype != bool else layout.tensors((rows % 2).astype(np.uint8))


def on(cuda: str):
    return opened.device(cuda)


def read_there(store: TensorStore, ids) -> np.ndarray:
    """What the store decodes into an array of the device."""
    there = on(store.device)
    out = there.empty((len(ids), *store.layout.shape), store.layout.dtype)
    assert store.read(ids, out=out) is out
    return there.download(out)


@HEAPS
@SPECS
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("born", [False, True], ids=["cpu", "gpu"])
def test_it_holds_what_a_store_on_the_cpu_holds(cuda, heap, spec, layout, born):
    mine, plain = store_on(cuda, spec, layout, heap=heap), TensorStore(codec(spec, layout), 100)
    written = few_values(layout, 40)
    given = on(cuda).upload(written) if born else written
    np.testing.assert_array_equal(mine.append(given), plain.append(written))
    mine.release(np.arange(1, 40, 3))
    plain.release(np.arange(1, 40, 3))
    mine.write([50, 4], given[:2])
    plain.write([50, 4], written[:2])
    ids = [3, 0, 50, 4, 3, 39, 0]
    expected = plain.read(ids)
    assert read_there(mine, ids).tobytes() == expected.tobytes()
    assert mine.read(ids).tobytes() == expected.tobytes()
    assert mine.stats() == plain.stats()
    streams, same = (store._heap.get(np.array([50, 4, 39])) for store in (mine, plain))
    assert [stream.tobytes() for stream in streams] == [stream.tobytes() for stream in same]


@SPECS
def test_games(cuda, spec):
    store = store_on(cuda, spec)
    written = frames("MsPacman", 40, seed=0)
    ids = store.append(written)
    which = np.random.default_rng(0).integers(40, size=100)
    np.testing.assert_array_equal(read_there(store, ids[which]), written[which])


def test_reference_frames_are_used_on_the_device(cuda):
    played = frames("MsPacman", 80, seed=0).reshape(20, 4, 84, 84)
    fitted = codec("delta-rle", Layout((4, 84, 84), np.uint8)).fit(played)
    assert fitted.dictionary
    store, plain = TensorStore(fitted, 50, device=cuda), TensorStore(fitted, 50)
    store.append(on(cuda).upload(played))
    plain.append(played)
    assert store.stats() == plain.stats()
    np.testing.assert_array_equal(read_there(store, np.arange(1, 21)), played)


@SPECS
def test_one_launch_and_one_copy_read_a_batch(cuda, spec):
    there = on(cuda)
    if not isinstance(there, SimulatedDevice):
        pytest.skip("launches are counted on the simulated device")
    store = store_on(cuda, spec)
    store.append(frames("Pong", 20, seed=0))
    out = there.empty((30, 84, 84), np.uint8)
    before = there.n_launches
    store.read_into(np.arange(30) % 21, out)
    assert there.n_launches == before + 1


@pytest.mark.parametrize("spec", ["zstd:1", "lz4", "shuffle|rle", "delta-rle|zstd:3"])
def test_what_the_device_does_not_decode_is_uploaded(cuda, spec):
    text = (
        rf"^tensors of the codec '.*' are decoded on the CPU and copied to '{cuda}', "
        r"which decodes 'rle', 'delta-rle' and 'raw'$"
    )
    with pytest.warns(UserWarning, match=text) as caught:
        store = store_on(cuda, spec)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    written = frames("Pong", 20, seed=0)
    ids = store.append(written)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(read_there(store, ids), written)
        np.testing.assert_array_equal(store.read(ids), written)
        rebuilt = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(read_there(rebuilt, ids), written)
    ids = store.append(on(cuda).upload(written[::-1].copy()))
    np.testing.assert_array_equal(read_there(store, ids), written[::-1])


@HEAPS
@SPECS
@pytest.mark.parametrize("rebuild", [lambda store: pickle.loads(pickle.dumps(store)), copy.deepcopy])
def test_a_rebuilt_store_is_on_the_same_device(cuda, heap, spec, rebuild):
    store = store_on(cuda, spec, heap=heap)
    written = frames("Pong", 20, seed=0)
    ids = store.append(written)
    rebuilt = rebuild(store)
    store.release(ids)
    assert rebuilt.device == cuda
    assert type(rebuilt._heap.memory) is type(store._heap.memory)
    np.testing.assert_array_equal(read_there(rebuilt, ids), written)
    np.testing.assert_array_equal(rebuilt.append(written[:2]), [21, 22])


@SPECS
def test_tensors_of_any_strides_are_encoded(cuda, spec):
    store = store_on(cuda, spec, Layout((20, 3, 30), np.int16))
    tensors = few_values(Layout((20, 6, 40), np.int16), 8)
    ids = store.append(on(cuda).upload(tensors)[1::2, :, ::2, 10:])
    np.testing.assert_array_equal(read_there(store, ids), tensors[1::2, :, ::2, 10:])


def test_an_array_that_is_appended_stays_on_the_device(cuda, monkeypatch):
    store, written = store_on(cuda), frames("Pong", 20, seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(store, "to_host", lambda x: pytest.fail("the tensors were downloaded"))
        ids = store.append(on(cuda).upload(written))
    np.testing.assert_array_equal(read_there(store, ids), written)


def test_streams_move_between_stores_of_any_device(cuda):
    mine, plain = store_on(cuda), TensorStore(codec("rle", FRAMES), 100)
    written = frames("Pong", 20, seed=0)
    ids = mine.transfer(plain, plain.append(written)[None])[0]
    np.testing.assert_array_equal(read_there(mine, ids), written)
    back = plain.transfer(mine, ids[None])[0]
    np.testing.assert_array_equal(plain.read(back), written)
    other = store_on(cuda, heap="pinned")
    np.testing.assert_array_equal(read_there(other, other.transfer(mine, ids[None])[0]), written)


@SPECS
def test_a_refused_call_changes_nothing(cuda, spec):
    store, there = store_on(cuda, spec, n_slots=3), on(cuda)
    store.append(np.ones((2, 84, 84), np.uint8))
    before = store.stats()
    few = there.upload(np.zeros((2, 84, 84), np.uint8))
    wrong_shape, wrong_dtype = there.empty((2, 83, 84), np.uint8), there.empty((2, 84, 84), np.int8)
    refused = [
        (lambda: store.read_into(np.array([1, 3]), few), SlotError, "^slot 3 holds nothing$"),
        (lambda: store.read_into(np.array([1, 4]), few), SlotError, r"^slots are in 0\.\.3, got 4$"),
        (lambda: store.read_into(np.array([1]), few), ShapeError, r"^out has shape \(1, 84, 84\), got \(2, 84, 84\)$"),
        (lambda: store.read_into(np.array([1, 1]), wrong_shape), ShapeError, "^out has shape"),
        (lambda: store.read_into(np.array([1, 1]), wrong_dtype), DTypeError, "^out has dtype uint8, got int8$"),
        (lambda: store.read_into(np.array([1]), few[::2, :, ::-1]), ShapeError, "^out has gaps"),
        (lambda: store.append(few), SlotError, "^2 tensors need 2 free slots, there are 1 of 3"),
        (lambda: store.append(wrong_shape), ShapeError, r"^items have shape \(n, 84, 84\), got \(2, 83, 84\)$"),
        (lambda: store.append(few.reshape((2 * 84 * 84,))), ShapeError, r"^items have shape .*, got \(14112,\)$"),
        (lambda: store.append(few[:1].reshape((1, 84 * 84))), ShapeError, r"^items have shape .*, got \(1, 7056\)$"),
        (lambda: store.replace(np.array([1]), there.upload(np.ones((), "u1"))), ShapeError, r"^items .*, got \(\)$"),
        (lambda: store.write([1, 2], wrong_shape), ShapeError, "^items have shape"),
        (lambda: store.write([1, 2], wrong_dtype), DTypeError, "^items have dtype uint8, got int8"),
        (lambda: store.write([1, 2, 3], few), ShapeError, "^3 slots take 3 tensors, got 2$"),
        (lambda: store.write([1, 4], few), SlotError, r"^slots are in 0\.\.3, got 4$"),
        (lambda: store.write([0, 1], few), SlotError, "^slot 0 is the zero tensor"),
    ]
    for call, error, text in refused:
        with pytest.raises(error, match=text):
            call()
    assert store.stats() == before
    np.testing.assert_array_equal(read_there(store, [1, 2]), np.ones((2, 84, 84), np.uint8))
    assert store.append(few[:1]).tolist() == [3]


@SPECS
@pytest.mark.parametrize("born", [False, True], ids=["cpu", "gpu"])
def test_a_full_device_keeps_what_it_has(spec, born, monkeypatch):
    noise = np.random.default_rng(0).integers(256, size=(50, 84, 84), dtype=np.uint8)
    plain = TensorStore(codec(spec, FRAMES), 100)
    plain.append(noise)
    capacity = int(1.9 * plain.stats().reserved_bytes) + noise.nbytes * born
    there = SimulatedDevice(seed=1, eager=True, capacity=capacity)
    monkeypatch.setattr(opened, "device", lambda name: there)
    store = store_on("cuda", spec)
    ids = store.append(noise)
    given = there.upload(noise) if born else noise
    for _ in range(3):
        with pytest.raises(HeapFull, match=r"cuda:0 has [\d,]+ bytes free"):
            store.append(given)
    assert store.stats().n_tensors == 50
    np.testing.assert_array_equal(store.read(ids), noise)
    del given
    np.testing.assert_array_equal(read_there(store, ids[:20]), noise[:20])
    there.free += 10_000_000
    assert store.append(noise).tolist() == list(range(51, 101))


@HEAPS
@SPECS
def test_streams_of_work_are_put_in_order(late, heap, spec):
    """Written, read and overwritten on three streams, of which none is waited for until the end."""
    store = store_on("cuda", spec, heap=heap, n_slots=40)
    rng, streams = np.random.default_rng(0), on_new_streams(late, 3)
    model, reads = {}, []
    for step in range(60):
        with streams[rng.integers(3)]():
            slots = rng.permutation(np.arange(1, 41))[: rng.integers(1, 10)]
            if rng.integers(2) or not model:
                tensors = few_values(FRAMES, len(slots), step)
                store.write(slots, late.upload(tensors) if rng.integers(2) else tensors)
                model.update(zip(slots.tolist(), tensors, strict=True))
            else:
                ids = rng.choice([0, *model], size=12)
                out = late.empty((12, 84, 84), np.uint8)
                store.read_into(ids, out)
                expected = [model.get(int(i), np.zeros((84, 84), np.uint8)) for i in ids]
                reads.append((out, np.stack(expected), late.mark()))
    for out, expected, mark in reads:
        mark.wait()
        np.testing.assert_array_equal(late.download(out), expected)


@pytest.mark.parametrize("spec", ["rle", "delta-rle"])
def test_a_damaged_stream_is_named_at_the_next_call(cuda, spec):
    store, there = store_on(cuda, spec), on(cuda)
    good, bad = store.append(frames("Pong", 2, seed=0))
    stream = store._heap.get([bad])[0].copy()
    store._heap.put([bad], Segments.of([stream[:-1].tobytes()]))
    on_cpu = TensorStore(store.codec, 2)
    on_cpu._heap.put([1], Segments.of([stream[:-1].tobytes()]))
    with pytest.raises(CorruptStream) as expected:
        on_cpu.read([1])
    out = there.empty((2, 84, 84), np.uint8)
    store.read_into(np.array([good, bad]), out)
    there.synchronize()
    with pytest.raises(CorruptStream) as found:
        store.read_into(np.array([good, good]), out)
    assert str(found.value) == str(expected.value)
    store.read_into(np.array([good, good]), out)
    np.testing.assert_array_equal(there.download(out), frames("Pong", 2, seed=0)[[0, 0]])


def test_a_raw_tensor_of_another_size_is_refused(cuda):
    store = store_on(cuda, "raw")
    (i,) = store.append(frames("Pong", 1, seed=0))
    store._heap.put([i], Segments.of([b"short"]))
    text = r"^raw stream of uint8\[84, 84\] can't be decoded: it has 5 bytes, expected 7056$"
    with pytest.raises(CorruptStream, match=text):
        read_there(store, [i])


@SPECS
def test_nothing_moves_before_a_reading_is_queued(cuda, spec, monkeypatch):
    store, there = store_on(cuda, spec), on(cuda)
    ids = store.append(np.ones((2, 84, 84), np.uint8))
    decode, held = store._coder.decode, []

    def decode_while_others_free(places, out):
        other = threading.Thread(target=lambda: held.append(not store._heap.lock.acquire(blocking=False)))
        other.start()
        other.join()
        decode(places, out)

    monkeypatch.setattr(store._coder, "decode", decode_while_others_free)
    store.read_into(ids, there.empty((2, 84, 84), np.uint8))
    assert held == [True]


@HEAPS
def test_threads_read_while_one_writes(cuda, heap):
    there = on(cuda)
    store = store_on(cuda, heap=heap)
    flat = np.broadcast_to(np.arange(1, 101, dtype=np.uint8)[:, None, None], (100, 84, 84)).copy()
    store.write(np.arange(1, 101), flat)
    stop, torn, errors = threading.Event(), [], []

    def read(seed):
        rng = np.random.default_rng(seed)
        try:
            while not stop.is_set():
                tensors = read_there(store, rng.integers(1, 101, size=10))
                torn.extend(tensor for tensor in tensors if (tensor != tensor[0, 0]).any())
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    rng = np.random.default_rng(2)
    for step in range(30):
        tensors = np.broadcast_to(rng.integers(1, 256, size=20, dtype=np.uint8)[:, None, None], (20, 84, 84)).copy()
        store.write(rng.integers(1, 101, size=20), there.upload(tensors) if step % 2 else tensors)
    stop.set()
    for reader in readers:
        reader.join()
    assert not errors
    assert not torn


def test_places_that_are_none_are_refused(cuda):
    with pytest.raises(SpecError, match=r"^heap is 'device' or 'pinned', got 'host'$"):
        store_on(cuda, heap="host")
    with pytest.raises(SpecError, match=r"^heap='pinned' is for a GPU"):
        TensorStore(codec("rle", FRAMES), 10, heap="pinned")
