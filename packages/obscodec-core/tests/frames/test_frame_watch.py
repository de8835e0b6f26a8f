"""What a FrameStore says has changed is all that a copy of its tables elsewhere needs to read the same frames."""

from __future__ import annotations

import ctypes
import pickle
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec import FrameStack, FrameStore, HeapFull, Layout, StackStore
from obscodec.devices import FrameReader
from obscodec.frames.device_frames import DeviceFrames

FRAME = Layout((1, 4, 5), np.uint8)
N_STREAMS = 3


class CopiedTables(FrameReader):
    """Keeps what a device would: streams by number, read from their addresses."""

    def __init__(self):
        self.streams, self.previous, self.listed = {}, {}, {}
        self.references = [bytes(FRAME.nbytes)]
        self.n_blocks = self.n_updates = 0
        self.fails = False

    def on_stream_of(self, out):
        return nullcontext()

    def takes(self, stack):
        return True

    def read(self, ids, out, stack=None):
        raise AssertionError

    def wait(self):
        pass

    def update(self, changes, listed=None, *, hold=False):
        if self.fails:
            raise HeapFull("no memory")
        assert changes.n_blocks >= self.n_blocks
        assert (np.diff(changes.blocks) > 0).all()
        self.n_blocks, self.n_updates = changes.n_blocks, self.n_updates + 1
        places = zip(changes.addresses.tolist(), changes.lengths.tolist(), strict=True)
        for number, (address, nbytes), before in zip(changes.blocks.tolist(), places, changes.previous, strict=True):
            self.streams[number] = ctypes.string_at(address, nbytes) if nbytes else b""
            self.previous[number] = before.copy()
        for at, content in zip(changes.opened.tolist(), changes.contents, strict=True):
            assert changes.addresses[at] == 0
            self.streams[int(changes.blocks[at])] = bytes(content)
        del self.references[changes.first_reference :]
        self.references += [bytes(frame) for frame in changes.references]
        if listed is not None:
            self.listed |= dict(zip(listed.rows.tolist(), listed.frames.tolist(), strict=True))
            assert max(self.listed, default=-1) < listed.n_rows


class TablesAreCopied(RuleBasedStateMachine):
    @initialize(codec=st.sampled_from([("delta-rle", 4), ("raw", 3), ("delta-rle", 1)]))
    def make(self, codec):
        spec, block_frames = codec
        frames = FrameStore(FRAME, codec=spec, block_frames=block_frames, stack=3, recent=3)
        self.store = StackStore(frames, Layout((3, 4, 5), np.uint8), FrameStack(3))
        self.counts: Counter[int] = Counter()
        self.begin()

    def begin(self):
        self.tables = CopiedTables()
        self.on_device = DeviceFrames(self.store.frames.log, self.tables)

    def stacks(self, seed, n):
        rng = np.random.default_rng(seed)
        steps = np.cumsum(rng.integers(2, size=(n + 3, *FRAME.shape[1:])), axis=0).astype(np.uint8)
        which = np.arange(n)[:, None] + np.arange(3)
        which[rng.random(n) < 0.3] = rng.integers(n + 3, size=3)
        return steps[which]

    @rule(seed=st.integers(0, 1000), n=st.integers(0, 30), part=st.sampled_from([0, 0, 0.3, 1]))
    def replace(self, seed, n, part):
        rng = np.random.default_rng(seed)
        old = np.unique(
            rng.permutation(np.array([*self.counts.elements()], np.int64))[: int(part * self.counts.total())]
        )
        ids = self.store.replace(old, self.stacks(seed, n), rng.integers(N_STREAMS))
        self.counts.subtract(old.tolist())
        self.counts = +self.counts
        self.counts.update(ids[ids != 0].tolist())

    @rule(seed=st.integers(0, 1000))
    def transfer(self, seed):
        other = pickle.loads(pickle.dumps(self.store))
        ids = np.random.default_rng(seed).choice([0, *self.counts], size=20).astype(np.int64)
        adopted = self.store.transfer(other, ids[None])[0]
        self.counts.update(adopted[adopted != 0].tolist())

    @rule()
    def compact(self):
        self.store.frames.log.heap.compact()

    @rule(how=st.sampled_from(["pickled", "another reader"]))
    def rebuild(self, how):
        if how == "pickled":
            self.store = pickle.loads(pickle.dumps(self.store))
        self.begin()

    @rule(hold=st.booleans())
    def look(self, hold):
        with self.store.frames.log.lock:
            self.on_device._update(self.store.listed, hold=hold)
        self.is_the_same()

    @rule()
    def look_without_memory(self):
        self.tables.fails = True
        with pytest.raises(HeapFull):
            self.on_device.update(self.store.listed)
        self.tables.fails = False

    def is_the_same(self):
        blocks = self.store.frames.log
        numbers = np.arange(1, blocks.n)
        live = blocks.tables.live[numbers] > 0
        streams = blocks._snapshot(numbers[live])
        for number, stream in zip(numbers[live].tolist(), streams, strict=True):
            assert self.tables.streams[number] == bytes(stream)
            counts = blocks.tables.counts.reshape(-1, blocks.block_frames)[number]
            before = blocks.tables.previous.reshape(-1, blocks.block_frames)[number]
            np.testing.assert_array_equal(self.tables.previous[number][counts > 0], before[counts > 0])
        for number in numbers[~live].tolist():
            assert number in blocks.open.blocks or not self.tables.streams.get(number)
        assert self.tables.references == [bytes(frame) for frame in blocks.open.references[: blocks.open.n_references]]
        for row, frames in enumerate(self.store.listed.frames.tolist()):
            assert self.tables.listed[row][: 1 if frames[0] < 0 else None] == frames[: 1 if frames[0] < 0 else None]

    @invariant()
    def every_look_is_short(self):
        if hasattr(self, "store") and self.tables.n_updates:
            self.look(hold=False)
            n_updates = self.tables.n_updates
            self.look(hold=False)
            assert self.tables.n_updates == n_updates  # the second one saw that nothing has changed
            changes = self.store.frames.log.watch.look(self.store.frames.log.tables)
            assert len(changes.blocks) == len(changes.references) == 0


TestTablesAreCopied = TablesAreCopied.TestCase
TestTablesAreCopied.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_block_whose_number_comes_again_is_seen_as_another_one():
    store, tables = FrameStore(FRAME, block_frames=2, recent=1), CopiedTables()
    on_device = DeviceFrames(store.log, tables)
    frames = np.random.default_rng(0).integers(256, size=(5, *FRAME.shape), dtype=np.uint8)
    first = last = store.append(frames[:1])
    on_device.update()
    before = tables.streams[1]
    for frame in frames[1:]:
        store.release(last)
        last = store.append(frame[None])
    assert last == first
    on_device.update()
    assert tables.streams[1] == bytes(store.log._snapshot(np.array([1]))[0]) != before


def test_a_look_in_the_midst_of_an_adoption_is_followed_by_another_one(monkeypatch):
    stack, layout = FrameStack(3), Layout((3, 4, 5), np.uint8)
    source, target = (StackStore(FrameStore(FRAME, stack=3), layout, stack) for _ in range(2))
    frames = np.random.default_rng(0).integers(256, size=(40, 4, 5), dtype=np.uint8)
    ids = source.append(frames[np.arange(38)[:, None] + np.arange(3)])
    tables = CopiedTables()
    on_device = DeviceFrames(target.frames.log, tables)
    set_previous = target.frames.log.set_previous
    monkeypatch.setattr(target.frames.log, "set_previous", lambda *of: (on_device.update(), set_previous(*of)))
    target.transfer(source, ids[None])
    on_device.update()
    previous = target.frames.log.tables.previous.reshape(-1, 16)
    assert tables.n_updates == 2
    assert previous.any()
    assert all((tables.previous[number] == previous[number]).all() for number in tables.previous)


def test_two_readers_of_the_same_blocks_take_turns():
    """As those of a store and of its shallow copy do."""
    store = FrameStore(FRAME, block_frames=2)
    frames = np.random.default_rng(0).integers(256, size=(12, *FRAME.shape), dtype=np.uint8)
    readers = [DeviceFrames(store.log, CopiedTables()) for _ in range(2)]
    for turn, frame in enumerate(frames):
        store.append(frame[None])
        if turn % 3:
            readers[turn % 2].update()
    for on_device in readers:
        on_device.update()
        numbers = np.arange(1, store.log.n)
        streams = [bytes(stream) for stream in store.log._snapshot(numbers)]
        assert [on_device.reader.streams[number] for number in numbers] == streams
