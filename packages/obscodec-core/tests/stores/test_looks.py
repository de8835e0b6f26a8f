"""A store looks again at how its tensors are stored, in the background; a new store may take the place of the old."""

import copy
import pickle
import threading
from collections.abc import Callable

import numpy as np
import obscodec
import pytest
from appending import appended_by_threads
from changing_codecs import change_codec, change_codecs_often, finish
from forked import exit_status, forked
from obscodec import AutoStore, CorruptStream, Field, FrameStack, FrameStore, Layout, RingBuffer, SlotError, TensorArray
from obscodec.frames import FrameLog
from obscodec.stores.auto import plan
from obscodec.stores.auto.looks import LOOKER
from obscodec.stores.narrow.narrow_store import NarrowStore

pytestmark = pytest.mark.in_background
SIDE = 40
LAYOUT = Layout((SIDE, SIDE), np.uint8)
N_FIRST = 32


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(n, SIDE, SIDE), dtype=np.uint8)


def game(n: int, seed: int = 0) -> np.ndarray:
    """Frames in which a few pixels change."""
    rng, changes = np.random.default_rng(seed), np.zeros((n, SIDE * SIDE), np.uint8)
    changes[np.arange(n), rng.integers(SIDE * SIDE, size=n)] = rng.integers(1, 256, n)
    return changes.cumsum(0, np.uint8).reshape(n, SIDE, SIDE)


def append(store: AutoStore, tensors: np.ndarray, at_once: int = 8) -> np.ndarray:
    ids = []
    for k in range(0, len(tensors), at_once):
        ids.append(store.append(tensors[k : k + at_once]))
        if k == N_FIRST:
            store.decide()
        finish()
    return np.concatenate(ids)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    change_codecs_often(monkeypatch)


def n_stores(store: AutoStore) -> int:
    return len(store._members)


def test_new_tensors_take_the_codec_that_suits_them():
    store, first, then = AutoStore(LAYOUT, decide_after=N_FIRST), noise(300), game(3000)
    before = append(store, first)
    assert store.stats().codec == "raw"
    assert not store.stats().last_look.is_taken
    after = append(store, then)
    stats = store.stats()
    assert stats.codec.startswith("delta-rle")
    assert stats.last_look is not None
    np.testing.assert_array_equal(store.read(before), first)
    np.testing.assert_array_equal(store.read(after), then)
    some = np.random.default_rng(0).permutation(len(first) + len(then))
    np.testing.assert_array_equal(store.read(np.append(before, after)[some]), np.append(first, then, axis=0)[some])
    n_late = 2000  # most of the first ones of the game were stored as they are
    store.release(np.append(before, after[:-n_late]))
    assert store.stats().total_bytes < n_late * LAYOUT.nbytes / 4


def test_it_says_when_it_looked_and_what_it_found():
    store = AutoStore(LAYOUT, decide_after=N_FIRST)
    append(store, noise(400))
    assert "; looked again after " in store.stats().encoding
    assert store.stats().encoding.endswith(" frames, and kept it")
    n = store.stats().last_look.n_frames
    append(store, game(600))
    look = store.stats().last_look
    assert n < look.n_frames <= 1000
    assert store.choice.reason.endswith("on the newest 64 frames")


def test_a_codec_that_goes_on_to_suit_stays():
    store = AutoStore(LAYOUT, decide_after=N_FIRST)
    append(store, game(3000))
    assert n_stores(store) == 1
    look = store.stats().last_look
    assert not look.is_taken
    assert look.n_frames >= 2048 / 2


@pytest.mark.parametrize("options", [{"codec": "raw"}, {"max_bytes": 1 << 24}])
def test_a_store_that_was_told_its_codec_or_its_size_does_not_look(options):
    store = AutoStore(LAYOUT, decide_after=N_FIRST, **options)
    append(store, np.append(noise(300), game(3000), axis=0))
    assert store.stats().last_look is None


def test_a_store_that_follows_a_plan_does_not_look():
    store, other = AutoStore(LAYOUT), AutoStore(LAYOUT)
    append(other, noise(256))
    store.follow(other._members[-1].plan)
    append(store, game(3000))
    assert store.stats().codec == "raw"
    assert store.stats().last_look is None


def frames(n: int, seed: int) -> np.ndarray:
    return game(n, seed)


def stacks(n: int, seed: int) -> np.ndarray:
    """Stacks of three frames, some of which do not follow from the one before, and are listed."""
    rng, x = np.random.default_rng(seed), game(n + 2, seed)
    found = np.stack([x[k : k + 3] for k in range(n)])
    for k in np.flatnonzero(rng.random(n) < 0.1):
        found[k] = found[k][rng.permutation(3)]
    return found


def scaled(x: np.ndarray, seed: int) -> np.ndarray:
    """Scaled bytes, some of which are not, but for the first ones."""
    found, rng = x.astype(np.float32) / np.float32(255), np.random.default_rng(seed)
    found[2 * N_FIRST :][rng.random(len(x) - 2 * N_FIRST) < 0.1] += np.float32(0.123)
    return found


def floats(n: int, seed: int) -> np.ndarray:
    return scaled(game(n, seed), seed)


def stacked_floats(n: int, seed: int) -> np.ndarray:
    return scaled(stacks(n, seed), seed)


KINDS: dict[str, Callable[[int, int], np.ndarray]] = {
    "frames": frames,
    "stacks": stacks,
    "floats": floats,
    "stacked floats": stacked_floats,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_equals_a_dict_while_codecs_change(looks_often, kind, seed):
    n, x = 1500, KINDS[kind](1500, seed)
    rng = np.random.default_rng(seed)
    stack = FrameStack(3) if "stack" in kind else None
    store = AutoStore(Layout(x.shape[1:], x.dtype), decide_after=N_FIRST, frame_stack=stack)
    known: list[tuple[int, int]] = []
    most = 1
    for i in range(0, n, 5):
        which = rng.integers(max(0, i - 5), i + 5, size=5) % n
        known += zip(store.append(x[which], rng.integers(2, size=5)).tolist(), which.tolist(), strict=True)
        if rng.random() < 0.3:
            finish()
        some = [known[k] for k in rng.integers(len(known), size=9)]
        np.testing.assert_array_equal(store.read([i for i, _ in some]), x[[k for _, k in some]])
        if rng.random() < 0.5:
            gone = [known.pop(rng.integers(len(known))) for _ in range(rng.integers(min(len(known), 12)))]
            store.release(np.array([i for i, _ in gone], np.int64))
        if rng.random() < 0.02:
            store = copy.deepcopy(store) if rng.random() < 0.5 else pickle.loads(pickle.dumps(store))
        most = max(most, n_stores(store))
    assert most > 3
    assert isinstance(store._members[-1].store, NarrowStore) == ("floats" in kind)
    np.testing.assert_array_equal(store.read([i for i, _ in known]), x[[k for _, k in known]])
    if "stack" not in kind:
        with pytest.raises(SlotError):
            store.read([max(i for i, _ in known) + 100_000])
    store.release(np.array([i for i, _ in known]))
    assert store.stats().n_tensors == 0


def test_a_store_without_tensors_goes(monkeypatch, looks_often):
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(2000)
    ids = append(store, x[:200])
    assert n_stores(store) > 1
    for k in range(200, 2000, 20):
        new = append(store, x[k : k + 20])
        store.release(ids[: len(new)])
        ids = np.append(ids[len(new) :], new)
        np.testing.assert_array_equal(store.read(ids), x[k - 180 : k + 20])
    assert n_stores(store) > 1
    store.release(ids)
    monkeypatch.setattr(plan, "pays", lambda *_: False)
    for k in range(10):
        append(store, noise(40, k))
    assert n_stores(store) == 1


def test_threads_append_and_read_while_codecs_change(looks_often):
    store = AutoStore(LAYOUT, decide_after=N_FIRST)
    ids, x = appended_by_threads(store, [game(400, seed) for seed in range(3)])
    finish()
    assert n_stores(store) > 2
    np.testing.assert_array_equal(store.read(ids), x)


@pytest.mark.parametrize("n_envs", [1, 3])
def test_a_ring_is_written_step_by_step_while_codecs_change(looks_often, n_envs, tmp_path):
    x = stacks(1200 * n_envs, 0).reshape(1200, n_envs, 3, SIDE, SIDE)
    field = Field((3, SIDE, SIDE), np.uint8, decide_after=N_FIRST, frame_stack=3)
    buffer = RingBuffer(300, {"obs": field, "next_obs": Field(field.shape, np.uint8, shares="obs")}, n_envs=n_envs)
    most = 1
    for step in range(1199):
        buffer.append(obs=x[step], next_obs=x[step + 1])
        if step % 100 == 99:
            finish()
            first = max(0, step - 299)
            np.testing.assert_array_equal(buffer[:]["obs"], x[first : step + 1])
            np.testing.assert_array_equal(buffer[:]["next_obs"], x[first + 1 : step + 2])
            (store,) = buffer.stores
            most = max(most, n_stores(store))
    assert most > 2
    obscodec.save(buffer, tmp_path / "ring")
    loaded = obscodec.load(tmp_path / "ring")
    np.testing.assert_array_equal(loaded[:]["obs"], buffer[:]["obs"])
    for step in range(300):
        loaded.append(obs=x[step], next_obs=x[step + 1])
    np.testing.assert_array_equal(loaded[:]["obs"], x[:300])


def test_many_tensors_that_come_while_a_store_is_made_undo_the_change(monkeypatch, looks_often):
    store, x, new_store = AutoStore(LAYOUT, decide_after=N_FIRST), game(4000), plan.StoragePlan.new_store
    ids, at = [append(store, x[:N_FIRST])], iter(range(1000, 4000, 1000))

    def late(*arguments: object, **options: object) -> object:
        if (k := next(at, None)) is not None:
            ids.append(store.append(x[k - 1000 + N_FIRST : k + N_FIRST]))
        return new_store(*arguments, **options)

    monkeypatch.setattr(plan.StoragePlan, "new_store", late)
    store.stats()  # which stores what waits
    store.look(1.0)
    assert len(ids) > 1
    assert n_stores(store) == 1
    ids.append(store.append(x[:10]))
    np.testing.assert_array_equal(store.read(ids[-1]), x[:10])


def test_a_thread_that_was_about_to_store_in_the_closed_store_takes_the_new_one(monkeypatch):
    store, x, take_in = AutoStore(LAYOUT, decide_after=N_FIRST), game(300), FrameStore.take_in
    ids, looks = append(store, x[:64]), [lambda: change_codec(store, "zstd:1", 1)]
    store.stats()  # which stores what waits

    def late(inner: FrameStore, *arguments: object) -> None:
        if looks:
            looks.pop()()
        take_in(inner, *arguments)

    n = n_stores(store)
    monkeypatch.setattr(FrameStore, "take_in", late)
    new = store.append(x[64:])
    assert n_stores(store) == n + 1
    assert (new >= store._members[-1].first_id).all()
    np.testing.assert_array_equal(store.read(np.append(ids, new)), x)


def test_a_change_that_fails_leaves_the_store_as_it_was(monkeypatch):
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(300)
    ids = append(store, x[:64])
    with monkeypatch.context() as patched:
        patched.setattr(AutoStore, "_change", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            change_codec(store, "zstd:1", 1)
    assert n_stores(store) == 1
    ids = np.append(ids, append(store, x[64:]))
    np.testing.assert_array_equal(store.read(ids), x)


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError])
def test_a_look_that_fails_is_logged_and_harms_nobody(monkeypatch, caplog, error):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(FrameLog, "newest", fail)
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(1000)
    np.testing.assert_array_equal(store.read(append(store, x)), x)
    assert ("could not look again" in caplog.text) == (error is ZeroDivisionError)


def test_a_forked_process_goes_on_with_what_it_has(looks_often):
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(400)
    ids = append(store, x[:200])

    def use() -> None:
        more = np.append(ids, append(store, x[200:]))
        np.testing.assert_array_equal(store.read(more), x)

    assert exit_status(forked(use)) == 0


def test_a_process_that_was_forked_while_a_store_was_closed_opens_it():
    """Such as by a signal handler, which waits for a second for the locks of others."""
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(400)
    ids = append(store, x[:200])
    store._members[-1].close_for(store._members[-1]._replace(first_wide=1 << 20, first_row=1 << 20))

    def use() -> None:
        np.testing.assert_array_equal(store.read(np.append(ids, append(store, x[200:]))), x)

    assert exit_status(forked(use, seconds=20)) == 0


def test_the_newest_frames_are_in_the_order_of_time_of_each_sequence():
    for block_frames in (1, 4):
        store, x = FrameStore(LAYOUT, codec="raw", block_frames=block_frames), game(96)
        store.log.watch(lambda: None)
        ids = store.append(x, np.arange(96) % 3)
        store.stats()
        newest = store.log.newest(48)
        assert newest.n_references == 1
        rows = {row.tobytes(): k for k, row in enumerate(x)}
        numbers = np.array([rows[row.tobytes()] for row in newest.rows])
        assert len(numbers) == 48
        for sequence in np.unique(newest.sequences):
            of_sequence = numbers[newest.sequences == sequence]
            assert (np.diff(of_sequence) == 3).all()
        assert len(np.unique(newest.sequences)) == 3
        store.release(ids)
        assert len(store.log.newest(48).rows) <= 3 * 3  # which may come again


def test_a_state_whose_stores_have_the_same_ids_is_refused(looks_often):
    store = AutoStore(LAYOUT, decide_after=N_FIRST)
    append(store, game(300))
    state = store.state()
    assert state["before"]
    for first_id in (1, state["first_id"] // 9):
        with pytest.raises(CorruptStream):
            AutoStore(**store.arguments()).restore({**state, "first_id": first_id, "first_wide": first_id})


def test_a_state_whose_first_tensors_moved_to_no_store_is_refused():
    store = AutoStore(LAYOUT)
    store.append(game(20))
    state = store.state()
    state["first"], state["sequences"] = state["first"][5:], state["sequences"][5:]
    with pytest.raises(CorruptStream, match="no store to which"):
        AutoStore(LAYOUT).restore(state)


def test_a_store_whose_others_went_is_saved_and_copied(tmp_path):
    """As a ring is after a turn."""
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(600)
    ids = append(store, x[:200])
    change_codec(store, "zstd:1", 1)
    store.release(ids)
    array = TensorArray.zeros((400,), store)
    for k in range(200, 600, 20):
        array[k - 200 : k - 180] = x[k : k + 20]
    change_codec(store, "raw", 1)
    LOOKER.submit(lambda: store.look(1.0)).result()
    obscodec.save(array, tmp_path / "array")
    for other in (copy.deepcopy(array), pickle.loads(pickle.dumps(array)), obscodec.load(tmp_path / "array")):
        np.testing.assert_array_equal(other[:], x[200:])
        other[:100] = x[:100]
        np.testing.assert_array_equal(other[:], np.append(x[:100], x[300:], axis=0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_release_releases_nothing_of_any_store(looks_often, kind):
    x = KINDS[kind](600, 0)
    stack = FrameStack(3) if "stack" in kind else None
    store = AutoStore(Layout(x.shape[1:], x.dtype), decide_after=N_FIRST, frame_stack=stack)
    ids = append(store, x)
    assert n_stores(store) > 1
    store.release(ids[-1:])
    n = store.stats().n_tensors
    for bad in (ids[-1], ids[-2], 1 << 22):  # gone, named twice, of no store
        with pytest.raises(SlotError):
            store.release([*ids[:-1], bad])
        assert store.stats().n_tensors == n
        np.testing.assert_array_equal(store.read(ids[:-1]), x[:-1])
    store.release(ids[:-1])
    assert store.stats().n_tensors == 0


def test_wide_tensors_of_a_store_of_stacks_of_codes():
    frames, rng = (game(200) / np.float32(255)).astype(np.float32)[:, None], np.random.default_rng(0)
    x = np.concatenate([frames[k : k + 190] for k in range(4)], axis=1)
    wide = rng.normal(size=(10, 4, SIDE, SIDE)).astype(np.float32)
    store = AutoStore(Layout((4, SIDE, SIDE), np.float32), decide_after=64, frame_stack=4)
    ids = append(store, x)
    for spec in ("zstd:1", "raw"):
        change_codec(store, spec, 1)
        ids = np.append(ids, store.append(wide))
        ids = np.append(ids, store.append(x[:30]))
    assert isinstance(store._members[-1].store, NarrowStore)
    expected = np.concatenate([x, wide, x[:30], wide, x[:30]])
    np.testing.assert_array_equal(store.read(ids), expected)
    store.release(ids)
    assert store.stats().n_tensors == 0


def test_ids_do_not_run_out():
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(100)
    ids = append(store, x)
    for k in range(300):
        change_codec(store, ("zstd:1", "raw")[k % 2], 1)
        new = store.append(x)
        store.release(ids)
        ids = new
        LOOKER.submit(lambda: store._change(store._store.without_empty())).result()
    assert ids.max() < 3_000_000
    np.testing.assert_array_equal(store.read(ids), x)


def test_ids_that_would_be_too_large_keep_the_codec(monkeypatch):
    monkeypatch.setattr("obscodec.stores.auto.succession._MOST_FIRST", 5000)
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), noise(300)
    append(store, x)
    append(store, game(3000))
    assert n_stores(store) == 1
    assert not store.stats().last_look.is_taken


def test_a_look_does_not_wait_for_a_caller_that_waits_for_a_move():
    """Stores of one storage share their lock."""
    one, other = AutoStore(LAYOUT, decide_after=N_FIRST), AutoStore(LAYOUT, decide_after=N_FIRST, max_bytes=1 << 24)
    append(one, game(200))
    other._first.most = N_FIRST
    other.changing = one.changing
    with one.changing:
        looks = threading.Thread(target=change_codec, args=(one, "zstd:1", 1))
        looks.start()
        other.append(noise(40))  # waits until first tensors have moved
    looks.join()
    assert n_stores(one) == 2


@pytest.mark.parametrize("at", [1, 2])
def test_a_log_that_can_not_be_closed_leaves_all_open(monkeypatch, at):
    store, x = AutoStore(Layout((SIDE, SIDE), np.float32), decide_after=N_FIRST), floats(80, 0)
    close, n = FrameLog.close, []
    ids = append(store, x[:60])

    def fail(*arguments: object) -> bool:
        n.append(0)
        if len(n) == at:
            raise MemoryError
        return close(*arguments)

    monkeypatch.setattr(FrameLog, "close", fail)
    with pytest.raises(MemoryError):
        change_codec(store, "zstd:1", 1)
    np.testing.assert_array_equal(store.read(np.append(ids, store.append(x[60:]))), x)


def test_the_rest_of_a_batch_takes_the_new_store(monkeypatch):
    store, x, take_in, done = AutoStore(LAYOUT, decide_after=N_FIRST), game(100), FrameStore.take_in, []
    ids = store.append(x[:20])
    store._first.most = N_FIRST

    def late(inner: FrameStore, *arguments: object) -> None:
        if store._last is not None and not done:
            done.append(change_codec(store, "zstd:1", 1))
        take_in(inner, *arguments)

    monkeypatch.setattr(FrameStore, "take_in", late)
    ids = np.append(ids, store.append(x[20:]))
    assert done
    np.testing.assert_array_equal(store.read(ids), x)


def test_an_empty_store_between_others_goes():
    store, x = AutoStore(LAYOUT, decide_after=N_FIRST), game(400)
    kept = append(store, x[:50])
    for k in range(50, 350, 50):
        change_codec(store, ("zstd:1", "raw")[k // 50 % 2], 1)
        ids = store.append(x[k : k + 50])
        store.release(ids[:-1] if k == 300 else ids)
    assert n_stores(store) == 7
    LOOKER.submit(lambda: store.look(1.0)).result()
    assert n_stores(store) == 2
    np.testing.assert_array_equal(store.read(np.append(kept, ids[-1:])), np.append(x[:50], x[349:350], axis=0))


def test_an_interrupted_release_is_finished_though_its_stores_have_changed(monkeypatch):
    store, x, give_back, interrupts = AutoStore(LAYOUT, decide_after=N_FIRST), game(150), FrameStore._give_back, [1]
    first = append(store, x[:50])
    for spec in ("zstd:1", "raw"):
        change_codec(store, spec, 1)
        last = store.append(x[50:100])
    store.release(first)

    def interrupted(inner: FrameStore, ids: np.ndarray) -> None:
        if ids.any() and interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        give_back(inner, ids)

    monkeypatch.setattr(FrameStore, "_give_back", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.release(last[:10])
    LOOKER.submit(lambda: store.look(1.0)).result()
    assert n_stores(store) == 2
    store.release([])
    assert store.stats().n_tensors == 90


def test_a_store_that_followed_a_plan_does_not_look_when_it_was_copied():
    store, other = AutoStore(LAYOUT), AutoStore(LAYOUT)
    append(other, noise(256))
    store.follow(other._members[-1].plan)
    copied = pickle.loads(pickle.dumps(store))
    append(copied, game(3000))
    assert copied.stats().last_look is None


def test_the_oldest_streams_are_spilled_first(tmp_path):
    store = AutoStore(LAYOUT, decide_after=N_FIRST)
    append(store, noise(3000))
    change_codec(store, "zstd:1", 1)
    append(store, noise(3000, 1))
    store.stats()
    store.spill(str(tmp_path), 1 << 20)
    old, new = (member.store.stats().disk_bytes for member in store._members)
    assert old > 0 == new
