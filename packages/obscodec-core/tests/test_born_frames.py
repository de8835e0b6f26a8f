"""Frames that are encoded on a device give the store that the CPU makes of them: ids, bytes, references, counts."""

from __future__ import annotations

import pickle
import re
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import (
    FrameBatch,
    FrameEncoder,
    FrameKind,
    FrameStore,
    HeapFull,
    Layout,
    Patches,
    SlotError,
    blocks,
    first_to_join,
)
from obscodec.born_frames import BornFrames
from obscodec.kernels.frame_streams import LITERALS, RECENT, RUNS
from obscodec.kernels.patch import encode_patch, runs_bound
from obscodec.kernels.references import nearest_reference

LAYOUTS = [Layout((84, 84), np.uint8), Layout((3, 5), np.float32), Layout((1,), np.uint8), Layout((9, 7), np.uint8)]
NOTHING = np.empty(0, np.int64)


class Elsewhere(FrameEncoder):
    """A FrameEncoder whose device is the CPU. It encodes frames one by one.

    Args:
        layout: of a frame.
        n_recent: slots of a stream.
        mark: gives the mark of the bytes of a frame that is not zeros.
    """

    def __init__(self, layout, n_recent, mark=zlib.crc32):
        self.layout, self.n_recent, self.mark = layout, n_recent, mark
        self.slots = np.empty((0, layout.nbytes), np.uint8)
        self.n_refused = 0

    def batch(self, tensors, layout, stack):
        return Batch(self, layout.rows(tensors))

    def reserve(self, n_streams):
        grown = np.full((n_streams * self.n_recent, self.layout.nbytes), 0xA5, np.uint8)
        grown[: len(self.slots)] = self.slots
        self.slots = grown

    def send(self, streams, recent):
        slots = (streams[:, None] * self.n_recent + np.arange(self.n_recent)).reshape(-1)
        self.slots[slots] = recent
        return Batch(self, recent).marks()


class Batch(FrameBatch):
    def __init__(self, encoder, rows):
        self.encoder, self._rows = encoder, rows

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __len__(self):
        return len(self._rows)

    def rows(self):
        return self._rows.copy()

    def marks(self):
        return np.array([row.any() and 1 + self.encoder.mark(row.tobytes()) for row in self._rows], np.int64)

    def keep(self, slots, frames):
        self.encoder.slots[slots] = self._rows[frames]

    def _source(self, number):
        return self._rows[number] if number >= 0 else self.encoder.slots[-1 - number]

    def encode(self, plan, references):
        parts, starts, end = [], np.zeros(len(plan.kinds), np.int64), 0
        lengths, nearest = np.zeros((2, len(plan.kinds)), np.int64), np.zeros(len(plan.kinds), np.int64)
        known, nbytes = len(references), references.shape[1]
        for k, (kind, source) in enumerate(zip(plan.kinds, plan.sources, strict=True)):
            row = self._rows[plan.begin + k]
            if kind == FrameKind.KNOWN and self._source(source).tobytes() != row.tobytes():
                self.encoder.n_refused += 1
                return None
            if kind == FrameKind.PATCH:
                runs, literals = _patch(self._source(source), row)
            elif kind == FrameKind.FIRST:
                nearest[k] = nearest_reference(row.ctypes.data, references, len(references))
                runs, literals = _patch(references[nearest[k]], row)
                if first_to_join(np.array([len(runs) + len(literals)]), nbytes, len(references)) == 0:
                    nearest[k] = len(references)
                    references = np.concatenate([references, row[None]])
                    runs, literals = _patch(row, row)
            else:
                continue
            starts[k], lengths[:, k] = end, (len(runs), len(literals))
            end += len(runs) + len(literals)
            parts += [runs, literals]
        buffer = np.concatenate(parts) if parts else np.empty(0, np.uint8)
        return Patches(plan.begin, buffer, starts, *lengths, nearest, known, references[known:])


def _patch(old, new):
    runs, literals = np.empty(runs_bound(len(new)), np.uint8), np.empty(len(new), np.uint8)
    addresses = (array.ctypes.data for array in (old, new))
    n_runs, n_literals = encode_patch(*addresses, len(new), runs.ctypes.data, literals.ctypes.data)
    return runs[:n_runs], literals[:n_literals]


def pool(layout, seed):
    """Rows to draw from: zeros, walks of small changes, noise that lies far from all of it, and more noise."""
    rng = np.random.default_rng(seed)
    changes = (rng.random((30, layout.nbytes)) < 0.02) * rng.integers(256, size=(30, layout.nbytes), dtype=np.uint8)
    noise = rng.integers(256, size=(40, layout.nbytes), dtype=np.uint8)
    return np.concatenate([np.zeros((1, layout.nbytes), np.uint8), np.bitwise_xor.accumulate(changes, 0), noise])


def store_pair(layout, mark=None, **options):
    """A store that is fed from the CPU, and one that can be fed from elsewhere."""
    one, other = FrameStore(layout, **options), FrameStore(layout, **options)
    inner = other._blocks
    encoder = Elsewhere(layout, inner.open.n_recent, **({} if mark is None else {"mark": mark}))
    inner.born = BornFrames(encoder, inner.open, inner.read_recent)
    return one, other, encoder


def feed(store, old, rows, streams, born):
    if born and len(rows):
        inner, layout = store._blocks, store.layout
        return inner.replace_born(old, inner.born.encoder.batch(layout.tensors(rows), layout, None), streams)
    return store.replace_rows(old, rows, streams)


def stored(inner):
    return inner.heap.get(np.flatnonzero(inner.heap.locate(np.arange(inner.n)).lengths))


def assert_same(one, other):
    a, b = one._blocks, other._blocks
    if b.born is not None:
        b.born.to_cpu()
    addresses = [RUNS, LITERALS, RECENT]
    np.testing.assert_array_equal(np.delete(a.open.rows, addresses, 1), np.delete(b.open.rows, addresses, 1))
    assert pickle.dumps(a.tables) == pickle.dumps(b.tables)
    np.testing.assert_array_equal(a.open.references, b.open.references)
    assert (a.n, a._unused, a.open.blocks) == (b.n, b._unused, b.open.blocks)
    for number in a.open.blocks:
        assert pickle.dumps(a.open.content(number)) == pickle.dumps(b.open.content(number))
    assert [block.tobytes() for block in stored(a)] == [block.tobytes() for block in stored(b)]
    for stream in range(len(a.open)):
        np.testing.assert_array_equal(a.open.recent(stream), b.open.recent(stream))


batches = st.lists(
    st.tuples(
        st.booleans(),  # born elsewhere
        st.integers(0, 1 << 16),  # seed
        st.sampled_from([1, 2, 7, 40]),  # frames
        st.sampled_from([1, 3, 8]),  # streams
        st.sampled_from(["walk", "mixed", "alphabet"]),
        st.sampled_from([0, 0.3, 1]),  # which part of the ids to release
    ),
    max_size=12,
)


@given(
    batches=batches,
    layout=st.sampled_from(LAYOUTS),
    block_frames=st.sampled_from([1, 3, 16]),
    stack=st.sampled_from([1, 4]),
    recent=st.sampled_from([None, 1, 7]),
    codec=st.sampled_from(["delta-rle", "delta-rle", "delta-rle|zstd:1"]),
    at_once=st.sampled_from([1, 5, 1000]),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_store_that_is_fed_from_the_cpu(batches, layout, block_frames, stack, recent, codec, at_once):
    options = {"block_frames": block_frames, "stack": stack, "recent": recent, "codec": codec}
    one, other, encoder = store_pair(layout, **options)
    frames, held = pool(layout, 0), NOTHING
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_ENCODED_NBYTES", at_once * layout.nbytes)
        for born, seed, n, n_streams, how, part in batches:
            rng = np.random.default_rng(seed)
            n, streams = n * stack, np.arange(n * stack) // stack % n_streams
            first = rng.integers(len(frames))
            which = {
                "walk": (first + np.arange(n) // max(1, n_streams)) % len(frames),
                "mixed": rng.integers(len(frames), size=n),
                "alphabet": rng.integers(4, size=n),
            }[how]
            old = rng.permutation(held)[: int(part * len(held))]
            ids = feed(one, old, frames[which], streams, born=False)
            np.testing.assert_array_equal(feed(other, old, frames[which], streams, born), ids)
            held = np.concatenate([rng.permutation(held), ids])
            held = np.sort(held)
            for released in old:
                held = np.delete(held, np.searchsorted(held, released))
    assert encoder.n_refused == 0
    assert one.stats() == other.stats()
    assert_same(one, other)
    assert_same(one, pickle.loads(pickle.dumps(other)))


def walk(n, seed=0, layout=LAYOUTS[0]):
    rng = np.random.default_rng(seed)
    changes = (rng.random((n, layout.nbytes)) < 0.01) * rng.integers(256, size=(n, layout.nbytes), dtype=np.uint8)
    return np.bitwise_xor.accumulate(changes, 0)


def test_a_batch_whose_marks_are_wrong_is_taken_in_by_the_cpu():
    one, other, encoder = store_pair(LAYOUTS[0], mark=lambda frame: 7)
    for frames in np.split(walk(60), 3):
        streams = np.arange(20) % 2
        np.testing.assert_array_equal(
            feed(other, NOTHING, frames, streams, True), feed(one, NOTHING, frames, streams, False)
        )
    assert encoder.n_refused == 3
    assert_same(one, other)


def test_marks_that_are_wrong_in_the_midst_of_a_batch(monkeypatch):
    monkeypatch.setattr(blocks, "_ENCODED_NBYTES", 10 * LAYOUTS[0].nbytes)
    frames = walk(40)
    seen = []
    one, other, encoder = store_pair(LAYOUTS[0], mark=lambda frame: seen.append(frame) or min(len(seen), 25))
    streams = np.zeros(40, np.int64)
    np.testing.assert_array_equal(
        feed(other, NOTHING, frames, streams, True), feed(one, NOTHING, frames, streams, False)
    )
    assert encoder.n_refused == 1
    assert_same(one, other)


@pytest.mark.parametrize("at_once", [3, 1000])
def test_a_full_store_changes_as_the_cpu_changes_it(monkeypatch, at_once):
    layout = LAYOUTS[0]
    monkeypatch.setattr(blocks, "_ENCODED_NBYTES", at_once * layout.nbytes)
    one, other, _ = store_pair(layout, max_bytes=1 << 18, block_frames=2)
    noise = np.random.default_rng(0).integers(256, size=(200, layout.nbytes), dtype=np.uint8)
    held = NOTHING
    for k in range(20):
        frames, streams = noise[10 * k : 10 * k + 10], np.arange(10) % 2
        try:
            ids = feed(one, NOTHING, frames, streams, False)
        except HeapFull as error:
            with pytest.raises(HeapFull, match=f"^{re.escape(str(error))}$"):
                feed(other, NOTHING, frames, streams, True)
            assert_same(one, other)
            for store in (one, other):
                store.release(held[:12])
            held = held[12:]
        else:
            np.testing.assert_array_equal(feed(other, NOTHING, frames, streams, True), ids)
            held = np.append(held, ids)
    assert len(held) < 200
    np.testing.assert_array_equal(one.read(held), other.read(held))
    assert_same(one, other)


def test_recent_frames_that_could_not_be_kept_are_read_from_the_store(monkeypatch):
    one, other, _ = store_pair(LAYOUTS[0])
    frames, streams = walk(30), np.arange(10) % 2
    feed(one, NOTHING, frames[:10], streams, False)
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "keep", lambda batch, slots, numbers: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            feed(other, NOTHING, frames[:10], streams, True)
    for k in (1, 2):
        some = frames[10 * k - 5 : 10 * k + 5]
        ids = feed(one, NOTHING, some, streams, False)
        np.testing.assert_array_equal(feed(other, NOTHING, some, streams, True), ids)
    assert_same(one, other)


def test_ids_that_can_not_be_released_refuse_the_batch():
    one, other, _ = store_pair(LAYOUTS[0])
    frames, streams = walk(30), np.zeros(10, np.int64)
    for store, born in ((one, False), (other, True)):
        ids = feed(store, NOTHING, frames[:10], streams, born)
        with pytest.raises(SlotError, match=r"^id 1000 is of no frame in this store, or is released more often"):
            feed(store, np.append(ids, 1000), frames[10:20], streams, born)
        np.testing.assert_array_equal(store.read(ids), LAYOUTS[0].tensors(frames[:10]))
        feed(store, ids, frames[10:20], streams, born)
    assert_same(one, other)
