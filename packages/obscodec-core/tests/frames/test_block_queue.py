"""Full blocks wait in queues, are compressed in the background, and are read all the time."""

import pickle
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from new_python import run_python
from obscodec import FrameStore, Layout

FRAME = Layout((40,), np.uint8)
N = 300
WALK = np.random.default_rng(0).integers(256, size=(1, 40), dtype=np.uint8).repeat(N, axis=0)
WALK[np.arange(N), np.arange(N) % 40] += np.arange(1, N + 1, dtype=np.uint16).astype(np.uint8)


def walked(codec: str = "delta-rle|lz4:6") -> tuple[FrameStore, np.ndarray]:
    """A store with four blocks of four frames in its queue, and ids of them."""
    store = FrameStore(FRAME, codec=codec, block_frames=4)
    return store, store.append(WALK[:16])


class Held:
    """The ``seal`` of a coder, which waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: FrameStore) -> None:
        self.began, self.may_go_on, self.names = threading.Event(), threading.Event(), []
        seal = store.log.coder.seal

        def held(blocks):
            self.names.append(threading.current_thread().name)
            self.began.set()
            assert self.may_go_on.wait(30)
            return seal(blocks)

        monkeypatch.setattr(store.log.coder, "seal", held)


@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|lz4:6", "delta-rle|zstd:3", "zstd:1", "raw"])
def test_blocks_are_read_wherever_they_are(monkeypatch, codec):
    store, ids = walked(codec)
    assert store.log.heap.stats().n_streams == 0
    np.testing.assert_array_equal(store.read(ids), WALK[:16])
    held = Held(monkeypatch, store)
    ids = np.concatenate([ids, *(store.append(WALK[i : i + 1]) for i in range(16, 80))])
    assert held.began.wait(30)
    n_leaving, n_waiting = len(store.log.open.leaving), len(store.log.open.queue)
    assert n_leaving == 16
    assert n_waiting == 4
    assert held.names != [threading.current_thread().name]
    np.testing.assert_array_equal(store.read(ids), WALK[:80])
    held.may_go_on.set()
    ids = np.concatenate([ids, store.append(WALK[80:160])])  # stores what was compressed
    np.testing.assert_array_equal(store.read(ids), WALK[:160])
    assert store.stats().n_tensors == 160
    assert store.log.heap.stats().n_streams == 40
    assert len(store.log.open.leaving) == len(store.log.open.queue) == 0
    np.testing.assert_array_equal(store.read(ids), WALK[:160])


def test_a_caller_that_is_faster_than_the_background_waits_for_room(monkeypatch):
    store, ids = walked()
    held = Held(monkeypatch, store)
    threading.Timer(0.2, held.may_go_on.set).start()
    many = np.random.default_rng(1).integers(256, size=(2000, 40), dtype=np.uint8)
    more = store.append(many)  # 500 blocks, the queues have room for less than 200
    assert held.may_go_on.is_set()
    np.testing.assert_array_equal(store.read(more), many)
    np.testing.assert_array_equal(store.read(ids), WALK[:16])


@pytest.mark.parametrize("while_busy", [False, True])
def test_the_number_of_a_released_block_is_used_again_without_its_content(monkeypatch, while_busy):
    store, ids = walked()
    held = Held(monkeypatch, store)
    if while_busy:
        ids = np.concatenate([ids, store.append(WALK[16:70])])
        assert held.began.wait(30)
    else:
        held.may_go_on.set()
    store.release(ids[:12])
    rng = np.random.default_rng(2)
    again = rng.integers(256, size=(12, 40), dtype=np.uint8)
    more = store.append(again, 1)
    assert set(more // 4) & set(ids[:12] // 4)
    held.may_go_on.set()
    for _ in range(2):
        np.testing.assert_array_equal(store.read(more), again)
        np.testing.assert_array_equal(store.read(ids[12:]), WALK[12 : len(ids)])
        store.stats()
    store.release(more)
    store.release(ids[12:])
    assert store.stats().n_tensors == 0


@pytest.mark.parametrize("error", [MemoryError, ZeroDivisionError])
def test_an_error_in_the_background_comes_with_a_later_call_and_loses_nothing(monkeypatch, error):
    store, ids = walked()

    def fails(_):
        raise error("in the background")

    with monkeypatch.context() as patch:
        patch.setattr(store.log.coder, "seal", fails)
        ids = np.concatenate([ids, store.append(WALK[16:70])])
        if error is MemoryError:  # nobody needs to know, as long as there is room
            ids = np.concatenate([ids, *(store.append(WALK[i : i + 1]) for i in range(70, 200))])
        with pytest.raises(error, match="in the background"), store.log.lock:
            store.log.seal()
        np.testing.assert_array_equal(store.read(ids), WALK[: len(ids)])
    assert store.stats().n_tensors == len(ids)
    assert store.log.heap.stats().n_streams == len(ids) // 4
    np.testing.assert_array_equal(store.read(ids), WALK[: len(ids)])


def test_a_pickle_has_what_is_on_its_way(monkeypatch):
    store, ids = walked()
    held = Held(monkeypatch, store)
    ids = np.concatenate([ids, store.append(WALK[16:70])])
    threading.Timer(0.1, held.may_go_on.set).start()
    monkeypatch.undo()  # what runs is held; a pickle has no function of a test
    copied = pickle.loads(pickle.dumps(store))
    ids = np.concatenate([ids, copied.append(WALK[70:200])])
    np.testing.assert_array_equal(copied.read(ids), WALK[:200])
    np.testing.assert_array_equal(store.read(ids[:70]), WALK[:70])


@pytest.mark.needs("fork")
def test_a_forked_process_goes_on_without_the_background():
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from forked import exit_status, forked
from test_block_queue import *

def go_on(ids):
    more = np.concatenate([ids, store.append(WALK[n:200])])
    assert (store.read(more) == WALK[:200]).all()
    assert store.stats().n_tensors == 200

for n in (64, 70, 79):
    store, ids = walked()
    ids = np.concatenate([ids, store.append(WALK[16:n])])
    child = forked(lambda: go_on(ids))
    go_on(ids)
    assert exit_status(child) == 0
print("done")
"""
    assert run_python("-c", script, timeout=120) == "done\n"


def test_a_program_may_end_while_blocks_are_compressed():
    script = f"""
import sys, atexit
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_block_queue import *
store, ids = walked()
atexit.register(lambda: print(store.append(WALK[100:]).size, store.stats().n_tensors))
store.append(WALK[16:100])
"""
    assert run_python("-c", script, timeout=120) == "200 300\n"


@pytest.mark.needs("signals at any time")
def test_an_interrupt_while_a_caller_waits_loses_nothing(monkeypatch):
    store, ids = walked()
    held = Held(monkeypatch, store)
    ids = np.concatenate([ids, store.append(WALK[16:70])])
    assert held.began.wait(30)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us with it ignored
    try:
        threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            store.stats()
    finally:
        signal.signal(signal.SIGINT, before)
    held.may_go_on.set()
    ids = np.concatenate([ids, store.append(WALK[70:200])])
    np.testing.assert_array_equal(store.read(ids), WALK[:200])
    assert store.stats().n_tensors == 200


def test_nothing_waits_where_memory_is_limited():
    store = FrameStore(FRAME, codec="raw", block_frames=4, max_bytes=1 << 16)
    store.append(WALK)
    assert len(store.log.open.queue) == len(store.log.open.leaving) == 0
    assert store.log.heap.stats().n_streams >= N // 4 - 1
