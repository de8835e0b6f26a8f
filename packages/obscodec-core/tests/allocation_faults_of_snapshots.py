"""Run by ``test_allocation_faults.py``: snapshots whose allocations fail; prints how many did."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from failing_allocator import at_every_allocation
from obscodec import Field, FrameStack, FrameStore, Layout, RingBuffer, load, save
from obscodec.arrays import write_buffer
from obscodec.runtime import says_memory_error

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "11"))  # 1 for every allocation
SHAPE, N_ENVS, CAPACITY = (3, 24, 24), 2, 20


def frames(n: int) -> np.ndarray:
    made, rng = np.zeros((n, *SHAPE), np.uint8), np.random.default_rng(0)
    for k in range(1, n):
        made[k, :-1], made[k, -1] = made[k - 1, 1:], made[k - 1, -1]
        made[k, -1, k % 24, rng.integers(24)] = rng.integers(256)
    return made


PLAYED = frames(300)


def append(buffer: RingBuffer, begin: int, end: int) -> None:
    for k in range(begin, end):
        pair = PLAYED[[k, k + 100]]
        buffer.append(obs=pair, next=PLAYED[[k + 1, k + 101]], depth=pair.astype("f4") / 255, action=[k, -k])


def ring(n_steps: int, codec: str) -> RingBuffer:
    fields = {
        "obs": Field(SHAPE, np.uint8, codec, block_frames=4, min_nbytes=0, decide_after=30),
        "next": Field(SHAPE, np.uint8, shares="obs"),
        "depth": Field(SHAPE, np.float32, "zstd:1", min_nbytes=0),
        "action": Field((), np.int64),
    }
    buffer = RingBuffer(CAPACITY, fields, N_ENVS)
    append(buffer, 0, n_steps)
    return buffer


def content(buffer: RingBuffer) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in buffer[:].items()}


def saves(codec: str) -> int:
    """Saves that leave the generation before, or the new one; the buffer is as it was, and is saved next time."""
    before, after, n_failed = ring(12, codec), ring(33, codec), 0
    contents = [content(before), content(after)]
    with tempfile.TemporaryDirectory() as folder:

        def prepare():
            save(before, folder)
            return lambda: save(after, folder)

        prepare()()
        load(folder)
        for error in at_every_allocation(prepare, STEP):
            n_failed += bool(error)
            found = content(load(folder))
            assert found in contents, error
            assert error or found == contents[1]
            assert content(after) == contents[1], error
        save(after, folder)
        assert content(load(folder)) == contents[1]
        assert len(list(Path(folder).glob("*.json"))) == 1
    return n_failed


def loads(codec: str) -> int:
    """Loads that leave the folder, and nothing else."""
    saved, n_failed, loaded = ring(33, codec), 0, []
    expected = content(saved)
    with tempfile.TemporaryDirectory() as folder:
        save(saved, folder)
        load(folder)
        for error in at_every_allocation(lambda: lambda: loaded.append(load(folder)), STEP):
            n_failed += bool(error)
            assert content(loaded.pop() if not error else load(folder)) == expected, error
    return n_failed


def states(codec: str) -> int:
    """States of buffers in which steps wait: what is stored stays, and a state without want of memory is right."""
    write_buffer._MAX_NBYTES = 1 << 18
    n_failed, buffers, expected = 0, [], content(ring(33, codec))

    def prepare():
        buffers[:] = [ring(33, codec)]
        return buffers[0].state

    prepare()()
    for error in at_every_allocation(prepare, STEP):
        n_failed += bool(error)
        restored = RingBuffer.from_arguments(buffers[0].arguments())
        restored.restore(buffers[0].state())
        assert content(buffers[0]) == content(restored) == expected, error
        append(buffers[0], 33, 36)
        assert content(buffers[0])["action"] == np.array([[k, -k] for k in range(16, 36)]).tobytes()
    return n_failed


def flushes(codec: str) -> int:
    """Rows that wait are stored all in the end; samples are right meanwhile."""
    n_failed, buffers, expected = 0, [], content(ring(33, codec))

    def prepare():
        buffers[:] = [ring(33, codec)]
        flush_all = [waiting.flush for waiting in buffers[0]._set._write_buffers.values()]
        return says_memory_error(lambda: [flush() for flush in flush_all])

    prepare()()
    for error in at_every_allocation(prepare, STEP):
        n_failed += bool(error)
        sampled = buffers[0].sample(30, 0)
        k = np.abs(sampled["action"])
        assert (sampled["obs"] == PLAYED[k + 100 * (sampled["action"] < 0)]).all(), error
        assert content(buffers[0]) == expected, error
    return n_failed


def stores(codec: str) -> int:
    """Stores of stacks: restored from states while allocations fail."""
    layout, n_failed, made = Layout(SHAPE, np.uint8), 0, []
    stack = FrameStack(3)

    def new() -> FrameStore:
        return FrameStore(layout, frame_stack=stack, codec=codec, block_frames=4)

    store = new()
    ids = store.append(PLAYED)
    state = store.state()

    def prepare():
        made[:] = [new()]
        return lambda: says_memory_error(made[0].restore)(state)

    prepare()()
    made[0].read(ids)
    for error in at_every_allocation(prepare, STEP):
        n_failed += bool(error)
        if not error:
            assert (made[0].read(ids) == PLAYED).all()
        assert (store.read(ids) == PLAYED).all()
    return n_failed


if __name__ == "__main__":
    what, codec = sys.argv[1:]
    kinds = {"save": saves, "load": loads, "state": states, "flush": flushes, "restore": stores}
    print(kinds[what](codec))
