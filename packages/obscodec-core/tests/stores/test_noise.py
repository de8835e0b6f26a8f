"""Noise takes hardly more memory than it has bytes, whatever the codec."""

import numpy as np
import pytest
from obscodec import Field, FrameStore, Layout, RingBuffer
from obscodec.heap.chunk_log import _MAX_CHUNK_NBYTES
from obscodec.stats import BufferStats, StoreStats
from obscodec.streams import NO_PATCHES

MOST = 1.01  # of the raw bytes
FRAME = Layout((84, 84), np.uint8)
SPECS = [
    "raw",
    "rle",
    "delta-rle",
    "zstd:3",
    "lz4",
    "rle|zstd:3",
    "rle|lz4",
    "delta-rle|lz4:6",
    "delta-rle|zstd:3",
    "shuffle|zstd:1",
    "delta|rle",
    "delta|zstd:3",
    "lorenzo|shuffle|zstd:1",
]


def noise(layout: Layout, n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(n, *layout.shape), dtype=np.uint8)


def check(small: StoreStats | BufferStats, large: StoreStats | BufferStats) -> None:
    """What the larger one has more takes at most 1.01 times its raw bytes, and a chunk that is not full yet."""
    more = large.raw_bytes - small.raw_bytes
    assert large.growing_bytes - small.growing_bytes <= MOST * more
    assert large.total_bytes - small.total_bytes <= MOST * more + _MAX_CHUNK_NBYTES


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("block_frames", [1, 16])
def test_noise_in_a_frame_store(spec, block_frames):
    frames, stores = noise(FRAME, 1600), []
    for n in (160, 1600):
        store = FrameStore(FRAME, codec=spec, block_frames=block_frames)
        ids = store.append(frames[:n])
        stores.append(store)
    check(*(store.stats() for store in stores))
    assert (store.read(ids) == frames).all()


@pytest.mark.parametrize("spec", ["delta-rle", "delta-rle|lz4:6", "delta-rle|zstd:3"])
@pytest.mark.parametrize("block_frames", [1, 16])
def test_blocks_whose_patches_are_no_shorter_have_their_frames(spec, block_frames):
    """So that one frame of a block is read without those before it, also by a GPU."""
    store, frames = FrameStore(FRAME, codec=spec, block_frames=block_frames), noise(FRAME, 640)
    ids = store.append(frames)
    store.stats()  # which stores full blocks
    assert (store.read(ids) == frames).all()
    block = store.log.heap.locate(ids[-1:] // block_frames)[0]
    first = frames[-block_frames:].reshape(-1)
    assert (block[:2].tolist(), block[2:].tolist()) == ([0, NO_PATCHES], first.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["raw", "rle", "delta-rle|zstd:3", "zstd:3", "auto"])
def test_noise_in_a_ring_buffer(spec):
    frames, buffers = noise(FRAME, 6000), []
    for n in (3000, 6000):
        buffer = RingBuffer(6000, {"frame": Field(FRAME.shape, FRAME.dtype, spec)}, n_envs=2)
        for i in range(0, n, 2):
            buffer.append(frame=frames[i : i + 2])
        buffers.append(buffer)
    check(*(buffer.stats() for buffer in buffers))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("block_frames", [1, 16])
def test_small_frames_of_noise(spec, block_frames):
    layout = Layout((1024,), np.uint8)
    store = FrameStore(layout, codec=spec, block_frames=block_frames)
    store.append(noise(layout, 160))
    stats = store.stats()
    assert stats.live_bytes <= MOST * stats.raw_bytes
    assert stats.table_bytes <= 24 * 161  # and an id has four bytes
