"""Memory of a batch is used again when the batch is gone, and never while anybody holds a part of it."""

import gc
from functools import partial

import numpy as np
import pytest
from obscodec import Layout
from obscodec.stores import BatchMemory
from together import together

FRAME = Layout((84, 84), np.uint8)
N = 64


def kept_bytes(memory: BatchMemory) -> int:
    return sum(kept.nbytes for kept in memory._free)


class HoldsDLPack:
    """A consumer of DLPack, as torch is: it keeps the capsule."""

    def __init__(self, batch):
        self.tensor = np.from_dlpack(batch)


VIEWS = {
    "the batch": lambda batch: batch,
    "a slice": lambda batch: batch[3:5, ::2],
    "one element": lambda batch: batch[-1:, -1:, -1:],
    "a reshaped view": lambda batch: batch.reshape(-1)[::7],
    "a view of another dtype": lambda batch: batch.view(np.uint32),
    "a memoryview": memoryview,
    "a memoryview of a slice": lambda batch: memoryview(batch)[2:3],
    "an array of its buffer": lambda batch: np.frombuffer(batch, np.uint8)[5:9],
    "a tensor from DLPack": HoldsDLPack,
    "a view of a view in a dict": lambda batch: {"obs": (batch[1][2], None)},
    "an array with its interface": lambda batch: np.asarray(batch).T,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_memory_is_not_used_again_before_the_last_view_is_gone(view):
    memory = BatchMemory()
    batch = memory.array(N, FRAME)
    address = batch.ctypes.data
    held = view(batch)
    del batch
    gc.collect()
    others = [memory.array(N, FRAME) for _ in range(5)]
    assert address not in [other.ctypes.data for other in others]
    assert kept_bytes(memory) == 0
    del held
    gc.collect()
    assert kept_bytes(memory) >= N * FRAME.nbytes
    assert memory.array(N, FRAME).ctypes.data == address


def test_memory_of_another_size_is_not_wasted():
    memory = BatchMemory()
    large = memory.array(4 * N, FRAME)
    address = large.ctypes.data
    del large
    assert memory.array(N, FRAME).ctypes.data != address
    assert memory.array(3 * N, FRAME).ctypes.data == address


def test_at_most_two_batches_are_kept_of_which_none_is_very_large():
    memory = BatchMemory()
    batches = [memory.array(N, FRAME) for _ in range(6)]
    assert kept_bytes(memory) == 0
    del batches
    assert kept_bytes(memory) == 2 * N * FRAME.nbytes
    memory = BatchMemory()
    memory.array(1, Layout(((1 << 28) + 1,), np.uint8))
    assert kept_bytes(memory) == 0
    batch = BatchMemory().array(N, FRAME)  # which outlives its source
    gc.collect()
    batch[:] = 7
    assert (batch == 7).all()


def test_threads_never_share_memory():
    memory = BatchMemory()

    def work(value):
        for _ in range(200):
            batch = memory.array(N, FRAME)
            batch[:] = value
            assert (batch == value).all()

    together(*(partial(work, value) for value in range(4)))
