"""Numbers that a long run reaches: they are used again, or a call is refused before they overflow."""

import numpy as np
import pytest
from obscodec import CorruptStream, Field, FrameStore, HeapFull, Layout, RingBuffer, TensorArray
from obscodec.frames import stack_table
from obscodec.frames.kernels.counts import MOST_COUNT

LAST_ID = (1 << 31) - 1
FRAME = Layout((6, 7), np.uint8)
NEAR = 200  # ids, from the last one


def played(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, size=(n, *FRAME.shape), dtype=np.uint8)


def stacks_of(frames: np.ndarray, depth: int) -> np.ndarray:
    return np.stack([frames[k : k + depth] for k in range(len(frames) - depth + 1)])


def test_the_last_ids_are_used_again_and_no_other_is_given_out():
    store = FrameStore(FRAME, first_id=LAST_ID // 2 - NEAR, block_frames=16)
    frames = played(64)
    for lap in range(40):  # 2,560 frames in room for some 190
        frames = played(64, lap)
        ids = store.append(frames)
        assert ids.min() > LAST_ID // 2 - NEAR
        assert ids.max() <= LAST_ID // 2
        assert ids.max() * 2 + 1 <= LAST_ID  # in a NarrowStore
        np.testing.assert_array_equal(store.read(ids), frames)
        store.release(ids)


def test_a_store_without_ids_left_is_full_and_stays_as_it_was():
    store = FrameStore(FRAME, first_id=LAST_ID // 2 - NEAR, block_frames=16)
    frames, kept = played(160), []

    def fill():
        for first in range(0, 16_000, 16):
            kept.append(store.append(played(16, first)))

    with pytest.raises(HeapFull, match="ids of frames that fit into 32 bits are used: use more than one store"):
        fill()
    for k, ids in enumerate(kept):
        np.testing.assert_array_equal(store.read(ids), played(16, 16 * k))
    store.release(kept.pop())
    store.release(kept.pop())
    ids = store.append(frames[:16])
    np.testing.assert_array_equal(store.read(ids), frames[:16])


def test_ids_of_stacks_fit_into_32_bits():
    layout, depth = Layout((4, *FRAME.shape), np.uint8), 4
    store = FrameStore(layout, frame_stack=depth, first_id=LAST_ID // (2 * depth) - NEAR)
    array = TensorArray.zeros((40,), store)
    for lap in range(10):
        stacks = stacks_of(played(40 + depth - 1, lap), depth)
        array[:] = stacks  # ids are i32 here
        assert 0 < array.ids.max() * 2 + 1 <= LAST_ID
        np.testing.assert_array_equal(array[:], stacks)


def test_a_frame_has_so_many_references_and_is_then_stored_anew():
    store, frames = FrameStore(FRAME), played(3)
    ids = store.append(frames)
    store.log.tables.counts[ids[2]] = MOST_COUNT - 2 + 1  # it is recent
    (one,) = store.append(frames[2:])
    assert one == ids[2]
    (another,) = store.append(frames[2:])
    assert another not in ids
    assert store.append(frames[2:]) == another
    np.testing.assert_array_equal(store.read([one, another]), frames[[2, 2]])
    assert store.log.tables.counts[ids[2]] == MOST_COUNT + 1


def test_stacks_that_are_listed_are_counted(monkeypatch):
    store = FrameStore(Layout((4, *FRAME.shape), np.uint8), frame_stack=4)
    monkeypatch.setattr(stack_table, "_MOST_ROWS", 512)
    shuffled, kept, stored = np.random.default_rng(0), [], []

    def fill():
        for _ in range(700):
            stacks = played(4, 3)[shuffled.permutation(4)][None]
            kept.append(store.append(stacks)[0])
            stored.append(stacks[0])

    with pytest.raises(HeapFull, match=r"512 stacks do not follow from frames, at most 512 can be listed"):
        fill()
    assert len(kept) > 100
    np.testing.assert_array_equal(store.read(kept), stored)
    store.release(kept)
    assert store.stats().n_tensors == 0
    store.append(played(4, 3)[[3, 1, 2, 0]][None])


@pytest.mark.parametrize("n_appended", [(1 << 31) - 5, (1 << 32) - 5, (1 << 63) - 5])
def test_a_ring_counts_beyond_every_integer_of_a_processor(n_appended):
    fields = {"frame": Field(FRAME.shape, np.uint8, "delta-rle", min_nbytes=0), "k": Field((), np.int64)}
    ring = RingBuffer(7, fields)
    ring._clock.appended = n_appended - n_appended % ring._clock.n_rows  # a whole number of laps
    frames = played(60)
    for k in range(60):
        ring.append(frame=frames[k], k=k)
        if k >= 7:
            last = np.arange(k - 6, k + 1)
            np.testing.assert_array_equal(ring[:]["k"][:, 0], last)
            np.testing.assert_array_equal(ring[:]["frame"][:, 0], frames[last])
            sampled = ring.sample(20, k)
            np.testing.assert_array_equal(sampled["frame"], frames[sampled["k"]])
    assert ring._clock.appended > n_appended


def test_guards_are_counted_beyond_every_integer_of_a_processor():
    store = FrameStore(FRAME)
    store._n_guards = (1 << 63) - 2
    frames = played(8)
    for _ in range(5):
        ids = store.append(frames)
        guard, copied = store.guard(), ids.copy()
        store.release(ids)
        np.testing.assert_array_equal(store.read(copied), frames)
        guard.close()
        assert store.stats().n_tensors == 0


def test_a_version_beyond_the_last_one_is_refused():
    store = FrameStore(FRAME, codec="delta-rle|lz4", block_frames=4)
    store.append(played(40))
    state = store.state()
    state["codecs"] |= {"versions": np.array([(1 << 31) - 1]), "newest": (1 << 31) - 1}
    with pytest.raises(CorruptStream, match=r"'versions' of a state is in 1\.\.1048576, got 2147483647"):
        FrameStore(FRAME, codec="delta-rle|lz4", block_frames=4).restore(state)


def test_a_codec_with_the_last_version_learns_no_more():
    store, most = FrameStore(FRAME, codec="delta-rle|lz4", block_frames=4), 1 << 20
    versions = store.log.coder.versions
    versions.by_version, versions.newest = {most: versions.by_version[1]}, most
    frames = np.repeat(played(3000)[:, :, :1], 7, axis=2)
    ids = store.append(frames)
    store.stats()
    np.testing.assert_array_equal(store.read(ids), frames)
    assert not versions.learning
    assert [*versions.by_version] == [most]
