"""A store chooses its codec and moves its first tensors in the background, and is used as ever meanwhile."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
from appending import appended_by_threads
from faults import at_every_line
from forked import exit_status, forked
from new_python import run_python
from obscodec import AutoStore, HeapFull, Layout, SlotError
from obscodec.stores.auto import auto_store, first_tensors
from obscodec.stores.auto.first_tensors import FirstTensors
from obscodec.stores.auto.shown import Shown
from obscodec.stores.ids import FIRST_ID

pytestmark = pytest.mark.in_background
LAYOUT = Layout((24, 24), np.uint8)
N_FIRST = 40


def tensors(n: int, seed: int = 0) -> np.ndarray:
    """Frames in which a few pixels change."""
    rng = np.random.default_rng(seed)
    changes = np.zeros((n, 24 * 24), np.uint8)
    changes[np.arange(n), rng.integers(24 * 24, size=n)] = rng.integers(1, 256, n)
    return changes.cumsum(0, np.uint8).reshape(n, 24, 24)


def new_store(**options: object) -> AutoStore:
    return AutoStore(LAYOUT, **{"decide_after": N_FIRST, **options})


def check(store: AutoStore, ids: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(store.read(ids), expected)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event for which each choice waits."""
    event, find = threading.Event(), auto_store.find_plan

    def wait(*arguments: object, **options: object) -> object:
        assert event.wait(60)
        return find(*arguments, **options)

    monkeypatch.setattr(auto_store, "find_plan", wait)
    return event


def test_tensors_are_stored_and_read_while_the_codec_is_chosen(gate):
    store, x = new_store(), tensors(600)
    ids = np.concatenate([store.append(x[i : i + 3]) for i in range(0, 600, 3)])
    stats = store.stats()
    assert not stats.is_decided
    assert "the first tensors are looked at in the background" in stats.encoding
    assert stats.n_tensors == 600 == len(x)
    assert store.memory_bytes == x.nbytes
    check(store, ids, x)
    gate.set()
    store.decide()
    assert store.choice is not None
    assert not store.stats().waits_for
    assert store.memory_bytes < x.nbytes / 3
    check(store, ids, x)
    store.release(ids)
    assert store.stats().n_tensors == 0


def test_what_a_small_buffer_overwrites_takes_no_memory_while_the_codec_is_chosen(gate, monkeypatch):
    monkeypatch.setattr(first_tensors, "_CHUNK_NBYTES", 8 * LAYOUT.nbytes)
    monkeypatch.setattr(auto_store, "_MOST_NBYTES", 200 * LAYOUT.nbytes)  # more may wait only if others are gone
    store, x, ids = new_store(), tensors(1500), np.zeros(100, np.int64)
    for i in range(len(x)):
        at = slice(i % 100, i % 100 + 1)
        if i >= 100:
            store.release(ids[at].copy())
        ids[at] = store.append(x[i : i + 1])
        assert store.memory_bytes <= (100 + N_FIRST + 2 * 8) * LAYOUT.nbytes
    check(store, ids, x[-100:])
    copied = pickle.loads(pickle.dumps(store))
    assert copied.memory_bytes == store.memory_bytes
    with pytest.raises(SlotError):
        copied.read(np.array([FIRST_ID + 700]))
    gate.set()
    for one in (store, copied):
        one.decide()
        check(one, ids, x[-100:])
        assert one.stats().n_tensors == 100
        assert one.memory_bytes < x[-100:].nbytes


def test_a_release_that_is_interrupted_while_it_frees_memory_is_done_or_not(gate, monkeypatch):
    monkeypatch.setattr(first_tensors, "_CHUNK_NBYTES", 8 * LAYOUT.nbytes)
    x, made = tensors(N_FIRST + 40), []

    def prepare():
        store = new_store()
        ids = np.concatenate([store.append(x[i : i + 1]) for i in range(len(x))])
        gone = ids[N_FIRST + 8 : N_FIRST + 16].copy()
        made[:] = store, ids, gone
        return lambda: store._give_back(gone)

    n_freed = 0
    for where in at_every_line(prepare):
        store, ids, gone = made
        assert not gone.any() or gone.all(), where
        if gone.any():
            check(store, ids, x)
            store._give_back(gone)
        n_freed += store.memory_bytes == (len(x) - 8) * LAYOUT.nbytes
        kept = np.delete(np.arange(len(x)), slice(N_FIRST + 8, N_FIRST + 16))
        check(store, ids[kept], x[kept])
        assert store.stats().n_tensors == len(kept), where
    assert n_freed > 1  # the others free it when they move
    gate.set()


def test_memory_that_is_free_in_the_middle_of_a_chunk_that_moves_is_counted_once(monkeypatch):
    monkeypatch.setattr(first_tensors, "_CHUNK_NBYTES", 8 * LAYOUT.nbytes)
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", 3 * LAYOUT.nbytes)
    first, ids = FirstTensors(LAYOUT, 30, 30, Shown(1, 1)), np.zeros(20, np.int64)
    first.take(tensors(20), np.arange(20), np.zeros(20, np.int64), ids)
    for _ in range(3):  # the first chunk
        part = first.next_part()
        first.move(part, np.arange(len(part.kept)) + 1)
    part = first.next_part()
    first.leave(ids[8:16].copy())
    first.free_gone(ids[8:16])
    assert first.nbytes == 4 * LAYOUT.nbytes
    first.move(part, np.arange(len(part.kept)) + 1)
    assert (first.n_moved, first.nbytes) == (11, 4 * LAYOUT.nbytes)
    first.move(first.next_part(), np.zeros(0, np.int64))
    assert (first.n_moved, first.nbytes) == (16, 4 * LAYOUT.nbytes)


@pytest.mark.parametrize("seed", range(6))
def test_a_program_equals_a_dict_while_tensors_move(monkeypatch, seed):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", 3 * LAYOUT.nbytes)
    monkeypatch.setattr(first_tensors, "_CHUNK_NBYTES", 5 * LAYOUT.nbytes)
    monkeypatch.setattr(first_tensors, "_CHUNK_NBYTES", 8 * LAYOUT.nbytes)
    rng, store, known, x = np.random.default_rng(seed), new_store(), {}, tensors(4000, seed)
    seen = set()
    for i in range(0, 4000, 4):
        which = rng.integers(max(0, i - 8), i + 4, size=4)
        for place, number in zip(store.append(x[which], rng.integers(2, size=4)).tolist(), which, strict=True):
            known.setdefault(place, []).append(number)
        ids = rng.choice(list(known), size=min(len(known), 9), replace=False)
        check(store, ids, x[[known[k][0] for k in ids.tolist()]])
        for k in ids[: rng.integers(0, 6)].tolist():
            store.release(np.array([k]))
            known[k].pop()
            if not known[k]:
                del known[k]
        seen.add((store._store is not None, store.has_moved))
        if i == 3000:
            store.decide()
    ids = np.array(list(known))
    check(store, ids, x[[known[k][0] for k in ids.tolist()]])
    for place, numbers in known.items():
        store.release(np.full(len(numbers), place))
    assert store.stats().n_tensors == 0
    assert seen >= {(False, False), (True, True)}


def test_readers_and_writers_go_on_while_tensors_move(monkeypatch):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", LAYOUT.nbytes)
    store = new_store()
    ids, x = appended_by_threads(store, [tensors(400, seed) for seed in range(3)])
    store.decide()
    check(store, ids, x)


def test_a_failed_choice_shows_at_the_next_call_and_begins_anew(monkeypatch):
    find = auto_store.find_plan
    monkeypatch.setattr(auto_store, "find_plan", lambda *_, **__: 1 // 0)
    store, x = new_store(), tensors(200)
    ids = [store.append(x[:N_FIRST])]
    with pytest.raises(RuntimeError, match=r"chosen: integer division or modulo by zero") as raised:
        store.decide()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert "it looks at the first tensors when the next one comes" in store.stats().encoding
    store._move.begin()
    store._move._job.wait()
    with pytest.raises(RuntimeError, match="division"):
        store.append(x[N_FIRST : N_FIRST + 1])
    monkeypatch.setattr(auto_store, "find_plan", find)
    ids.append(store.append(x[N_FIRST:]))
    store.decide()
    assert store.stats().is_decided
    check(store, np.concatenate(ids), x)


def test_a_chosen_store_without_room_says_so_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", LAYOUT.nbytes)
    x = np.random.default_rng(0).integers(256, size=(N_FIRST, *LAYOUT.shape), dtype=np.uint8)
    store = new_store(codec="raw", block_frames=1, max_bytes=N_FIRST * LAYOUT.nbytes // 2)
    store._shown._n_needed = N_FIRST
    store._first.most = store._first._most_waiting = 4 * N_FIRST
    ids = store.append(x)
    with pytest.raises(HeapFull, match="could not be moved"):
        store.decide()
    assert not store.stats().is_decided
    check(store, ids, x)
    store.release(ids[::2])
    check(store, ids[1::2], x[1::2])


def test_as_many_tensors_wait_as_may(gate):
    store, x = new_store(max_bytes=50 * LAYOUT.nbytes), tensors(80)
    ids = [store.append(x[:50])]
    opener = threading.Timer(0.3, gate.set)
    opener.start()
    ids.append(store.append(x[50:]))  # waits
    assert gate.is_set()
    check(store, np.concatenate(ids), x)


def test_a_tensor_that_is_released_while_it_moves_goes(monkeypatch):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", 10 * LAYOUT.nbytes)
    store, x, move = new_store(decide_after=100), tensors(99), FirstTensors.move
    ids = store.append(x)
    released = [ids[3:5], ids[80:81]]

    def move_some(first, part, new):
        if released:
            store.release(released.pop(0))
        move(first, part, new)

    monkeypatch.setattr(FirstTensors, "move", move_some)
    store.decide()
    assert not released
    assert store.stats().n_tensors == 96
    kept = np.delete(np.arange(99), [3, 4, 80])
    check(store, ids[kept], x[kept])
    store.release(ids[kept])
    assert store.stats().n_tensors == 0


def test_ids_of_the_chosen_store_are_left_as_they_are():
    first, ids = FirstTensors(LAYOUT, 7, 7, Shown(7, 7)), np.zeros(7, np.int64)
    for some in (ids[:6], ids[6:]):
        first.take(tensors(6), np.zeros_like(some), np.zeros(6, np.int64), some)
    others = FIRST_ID + np.arange(7, 40)
    assert not first.are_here(others).any()
    given = np.append(others, ids[:2])
    first.leave(given)
    assert given.tolist() == [*others, 0, 0]


def test_nobody_comes_between_the_last_part_and_the_end(monkeypatch):
    store, x, move, found = new_store(decide_after=100), tensors(90), FirstTensors.move, []
    ids = store.append(x[:80])
    other = threading.Thread(target=lambda: found.extend((store.read(ids), store.append(x[80:]))))

    def move_some(first, part, new):
        if part.end == 80:
            other.start()
            other.join(0.2)
            assert not found
        move(first, part, new)

    monkeypatch.setattr(FirstTensors, "move", move_some)
    store.decide()
    other.join()
    np.testing.assert_array_equal(found[0], x[:80])
    check(store, np.append(ids, found[1]), x)


@pytest.mark.needs("fork")
def test_a_forked_process_chooses_by_itself(gate):
    store, x = new_store(), tensors(200)
    ids = store.append(x[:100])

    def go_on():
        gate.set()
        more = store.append(x[100:])
        store.decide()
        assert store.stats().is_decided
        check(store, np.concatenate([ids, more]), x)

    child = forked(go_on)
    assert exit_status(child) == 0
    assert store.choice is None
    gate.set()
    go_on()


@pytest.mark.needs("fork")
def test_a_fork_in_the_middle_of_a_move_has_all_tensors(monkeypatch):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", LAYOUT.nbytes)
    store, x = new_store(decide_after=2000), tensors(2000)
    ids, children = store.append(x), []

    def look():
        check(store, ids, x)
        store.decide()
        check(store, ids, x)

    while not store.has_moved and len(children) < 6:
        children.append(forked(look))
    assert [exit_status(child) for child in children] == [0] * len(children)
    look()


@pytest.mark.parametrize("rebuilt", [lambda store: pickle.loads(pickle.dumps(store)), copy.deepcopy])
def test_a_copy_goes_on_by_itself(gate, rebuilt):
    store, x = new_store(), tensors(100)
    ids = store.append(x)
    other = rebuilt(store)
    check(other, ids, x)
    gate.set()
    for of in (store, other):
        of.decide()
        assert of.stats().is_decided
        check(of, ids, x)


def test_a_copy_in_the_middle_of_a_move_has_all_tensors(monkeypatch):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", LAYOUT.nbytes)
    store, x, copies = new_store(decide_after=2000), tensors(2000), []
    ids = store.append(x)
    while not store.has_moved:
        copies.append(pickle.dumps(store))
    assert copies
    for copied in map(pickle.loads, copies[:: -(-len(copies) // 10)]):
        check(copied, ids, x)
        more = copied.append(x[:50])
        copied.decide()
        assert copied.stats().is_decided
        check(copied, np.append(ids, more), np.concatenate([x, x[:50]]))


def test_tensors_are_stored_while_those_that_show_how_are_copied(monkeypatch):
    store, x, copies = new_store(), tensors(200), FirstTensors.copies
    began, gate = threading.Event(), threading.Event()

    def wait(first, which):
        began.set()
        assert gate.wait(60)
        return copies(first, which)

    monkeypatch.setattr(FirstTensors, "copies", wait)
    ids = store.append(x[:100])
    assert began.wait(60)
    ids = np.append(ids, store.append(x[100:]))
    check(store, ids, x)
    gate.set()
    store.decide()
    check(store, ids, x)


MODULES = """
import sys
import numpy as np
from obscodec import AutoStore, Layout

rng = np.random.default_rng(0)
noisy = rng.integers(0, 20, (300, 32, 32, 3), np.uint8)
scaled = (np.arange(300 * 32 * 32) % 251).reshape(300, 32, 32).astype(np.float32) / np.float32(255)
stores = [AutoStore(Layout(x.shape[1:], x.dtype)) for x in (noisy, scaled)]
before = set(sys.modules)
for store, x in zip(stores, (noisy, scaled)):
    store.append(x)
    store.decide()
    print(store.choice.chosen.spec)
print({name for name in set(sys.modules) - before if name.partition(".")[0] not in ("numba", "llvmlite")})
"""


def test_the_background_imports_nothing():
    """A process that is forked in the middle of an import would keep half of a module."""
    assert run_python("-c", MODULES).endswith("\nset()\n")


def test_a_store_that_nobody_holds_goes_while_it_chooses(gate):
    store = new_store()
    store.append(tensors(N_FIRST))
    known, job = weakref.ref(store._first), store._move._job
    del store
    gate.set()
    job.wait()
    gc.collect()
    assert job.error is None
    assert known() is None


LEFT = """
import threading
import numpy as np
from llvmlite.binding.ffi import lib
from numba.core.compiler_lock import global_compiler_lock
from obscodec import AutoStore, Layout
from obscodec.kernels import release_left_locks

def is_free(lock):
    found = []
    thread = threading.Thread(target=lambda: found.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return found[0]

@global_compiler_lock
def in_the_middle():
    release_left_locks()
    return is_free(global_compiler_lock._lock)

print(in_the_middle())
store, x = AutoStore(Layout((24, 24), np.uint8), decide_after=8), np.ones((20, 24, 24), np.uint8)
for lock in (global_compiler_lock._lock, lib._lock._lock):
    for _ in range(2):
        lock.acquire()
ids = store.append(x)
store.decide()
print((store.read(ids) == x).all(), store.stats().is_decided)
"""


def test_locks_that_control_c_has_left_to_a_thread_stop_no_choice():
    assert run_python("-c", LEFT, timeout=100).split() == ["False", "True", "True"]


def test_a_tensor_that_is_released_while_it_moves_goes_though_the_move_is_interrupted(monkeypatch):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", 10 * LAYOUT.nbytes)
    store, x, move = new_store(decide_after=100), tensors(99), FirstTensors.move
    ids, errors = store.append(x), [MemoryError()]

    def interrupted(first, part, new):
        if part.end == 99 and errors:
            store.release(ids[98:])
            move(first, part, new)
            raise errors.pop()
        move(first, part, new)

    monkeypatch.setattr(FirstTensors, "move", interrupted)
    with pytest.raises(MemoryError):
        store.decide()
    store.decide()
    assert store.stats().n_tensors == 98
    assert copy.deepcopy(store).stats().n_tensors == 98


def test_a_copy_in_the_middle_of_a_move_lacks_what_was_released(monkeypatch):
    monkeypatch.setattr(first_tensors, "_PART_NBYTES", 10 * LAYOUT.nbytes)
    store, x, move, copies = new_store(decide_after=100), tensors(99), FirstTensors.move, []
    ids, move_some = store.append(x), AutoStore.move_some

    def copied(store):
        if store._first.n_moved == 20:
            copies.append(store.state())
        return move_some(store)

    def released(first, part, new):
        if part.begin == 10:
            store.release(ids[12:14])
        move(first, part, new)

    monkeypatch.setattr(FirstTensors, "move", released)
    monkeypatch.setattr(AutoStore, "move_some", copied)
    store.decide()
    other = AutoStore(**store.arguments())
    other.restore(copies[0])
    other.decide()
    assert other.stats().n_tensors == store.stats().n_tensors == 97
