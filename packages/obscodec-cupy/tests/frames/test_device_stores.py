"""Stores with ``device=``: what is decoded where, what grows, what is refused, and what happens to what is damaged."""

import pickle
import re
from functools import partial

import numpy as np
import pytest
from atari_frames import frames
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from forked import exit_status, forked
from obscodec import (
    AutoStore,
    BackendUnavailable,
    CorruptStream,
    DTypeError,
    Field,
    FrameStack,
    FrameStore,
    HeapFull,
    Layout,
    ShapeError,
    SlotError,
    SpecError,
    TensorArray,
)
from obscodec.arrays import DeferredRead
from obscodec.segments import Segments
from obscodec_cupy.device import opened
from obscodec_cupy.device.writes import Writes
from stores_in_pairs import read
from together import meanwhile

FRAME = Layout((84, 84), np.uint8)
SMALL = Layout((6, 5), np.uint8)


def noise(n: int, layout: Layout = SMALL) -> np.ndarray:
    return np.random.default_rng(n).integers(256, size=(n, *layout.shape), dtype=np.uint8)


def small_steps(n: int, layout: Layout = SMALL) -> np.ndarray:
    walk = np.zeros((n, layout.nbytes), np.uint8)
    walk[np.arange(1, n), np.arange(1, n) % layout.nbytes] = 1
    return np.cumsum(walk, axis=0, dtype=np.uint8).reshape(n, *layout.shape)


@pytest.mark.parametrize("heap", ["device", "pinned"])
@pytest.mark.parametrize(
    ("codec", "block_frames"), [("delta-rle", 16), ("raw", 16), ("rle", 1), ("delta-rle|lz4:9", 4)]
)
def test_frames_of_a_game_are_read_while_their_blocks_fill(cuda, codec, block_frames, heap):
    played = frames("MsPacman", 320, 0)[:40]
    form = {"codec": codec, "block_frames": block_frames}
    store, on_cpu = FrameStore(FRAME, **form, device=cuda, heap=heap), FrameStore(FRAME, **form)
    for first in range(0, 40, 7):
        ids = store.append(played[first : first + 7])
        np.testing.assert_array_equal(ids, on_cpu.append(played[first : first + 7]))
        np.testing.assert_array_equal(read(store, ids), played[first : first + 7])
        np.testing.assert_array_equal(store.read(ids), played[first : first + 7])


def test_nothing_changed_is_nothing_launched_but_the_read(cuda):
    device = opened.device(cuda)
    if not isinstance(device, SimulatedDevice):
        pytest.skip("launches are counted by the simulated GPU")
    store = FrameStore(SMALL, device=cuda)
    ids = store.append(small_steps(40))
    read(store, ids)
    before = device.n_launches
    read(store, ids)
    assert device.n_launches == before + 1
    store.append(noise(1))
    read(store, ids)
    assert device.n_launches == before + 3  # one that writes all that is new


def test_a_batch_of_all_kinds_of_stacks(cuda):
    stack, layout = FrameStack(4), Layout((4, 84, 84), np.uint8)
    played = frames("Pong", 320, 0)
    windows = np.arange(100)[:, None] + np.arange(4)
    windows[30] = [7, 7, 7, 7]
    windows[31] = [50, 3, 90, 4]
    windows[60:63] = [[70, 70, 70, 70], [70, 70, 70, 71], [70, 70, 71, 72]]  # an episode begins
    store = FrameStore(layout, frame_stack=stack, device=cuda)
    ids = store.append(played[windows])
    assert (ids < 0).any()
    np.testing.assert_array_equal(read(store, ids), played[windows])
    restored = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(read(restored, ids), played[windows])
    store.release(ids[:50])
    again = store.append(played[windows[:50, ::-1]])
    np.testing.assert_array_equal(read(store, again), played[windows[:50, ::-1]])
    with pytest.raises(SlotError, match=r"^id 999999 is of no stack in this store$"):
        read(store, [999_999])


def test_a_stack_that_is_too_deep_for_the_device_is_put_together_on_the_cpu(cuda):
    with pytest.warns(
        UserWarning, match=r"^tensors of FrameStack\(depth=20, axis=0\) are assembled on the CPU and copied to 'cuda'$"
    ):
        store = FrameStore(Layout((20, 5), np.uint8), frame_stack=20, device=cuda)
    tensors = np.random.default_rng(0).integers(256, size=(9, 20, 5), dtype=np.uint8)
    np.testing.assert_array_equal(read(store, store.append(tensors)), tensors)


def test_an_auto_store_is_read_before_it_decides_and_after(cuda):
    played = frames("Breakout", 320, 0)
    tensors = played[np.arange(300)[:, None] + np.arange(4)]
    store = AutoStore(Layout((4, 84, 84), np.uint8), device=cuda)
    early = store.append(tensors[:100])
    np.testing.assert_array_equal(read(store, early[::-1]), tensors[99::-1])
    late = store.append(tensors[100:])
    assert store.choice is not None
    assert {(trial.spec, trial.block_frames) for trial in store.choice.trials} == {("raw", 1), ("delta-rle", 8)}
    assert AutoStore(store.layout, codec="delta-rle", device=cuda).stats().block_frames == 8
    np.testing.assert_array_equal(read(store, np.concatenate([late, early, [0]]))[:-1], np.roll(tensors, -100, axis=0))
    restored = pickle.loads(pickle.dumps(store))
    assert restored.device == cuda
    np.testing.assert_array_equal(read(restored, early), tensors[:100])


def test_a_pickled_store_that_has_not_decided(cuda):
    store = AutoStore(SMALL, device=cuda)
    ids = store.append(noise(7))
    np.testing.assert_array_equal(read(pickle.loads(pickle.dumps(store)), ids), noise(7))


@pytest.mark.parametrize("depth", [None, 3])
def test_frames_of_rle_are_decoded_on_the_device(cuda, depth):
    masks = np.zeros((330, *SMALL.shape), np.uint8)
    for i, mask in enumerate(masks):
        mask[i % 6 :, : i % 5 + 1] = i % 7
    tensors = masks if depth is None else masks[np.arange(300)[:, None] + np.arange(depth)]
    stack = None if depth is None else FrameStack(depth)
    store = AutoStore(Layout.of(tensors[0]), codec="rle", frame_stack=stack, device=cuda)
    ids = store.append(tensors)
    store.device_reader(ids)  # which is refused by a store that decodes on the CPU
    np.testing.assert_array_equal(read(store, ids[::-1]), tensors[::-1])
    np.testing.assert_array_equal(store.read(ids), tensors)
    with pytest.warns(UserWarning, match=r"^frames of the codec 'rle' are decoded on the CPU and copied to 'cuda'"):
        FrameStore(SMALL, codec="rle", block_frames=4, device=cuda)
    decodes = r"'delta-rle', 'delta-rle\|lz4' and 'raw'"
    with pytest.warns(UserWarning, match=rf"^tensors of the codec 'rle' .* which only decodes {decodes}$"):
        store = AutoStore(SMALL, codec="rle", block_frames=4, decide_after=8, device=cuda)
    np.testing.assert_array_equal(read(store, store.append(masks)), masks)


@pytest.mark.parametrize("spec", ["zstd:3", "lz4", "delta-rle|zstd:3"])
def test_what_the_device_does_not_decode_is_decoded_on_the_cpu_with_one_warning(cuda, spec):
    text = (
        rf"^tensors of the codec '{re.escape(spec)}' are decoded on the CPU and copied to 'cuda', which only decodes "
    )
    with pytest.warns(UserWarning, match=text) as caught:
        store = AutoStore(SMALL, codec=spec, device=cuda)
    assert len(caught) == 1
    tensors = np.concatenate([small_steps(200), noise(150)])
    ids = store.append(tensors)
    np.testing.assert_array_equal(read(store, ids), tensors)
    np.testing.assert_array_equal(read(pickle.loads(pickle.dumps(store)), ids), tensors)
    with pytest.warns(UserWarning, match=rf"^frames of the codec '{re.escape(spec)}' are decoded on the CPU"):
        store = FrameStore(SMALL, codec=spec, device=cuda)
    np.testing.assert_array_equal(read(store, store.append(tensors)), tensors)


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_numbers_that_could_be_narrower_stay_as_they_are_on_a_device_that_decodes_them(cuda, dtype):
    tensors = (noise(300) / 255 if dtype == np.float32 else noise(300)).astype(dtype)
    store = AutoStore(Layout(SMALL.shape, dtype), device=cuda)
    text = rf"^{store.layout.dtype} that could be uint8 is stored as it is, since 'cuda' decodes it so: store uint8"
    ids = store.append(tensors[:200])
    with pytest.warns(UserWarning, match=text):
        store.decide()
    ids = np.append(ids, store.append(tensors[200:]))
    assert store.has_device_reader
    assert read(store, ids).tobytes() == tensors.tobytes()


def test_a_reading_of_fields_decodes_on_their_device(cuda):
    store = Field(FRAME.shape, np.uint8, "delta-rle", device=cuda).new_store()
    played = frames("Pong", 320, 0)
    array = TensorArray.zeros((300,), store)
    array[:] = played[:300]
    device = opened.device(cuda)
    deferred = DeferredRead(lambda: array[[3, 200]])
    deferred.start()
    np.testing.assert_array_equal(device.download(deferred.result()), played[[3, 200]])


@pytest.mark.parametrize("heap", ["device", "pinned"])
def test_a_full_heap_refuses_and_loses_nothing(cuda, heap):
    store = FrameStore(FRAME, block_frames=4, max_bytes=1 << 17, device=cuda, heap=heap)
    ids = store.append(noise(10, FRAME))
    with pytest.raises(HeapFull):
        store.append(noise(60, FRAME))
    np.testing.assert_array_equal(read(store, ids), noise(10, FRAME))
    store.release(ids[:6])
    again = store.append(noise(5, FRAME))
    np.testing.assert_array_equal(read(store, np.append(ids[6:], again)), [*noise(10, FRAME)[6:], *noise(5, FRAME)])


def test_a_device_without_memory_refuses_and_loses_nothing(simulated):
    device = simulated(seed=3, capacity=600_000)
    store = FrameStore(SMALL, device="cuda")
    tensors = small_steps(300)
    ids = store.append(tensors)
    np.testing.assert_array_equal(read(store, ids), tensors)
    rest = device.empty((device.free - 1000,), np.uint8)
    more = store.append(noise(30))  # its references and open blocks have no room there
    with pytest.raises(HeapFull):
        read(store, more)
    del rest
    np.testing.assert_array_equal(read(store, np.append(ids, more)), np.concatenate([tensors, noise(30)]))


def test_a_damaged_block_is_complained_of_at_the_next_call(cuda):
    store = FrameStore(SMALL, block_frames=4, device=cuda)
    tensors = small_steps(40)
    ids = store.append(tensors)
    block = int(ids[9]) // 4
    store.stats()  # which stores full blocks
    stream = store.log.heap.get([block])[0].copy()
    stream[3:6] = 0xFF
    store.log.heap.put([block], Segments.of([stream]))
    np.testing.assert_array_equal(read(store, ids[20:]), tensors[20:])
    read(store, ids[9:10])
    with pytest.raises(
        CorruptStream,
        match=rf"^an earlier read found damage, its tensors are of no use: block {block} can't be decoded",
    ):
        read(store, ids[20:])
    np.testing.assert_array_equal(read(store, ids[20:]), tensors[20:])


def test_arrays_that_can_not_be_read_into(cuda):
    store = FrameStore(SMALL, device=cuda)
    device = opened.device(cuda)
    ids = store.append(noise(4))
    with pytest.raises(SlotError, match=r"^id 77 is of no frame in this store$"):
        read(store, [77])
    with pytest.raises(ShapeError, match=r"^out has shape \(4, 6, 5\), got \(3, 6, 5\)$"):
        store.read_into(ids, device.empty((3, *SMALL.shape), np.uint8))
    with pytest.raises(DTypeError, match=r"^out has dtype uint8, got int8$"):
        store.read_into(ids, device.empty((4, *SMALL.shape), np.int8))
    with pytest.raises(ShapeError, match=r"^out has gaps"):
        store.read_into(ids, device.empty((8, *SMALL.shape), np.uint8)[::2])
    with pytest.raises(DTypeError):
        store.read_into(ids, [1, 2, 3, 4])
    with pytest.raises(DTypeError, match=r"^out is a numpy array, for a store on the CPU, got"):
        FrameStore(SMALL).read_into(np.zeros(4, np.int64), device.empty((4, *SMALL.shape), np.uint8))


@pytest.mark.parametrize("make", [
    lambda **where: FrameStore(SMALL, **where), lambda **where: AutoStore(SMALL, **where),
])  # fmt: skip
def test_places_that_do_not_exist(make):
    with pytest.raises(SpecError, match=r"^heap is 'device' or 'pinned', got 'vram'$"):
        make(device="cuda", heap="vram")
    with pytest.raises(SpecError, match=r"^heap='pinned' is for a GPU"):
        make(heap="pinned")
    with pytest.raises(SpecError, match=r"^no device is named 'tpu', there are cpu, cuda"):
        make(device="tpu")


def test_a_store_that_goes_while_streams_read_it(simulated):
    device, outs = simulated(seed=5), []
    for heap in ("device", "pinned"):
        for work in on_new_streams(device, 3):
            store = FrameStore(SMALL, device="cuda", heap=heap)
            ids = store.append(small_steps(40))
            with work():
                outs.append([device.empty((40, *SMALL.shape), np.uint8)])
                store.read_into(ids, outs[-1][0])
                outs[-1][1:] = [device.mark()]
            del store
    for out, mark in outs:
        mark.synchronize()
        np.testing.assert_array_equal(device.download(out), small_steps(40))


@pytest.mark.needs("fork")
def test_a_forked_process_is_told_that_it_can_not_read(cuda):
    store = FrameStore(SMALL, device=cuda)
    device = opened.device(cuda)
    ids, out = store.append(noise(4)), device.empty((4, *SMALL.shape), np.uint8)

    def read_in_vain() -> None:
        with pytest.raises(BackendUnavailable) as caught:
            store.read_into(ids, out)
        assert str(caught.value).startswith("a forked process can't use cuda:0 as the process before it does")

    assert exit_status(forked(read_in_vain)) == 0


def test_threads_read_while_another_one_appends(simulated):
    device = simulated(seed=7)
    store = FrameStore(SMALL, block_frames=4, device="cuda")
    tensors = small_steps(400)
    kept = store.append(tensors[:50])

    def work(on_stream, rng) -> None:
        with on_stream():
            which = rng.integers(50, size=8)
            np.testing.assert_array_equal(read(store, kept[which]), tensors[which])

    with meanwhile(*(partial(work, on, np.random.default_rng(k)) for k, on in enumerate(on_new_streams(device, 3)))):
        for first in range(50, 250, 5):
            ids = store.append(tensors[first : first + 5], 1)
            store.release(ids[1:])


def refuse(writes: Writes) -> None:
    raise HeapFull("the device is full")


def listing_store(cuda: str) -> tuple[FrameStore, np.ndarray]:
    """A store that was read on the device, and stacks of its frames that it has to list."""
    stack, layout, (a, b, c) = FrameStack(depth=2), Layout((2, *SMALL.shape), np.uint8), noise(3)
    store = FrameStore(layout, frame_stack=stack, device=cuda)
    in_order = np.stack([[a, b], [b, c]])
    np.testing.assert_array_equal(read(store, store.append(in_order)), in_order)
    return store, np.stack([[a, c], [c, b]])


def test_listed_stacks_come_again_if_the_device_was_full(cuda, monkeypatch):
    store, listed = listing_store(cuda)
    ids = store.append(listed)
    assert (ids < 0).all()
    with monkeypatch.context() as patch:
        patch.setattr(Writes, "launch", refuse)
        with pytest.raises(HeapFull):
            read(store, ids)
    np.testing.assert_array_equal(read(store, ids), listed)


def test_what_changes_while_nobody_reads_takes_no_more_and_more_memory(cuda):
    store, listed = listing_store(cuda)
    ids = store.append(listed)
    for _ in range(100):
        store.release(ids)
        ids = store.append(listed)
    assert len(store.log.stacks.frames) <= 2 * len(listed)
    np.testing.assert_array_equal(read(store, ids), listed)


@pytest.mark.parametrize("kind", ["frames", "undecided", "stacks"])
@pytest.mark.filterwarnings("ignore:.*are decoded on the CPU")
def test_what_the_cpu_decodes_is_not_copied_to_another_shape_or_dtype(cuda, kind):
    stack, layout = FrameStack(2), Layout((2, *SMALL.shape), np.uint8)
    store = {
        "frames": lambda: FrameStore(layout, codec="zstd:1", block_frames=1, device=cuda),
        "undecided": lambda: AutoStore(layout, device=cuda),
        "stacks": lambda: FrameStore(layout, frame_stack=stack, codec="zstd:1", block_frames=1, device=cuda),
    }[kind]()
    device, ids = opened.device(cuda), store.append(noise(5, layout))
    for n, dtype, step, error in [
        (4, np.uint8, 1, ShapeError), (6, np.uint8, 1, ShapeError), (5, np.int8, 1, DTypeError),
        (5, np.float32, 1, DTypeError), (10, np.uint8, 2, ShapeError),
    ]:  # fmt: skip
        before = np.full((n, *layout.shape), 7, dtype)
        out = device.upload(before)
        for read_to in (store.read, store.read_into):
            with pytest.raises(error, match=r"^out has "):
                read_to(ids, out[::step])
        np.testing.assert_array_equal(device.download(out), before)
    np.testing.assert_array_equal(read(store, ids), noise(5, layout))
