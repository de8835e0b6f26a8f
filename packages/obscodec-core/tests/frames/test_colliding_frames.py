"""Frames with equal fingerprints that differ: each is stored as what it is, and found again as what it is.

A fingerprint has four lanes of 64 bits. The words of a frame go to them in turns, the bytes behind the last 32 to the
first one; a lane is rotated by 7 bits before each. So a change of a word is undone by the change of the next one in its
lane that is the same, rotated. In the end the lanes are added up, with the weights 1, 3, 5, 7.
"""

import numpy as np
import pytest
from obscodec import FrameStack, FrameStore, Layout, TensorArray
from obscodec.arrays import WriteBuffer, write_buffer
from obscodec.frames.kernels.append import _fingerprint

SIZES = [2, 5, 31, 32, 33, 34, 63, 64, 65, 97, 250, 7056, 7067]
STEP = 32  # bytes


def rotated(x: int, bits: int) -> int:
    return (x << bits | x >> 64 - bits) & (1 << 64) - 1


def changed(frame: np.ndarray, changes: dict[int, int]) -> np.ndarray:
    """A copy, with the words of 8 bytes, little-endian, that begin at some bytes xored."""
    other = frame.copy()
    for at, change in changes.items():
        nbytes = min(8, len(frame) - at)
        other[at : at + nbytes] ^= np.frombuffer(change.to_bytes(8, "little"), np.uint8)[:nbytes]
    return other


def same_fingerprint(nbytes: int) -> np.ndarray:
    """``u8[n, nbytes]``: different frames that have one fingerprint, one for each way that there is at this size."""
    rng = np.random.default_rng(nbytes)
    base = rng.integers(64, 128, size=nbytes, dtype=np.uint8)
    body = nbytes // STEP * STEP
    found = [base]
    for at in range(0, body - STEP, 8 * max(1, body // 80)):  # a word, and the next one of its lane
        change = int(rng.integers(1, 1 << 62))
        found.append(changed(base, {at: change, at + STEP: rotated(change, 7)}))
    if body and nbytes > body:  # the last word of the first lane, and the byte behind
        found.append(changed(base, {body - STEP: rotated(0x5A, 64 - 7), body: 0x5A}))
    found += [
        changed(base, {at: 1, at + 1: 128}) for at in {body, nbytes - 2} if body <= at < nbytes - 1
    ]  # two bytes behind
    if nbytes == STEP:  # the sum of the lanes, which are the words: 3 * 5 - 5 * 3
        twin = base.copy()
        twin.view("<u8")[1:3] += np.array([5, -3]).astype(np.uint64)
        found.append(twin)
    return np.unique(found, axis=0)


@pytest.mark.parametrize("nbytes", SIZES)
def test_the_frames_collide(nbytes: int) -> None:
    frames = same_fingerprint(nbytes)
    assert len(frames) > 1
    assert len({_fingerprint(frame.ctypes.data, nbytes) for frame in frames}) == 1


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|zstd:1", "raw"])
def test_a_store_of_frames(nbytes: int, codec: str) -> None:
    frames = same_fingerprint(nbytes)
    store = FrameStore(Layout((nbytes,), np.uint8), codec=codec, block_frames=4, recent=len(frames))
    ids = store.append(frames)
    assert len(set(ids.tolist())) == len(frames)
    np.testing.assert_array_equal(store.append(frames[::-1]), ids[::-1])
    np.testing.assert_array_equal(store.read(ids), frames)


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_store_of_stacks(nbytes: int) -> None:
    """The newest frames of two stacks collide, or those before them."""
    depth, frames = 3, same_fingerprint(nbytes)
    rng = np.random.default_rng(0)
    stacks = frames[rng.integers(len(frames), size=(60, depth))]
    stack, layout = FrameStack(depth), Layout((depth, nbytes), np.uint8)
    store = FrameStore(layout, frame_stack=stack, block_frames=4)
    ids = store.append(stacks)
    np.testing.assert_array_equal(store.read(ids), stacks)
    assert len(set(ids.tolist())) >= len(np.unique(stacks, axis=0))


@pytest.mark.parametrize("nbytes", SIZES)
def test_rows_that_wait(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """One stands for the row behind it, or for what comes to the same place, only if all of their bytes are equal."""
    monkeypatch.setattr(write_buffer, "_MAX_NBYTES", 0)
    row = same_fingerprint(nbytes)[:1]
    for at in {0, nbytes // 2, nbytes - 1}:
        other = row.copy()
        other[0, at] ^= 1
        store = FrameStore(Layout((nbytes,), np.uint8))
        array = TensorArray.zeros((5, 1), store, WriteBuffer(store, 1))
        array[0], array[1] = row, other
        array[2], array[2] = row, other
        np.testing.assert_array_equal(array[:3, 0], np.concatenate([row, other, other]))
