"""A store on the device equals one on the CPU: the same program gives the same ids, and every read the same tensors."""

import copy
import pickle
import tempfile
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
from cuda_on_cpu.device import SimulatedDevice
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec import FrameStack, FrameStore, HeapFull, Layout, SpecError
from obscodec.frames import frame_log
from obscodec_cupy.device import opened
from obscodec_cupy.device.writes import Writes
from stores_in_pairs import move_chunks

FRAME = Layout((1, 5, 7), np.uint8)
N_STREAMS = 3
CODECS = [("delta-rle", 16), ("delta-rle", 2), ("raw", 4), ("raw", 1), ("rle", 1)]
HEAPS = ["device", "pinned"]


def pool() -> np.ndarray:
    """Frames to draw from: zeros, a walk with small steps, and noise, of which some become references."""
    rng = np.random.default_rng(0)
    walk = np.zeros((60, *FRAME.shape), np.uint8)
    for i in range(1, 60):
        walk[i] = walk[i - 1]
        walk[i].reshape(-1)[rng.integers(35, size=3)] += 1
    return np.concatenate([walk, rng.integers(256, size=(20, *FRAME.shape), dtype=np.uint8)])


def refuse(writes: Writes) -> None:
    raise HeapFull("the device is full")


class StoreOnDevice(RuleBasedStateMachine):
    """Two stores, one on the CPU; several streams read the other, and what they give is looked at later."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(frame_log, "MIN_BLOCKS", 2)
        self.pool, self.reads, self.counts = pool(), [], Counter()

    def begin(self, seed, codec, heap, layout=FRAME, stack=None):
        self.device = SimulatedDevice(seed=seed)
        self.patch.setattr(opened, "device", lambda name: self.device)
        self.streams = [None, *(self.device.streams.new() for _ in range(2))]
        spec, block_frames = codec
        options = {"codec": spec, "block_frames": block_frames, "frame_stack": stack, "recent": 4}
        self.store = FrameStore(layout, **options, device="cuda", heap=heap)
        self.on_cpu = FrameStore(layout, **options)

    def on(self, stream):
        return nullcontext() if stream is None else self.device.on_stream(stream)

    def tensors(self, seed, n):
        """Some in a row, others drawn."""
        rng = np.random.default_rng(seed)
        first = rng.integers(len(self.pool))
        drawn = rng.random(n) < 0.2
        return self.pool[np.where(drawn, rng.integers(len(self.pool), size=n), (first + np.arange(n)) % len(self.pool))]

    def know(self, ids, expected):
        assert ids.tolist() == expected.tolist()
        self.counts.update(ids[ids != 0].tolist())

    def some_references(self, seed, part):
        held = np.array([0, *self.counts.elements()], np.int64)
        return np.random.default_rng(seed).permutation(held)[: int(part * len(held))]

    @rule(seed=st.integers(0, 1000), n=st.integers(0, 40), which=st.integers(0, 2), mixed=st.booleans())
    def append(self, seed, n, which, mixed):
        tensors = self.tensors(seed, n)
        of_sequences = np.random.default_rng(seed).integers(N_STREAMS, size=n) if mixed else np.full(n, which)
        with self.on(self.streams[which]):
            ids = self.store.append(tensors, of_sequences)
        self.know(ids, self.on_cpu.append(tensors, of_sequences))

    @rule(seed=st.integers(0, 1000), part=st.sampled_from([0.1, 0.5, 1]), which=st.integers(0, 2))
    def release(self, seed, part, which):
        old = self.some_references(seed, part)
        if self.store.frame_stack:
            old = np.unique(old)  # a listed stack is one
        with self.on(self.streams[which]):
            self.store.release(old)
        self.on_cpu.release(old)
        self.counts.subtract(old.tolist())
        self.counts = +self.counts

    @rule(seed=st.integers(0, 1000), n=st.integers(0, 40), which=st.integers(0, 2))
    def read(self, seed, n, which):
        """Later: until then the store goes on."""
        ids = np.random.default_rng(seed).choice([0, *self.counts], size=n).astype(np.int64)
        with self.on(self.streams[which]):
            out = self.device.empty((n, *self.store.layout.shape), np.uint8)
            self.store.read_into(ids, out)
            self.reads.append((out, self.on_cpu.read(ids), self.device.mark()))

    @rule(which=st.integers(0, 2))
    def read_without_memory(self, which):
        """Nothing of what is new reaches the device; the next read sends it again."""
        out = self.device.empty((0, *self.store.layout.shape), np.uint8)
        with self.on(self.streams[which]), pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writes, "launch", refuse)
            with pytest.raises(HeapFull):
                self.store.read_into(np.zeros(0, np.int64), out)

    @rule(seed=st.integers(0, 1000), which=st.integers(0, 2))
    def read_on_the_cpu(self, seed, which):
        ids = np.random.default_rng(seed).choice([0, *self.counts], size=20)
        with self.on(self.streams[which]):
            np.testing.assert_array_equal(self.store.read(ids), self.on_cpu.read(ids))

    @rule(which=st.integers(0, 2))
    def move_chunks(self, which):
        with self.on(self.streams[which]):
            move_chunks(self.store.log.heap)

    @rule(nbytes=st.sampled_from([1, 1 << 30]))
    def spill(self, nbytes):
        if self.store.arguments()["heap"] == "pinned":
            with pytest.raises(SpecError, match=r"^a GPU reads this heap in pinned memory"):
                self.store.spill(tempfile.gettempdir(), nbytes)
        else:
            self.store.spill(tempfile.gettempdir(), nbytes)

    @rule(how=st.sampled_from([copy.deepcopy, copy.copy, lambda store: pickle.loads(pickle.dumps(store))]))
    def rebuild(self, how):
        self.store = how(self.store)

    @rule()
    def look(self):
        for out, expected, mark in self.reads:
            mark.synchronize()
            np.testing.assert_array_equal(self.device.download(out), expected)
        self.reads.clear()

    @invariant()
    def holds_the_same(self):
        if hasattr(self, "store"):
            mine, on_cpu = self.store.stats(), self.on_cpu.stats()
            assert (mine.n_tensors, mine.live_bytes) == (on_cpu.n_tensors, on_cpu.live_bytes)

    def teardown(self):
        if hasattr(self, "store"):
            self.look()
            self.store.reader.check()
        self.patch.undo()


class FramesOnDevice(StoreOnDevice):
    @initialize(seed=st.integers(0, 1000), codec=st.sampled_from(CODECS), heap=st.sampled_from(HEAPS))
    def make(self, seed, codec, heap):
        self.begin(seed, codec, heap)


class StacksOnDevice(StoreOnDevice):
    @initialize(
        seed=st.integers(0, 1000),
        codec=st.sampled_from(CODECS),
        heap=st.sampled_from(HEAPS),
        axis=st.sampled_from([0, -1]),
    )
    def make(self, seed, codec, heap, axis):
        self.stack = FrameStack(3, axis)
        self.begin(seed, codec, heap, Layout((3, 5, 7) if axis == 0 else (5, 7, 3), np.uint8), self.stack)

    def tensors(self, seed, n):
        """Windows of frames in a row; of some, a frame is there twice, or is any other."""
        rng = np.random.default_rng(seed)
        which = (rng.integers(len(self.pool)) + np.arange(n)[:, None] + np.arange(3)) % len(self.pool)
        again, other = rng.random(n) < 0.2, rng.random(n) < 0.2
        which[again, 1] = which[again, 2]
        which[other, rng.integers(3)] = rng.integers(len(self.pool))
        stacks = self.pool[which, 0]
        return stacks if self.stack.axis == 0 else np.ascontiguousarray(np.moveaxis(stacks, 1, -1))


SETTINGS = settings(max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
TestFramesOnDevice = FramesOnDevice.TestCase
TestFramesOnDevice.settings = SETTINGS
TestStacksOnDevice = StacksOnDevice.TestCase
TestStacksOnDevice.settings = SETTINGS


@pytest.mark.parametrize("heap", HEAPS)
def test_a_device_reads_its_copy_of_blocks_that_moved_to_files(cuda, heap, tmp_path):
    device = opened.device(cuda)
    frames = np.random.default_rng(0).integers(256, size=(400, 1, 40, 40), dtype=np.uint8)
    store = FrameStore(Layout((1, 40, 40), np.uint8), codec="raw", device=cuda, heap=heap)
    ids = np.concatenate([store.append(frames[i : i + 20]) for i in range(0, 300, 20)])
    out = device.empty((300, 1, 40, 40), np.uint8)
    store.read_into(ids, out)
    if heap == "pinned":
        with pytest.raises(SpecError, match=r"^a GPU reads this heap in pinned memory"):
            store.spill(str(tmp_path), 1 << 30)
        return
    assert store.spill(str(tmp_path), 1 << 30) > 0
    ids = np.concatenate([ids[100:], store.append(frames[300:])])
    for i in range(3):  # what the device does not need any more goes
        store.release(store.append(frames[i : i + 1]))
        store.read_into(ids, out)
        device.synchronize()
    device.synchronize()
    np.testing.assert_array_equal(device.download(out), frames[100:])
    copied = copy.deepcopy(store)  # its copy on the device begins with what lies in memory
    copied.spill(str(tmp_path), 1 << 30)
    copied.read_into(ids, out)
    device.synchronize()
    np.testing.assert_array_equal(device.download(out), frames[100:])
