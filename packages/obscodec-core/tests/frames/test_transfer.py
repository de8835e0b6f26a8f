"""A store that adopts tensors of others holds what it would hold had they been appended, and takes as much memory."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest
from atari_frames import frames
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec import (
    AutoStore,
    CorruptStream,
    DTypeError,
    FrameStack,
    FrameStore,
    HeapFull,
    Layout,
    ShapeError,
    SlotError,
    StackStore,
)
from obscodec.codecs import encode_varint
from obscodec.frames import FrameLog
from obscodec.segments import Segments
from obscodec.stores import Store

N_PLAYED = 110
ZEROS = 2 * N_PLAYED  # where in the pool
FRAME = Layout((84, 84), np.uint8)
STACK = Layout((4, 84, 84), np.uint8)
GAMES = ["MsPacman", "Pong", "Breakout"]
CODECS = [("delta-rle", 16), ("delta-rle|zstd:3", 16), ("zstd:3", 4), ("lz4", 1), ("raw", 1), ("rle", 1)]


def frame_store(spec: str = "delta-rle", block_frames: int = 16, **options: object) -> FrameStore:
    return FrameStore(FRAME, codec=spec, block_frames=block_frames, threads=1, **options)


def stack_store(**options: object) -> StackStore:
    return StackStore(FrameStore(FRAME_OF_STACK, stack=4, threads=1, **options), STACK, FrameStack(4))


FRAME_OF_STACK = FrameStack(4).frame_layout(STACK)


def stacks(game: str, n: int, seed: int = 0) -> np.ndarray:
    """``[n, 4, 84, 84]``, over the end of an episode."""
    played = frames(game, 320, seed)[: n + 3]
    which = np.arange(n)[:, None] + np.arange(4)
    which[n // 2 :] = np.maximum(which[n // 2 :], n // 2 + 3)
    return played[which]


MAKERS: list[tuple[str, Callable[[], Store]]] = [
    *((f"{spec}, {n}", lambda spec=spec, n=n: frame_store(spec, n)) for spec, n in CODECS),
    ("stacks", stack_store),
    ("auto", lambda: AutoStore(STACK, threads=1)),
    ("auto of floats", lambda: AutoStore(Layout((4, 84, 84), np.float32), codec="delta-rle", threads=1)),
]


def pool(layout: Layout) -> np.ndarray:
    """Tensors to draw from: played ones, zeros, and some that nothing follows."""
    of_stacks = len(layout.shape) == 3
    played = [stacks(game, N_PLAYED) if of_stacks else frames(game, 320, 0)[:N_PLAYED] for game in GAMES[:2]]
    noise = np.random.default_rng(0).integers(256, size=(4, *layout.shape), dtype=np.uint8)
    tensors = np.concatenate([*played, np.zeros((2, *layout.shape), np.uint8), noise])
    if layout.dtype == np.uint8:
        return tensors
    tensors = tensors / np.float32(255)
    tensors[[50, -1]] = np.random.default_rng(1).normal(size=(2, *layout.shape))  # which have no narrow form
    return tensors


class StoresThatAdoptEqualDicts(RuleBasedStateMachine):
    """Three stores, of which each appends and adopts from the others, and from itself."""

    @initialize(maker=st.sampled_from(MAKERS))
    def make(self, maker):
        self.stores = [maker[1]() for _ in range(3)]
        self.pool = pool(self.stores[0].layout)
        self.held: list[list[tuple[int, int]]] = [[], [], []]  # ids, and which of the pool they are

    @rule(to=st.integers(0, 2), first=st.integers(0, 225), n=st.integers(0, 120), stream=st.integers(0, 2))
    def append(self, to, first, n, stream):
        which = (first + np.arange(n)) % len(self.pool)
        self.know(to, self.stores[to].append(self.pool[which], stream), which)

    @rule(to=st.integers(0, 2), of=st.integers(0, 2), part=st.sampled_from([0.1, 0.6, 1]), seed=st.integers(0, 1000))
    def transfer(self, to, of, part, seed):
        held = self.held[of]
        rng = np.random.default_rng(seed)
        begin = int(rng.integers(len(held) + 1))
        again = [held[int(i)] for i in rng.integers(max(1, len(held)), size=3)] if held else []
        chosen = held[begin : begin + int(part * len(held))] + again
        ids, which = np.array([(0, ZEROS), *chosen]).T
        adopted = self.stores[to].transfer(self.stores[of], ids[None])
        assert adopted.shape == (1, len(ids))
        self.know(to, adopted[0], which)

    def know(self, to, ids, which):
        self.held[to] += zip(ids.tolist(), which.tolist(), strict=True)

    @rule(of=st.integers(0, 2), part=st.sampled_from([0.1, 0.5, 1]), seed=st.integers(0, 1000))
    def release(self, of, part, seed):
        order = np.random.default_rng(seed).permutation(len(self.held[of])).tolist()
        gone, kept = order[: int(part * len(order))], order[int(part * len(order)) :]
        self.stores[of].release(np.array([0, *(self.held[of][i][0] for i in gone)]))
        self.held[of] = [self.held[of][i] for i in sorted(kept)]

    @rule(of=st.integers(0, 2), how=st.sampled_from([copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))]))
    def rebuild(self, of, how):
        self.stores[of] = how(self.stores[of])

    @invariant()
    def each_holds_what_it_was_given(self):
        for store, held in zip(self.stores, self.held, strict=True):
            some = held[-60:]
            ids, which = [i for i, _ in some], [which for _, which in some]
            assert store.read(ids).tobytes() == self.pool[which].tobytes()

    def teardown(self):
        for store, held in zip(getattr(self, "stores", []), getattr(self, "held", []), strict=True):
            store.release(np.array([i for i, _ in held], np.int64))
            assert store.stats().n_tensors == 0


TestStoresThatAdoptEqualDicts = StoresThatAdoptEqualDicts.TestCase
TestStoresThatAdoptEqualDicts.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def observations(game: str, n: int) -> dict[str, np.ndarray]:
    played = stacks(game, n + 1)
    return {"obs": played[:-1], "next_obs": played[1:]}


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("make", [stack_store, lambda: AutoStore(STACK)], ids=["stacks", "auto"])
def test_adopting_takes_as_much_memory_as_appending(game, make):
    """Batches of 100 steps, each from a store of its own."""
    appending, adopting = make(), make()
    for seed in range(6):
        batch = {name: array ^ np.uint8(seed) for name, array in observations(game, 300).items()}
        for begin in range(0, 300, 150):
            each_step = np.stack([array[begin : begin + 150] for array in batch.values()], axis=1)
            source, together = make(), each_step.reshape(-1, *STACK.shape)
            appending.append(together)
            adopted = adopting.transfer(source, source.append(together).reshape(150, 2).T)
            assert np.array_equal(adopting.read(adopted.T.reshape(-1)), together)
    one, other = appending.stats(), adopting.stats()
    assert other.n_tensors == pytest.approx(one.n_tensors, rel=0.02)
    assert other.total_bytes < 1.05 * one.total_bytes


class Calls:
    """Counts the calls of some methods, which do what they did."""

    def __init__(self, patch: pytest.MonkeyPatch, *methods: tuple[type, str]) -> None:
        self.n = 0
        for owner, name in methods:
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, method: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **options: object) -> object:
            self.n += 1
            return method(*args, **options)

        return counted


@pytest.mark.parametrize("make", [stack_store, lambda: AutoStore(STACK)])
def test_nothing_is_decoded_and_no_frame_encoded(make, monkeypatch):
    source, target, first = make(), make(), stacks("Pong", 160)
    ids = source.append(np.concatenate([first, stacks("Pong", 160) ^ np.uint8(3)]))
    target.transfer(source, ids[None, :160])
    calls = Calls(monkeypatch, (FrameLog, "take_in"), (FrameLog, "read"))
    adopted = target.transfer(source, ids[None])[0]
    assert calls.n == 0
    assert np.array_equal(target.read(adopted[:160]), first)
    assert calls.n > 0


@pytest.mark.parametrize(("spec", "block_frames"), [("raw", 1), ("zstd:3", 4), ("rle", 1), ("lz4", 1)])
def test_full_blocks_of_any_codec_are_copied(spec, block_frames, monkeypatch):
    """Once no dictionary is trained any more, and none is there; and always if nothing is compressed."""
    played = np.concatenate([frames(game, 320, 0)[:300] for game in GAMES])
    source, target = frame_store(spec, block_frames), frame_store(spec, block_frames)
    for store in (source, target):
        monkeypatch.setattr(store.log.coder.versions, "learning", False)
    ids = source.append(played)[: len(played) // block_frames * block_frames]
    calls = Calls(monkeypatch, (FrameStore, "take_in"))
    adopted = target.transfer(source, ids[None])[0]
    assert calls.n == 1  # the frame that is still in the open block
    assert np.array_equal(target.read(adopted), played)
    target.release(adopted)
    assert target.stats().n_tensors == 0


@pytest.mark.parametrize("spec", ["zstd:3", "delta-rle|zstd:3", "lz4"])
def test_a_dictionary_stays_in_its_store(spec):
    block_frames = 16 if spec.startswith("delta") else 1
    source, target = frame_store(spec, block_frames), frame_store(spec, block_frames)
    played = np.concatenate([frames("MsPacman", 320, 0) ^ np.uint8(key) for key in range(16)])
    ids = source.append(played)
    trained = source.stats().dictionary_bytes
    adopted = target.transfer(source, ids[None])[0]
    assert np.array_equal(target.read(adopted), played)
    assert target.stats().dictionary_bytes == pytest.approx(trained, rel=0.2)  # of its own
    del source
    assert np.array_equal(target.read(adopted[:50]), played[:50])


def test_what_is_appended_later_leaves_blocks_of_one_frame():
    source, target = frame_store("raw", 1), frame_store("raw", 1)
    ids = source.append(frames("MsPacman", 320, 0)[:40])
    adopted = target.transfer(source, ids[None])[0]
    later = target.append(frames("Pong", 320, 0)[:40])
    assert np.array_equal(target.read(adopted), frames("MsPacman", 320, 0)[:40])
    assert np.array_equal(target.read(later), frames("Pong", 320, 0)[:40])


def test_few_frames_of_a_block_are_decoded_and_many_are_taken_with_the_rest():
    played = frames("MsPacman", 320, 0)
    source = frame_store()
    ids = source.append(played)
    few, many = frame_store(), frame_store()
    few.transfer(source, np.unique(ids // 16)[None, 1:] * 16)
    many.transfer(source, ids[ids % 16 < 8][None])
    assert few.log.heap.stats().n_streams <= 2
    assert many.log.heap.stats().n_streams >= 18


@pytest.mark.parametrize("other", [frame_store("delta-rle", 8), frame_store("lz4", 1), AutoStore(FRAME)])
def test_a_store_that_encodes_in_another_way_is_decoded(other):
    target, played = frame_store(), frames("Pong", 320, 0)
    assert not target.transfer_alike(other, other.append(played), np.zeros(len(played), np.int64))
    assert target.stats().n_tensors == 0
    adopted = target.transfer(other, other.append(played).reshape(2, 160))
    assert np.array_equal(target.read(adopted.reshape(-1)), played)


def test_tensors_of_another_layout_are_refused():
    target = AutoStore(STACK)
    for layout, error in [(FRAME, ShapeError), (Layout((4, 84, 84), np.int8), DTypeError)]:
        other = AutoStore(layout)
        ids = other.append(np.ones((300, *layout.shape), layout.dtype))
        with pytest.raises(error):
            target.transfer(other, ids[None])
    with pytest.raises(SlotError):
        target.transfer(AutoStore(STACK), np.array([[7]]))
    assert target.stats().n_tensors == 0


def test_one_that_has_not_decided_decides_as_the_other_did():
    played = stacks("Pong", 300)
    source, target = AutoStore(STACK), AutoStore(STACK)
    early = target.append(stacks("MsPacman", 20))
    target.release(early[:5])
    adopted = target.transfer(source, source.append(played)[None])[0]
    assert target.choice == source.choice is not None
    assert np.array_equal(target.read(adopted), played)
    assert np.array_equal(target.read(early[5:]), stacks("MsPacman", 20)[5:])
    for ids in ([early[0]], [2 + 20], [2 + 255]):  # released; never given out
        with pytest.raises(SlotError):
            target.read(ids)


def test_one_that_looks_at_more_tensors_decides_as_the_other_did():
    played = stacks("Pong", 40)
    source, target = AutoStore(STACK, decide_after=8), AutoStore(STACK)
    adopted = target.transfer(source, source.append(played)[None])[0]
    assert target.choice == source.choice is not None
    assert np.array_equal(target.read(adopted), played)


@pytest.mark.parametrize(
    "options",
    [{"codec": "delta-rle"}, {"frame_stack": FrameStack(4)}, {"budget": "9 s/batch"}, {"block_frames": 16}],
)
def test_one_that_was_asked_for_something_else_decides_alone(options):
    played = stacks("Pong", 300)
    source, target = AutoStore(STACK), AutoStore(STACK, **options)
    ids = source.append(played)
    adopted = target.transfer(source, ids[None, :100])[0]
    assert target.stats().choice is None  # undecided, or given
    assert np.array_equal(target.read(adopted), played[:100])


def test_a_full_store_is_left_as_it_was():
    noise = np.random.default_rng(0).integers(256, size=(600, 84, 84), dtype=np.uint8)
    source, target = frame_store(), frame_store(max_bytes=1 << 20)
    ids, held = source.append(noise), target.append(noise[:64])
    before = target.stats()
    for wanted in (ids, ids[ids % 5 < 3]):
        with pytest.raises(HeapFull):
            target.transfer(source, wanted[None])
        after = target.stats()
        assert (after.n_tensors, after.live_bytes) == (before.n_tensors, before.live_bytes)
        assert np.array_equal(target.read(held), noise[:64])
    adopted = target.transfer(source, ids[None, :32])[0]
    assert np.array_equal(target.read(adopted), noise[:32])


@pytest.mark.parametrize(("spec", "block_frames"), CODECS[:4])
def test_damaged_blocks_are_refused_and_nothing_is_lost(spec, block_frames):
    played = frames("MsPacman", 320, 0)[:100]
    whole = frame_store(spec, block_frames)
    ids, rng = whole.append(played), np.random.default_rng(0)
    target = frame_store(spec, block_frames)
    held = target.append(frames("Pong", 320, 0)[:100])
    refused = 0
    for _ in range(60):
        source = copy.deepcopy(whole)
        streams = source.log.heap.get(np.unique(ids // block_frames)[: 60 // block_frames])
        stream = streams[int(rng.integers(len(streams)))]
        stream[int(rng.integers(len(stream)))] ^= np.uint8(1 << rng.integers(8))
        before = target.stats().n_tensors
        try:
            adopted = target.transfer(source, ids[None])[0]
        except CorruptStream:
            refused += 1
        else:
            try:  # a literal has changed, or a stream that was not looked into
                target.read(adopted)
            except CorruptStream:
                refused += 1
            target.release(adopted)
        assert target.stats().n_tensors == before
    assert refused > 0
    assert np.array_equal(target.read(held), frames("Pong", 320, 0)[:100])


NOT_TAKEN = r"^a block of the other store can't be taken over: "


def test_truncated_blocks_are_refused():
    source, target = frame_store(), frame_store()
    ids = source.append(frames("MsPacman", 320, 0)[:64])
    block = int(ids[20] // 16)
    source.stats()  # which stores full blocks
    content = source.log.heap.get([block])[0]
    for n in (0, 1, 2, 3, len(content) // 2, len(content) - 1):
        source.log.heap.put([block], Segments.of([content[:n]]))
        with pytest.raises(CorruptStream, match=NOT_TAKEN):
            target.transfer(source, ids[None])
    source.log.heap.free([block])
    with pytest.raises(CorruptStream, match=NOT_TAKEN):
        target.transfer(source, ids[None])
    assert target.stats().n_tensors == 0


def test_a_block_of_more_frames_than_a_block_has_is_refused():
    source, target = frame_store(), frame_store()
    ids = source.append(frames("MsPacman", 320, 0)[:64])
    source.log.heap.put([int(ids[20] // 16)], Segments.of([bytes([0, 0, 17, *[0] * 17])]))  # patches without runs
    with pytest.raises(CorruptStream, match=NOT_TAKEN + "it holds more than its frames need$"):
        target.transfer(source, ids[None])
    assert target.stats().n_tensors == 0


@pytest.mark.parametrize("spec", ["delta-rle", "delta-rle|lz4", "delta-rle|zstd:3"])
def test_a_block_without_patches_is_read_and_taken(spec):
    """No store writes one, but the format of its blocks has them."""
    noise = np.random.default_rng(0).integers(256, size=(16, 84, 84), dtype=np.uint8)
    source, target = frame_store(spec), frame_store(spec)
    ids = source.append(frames("MsPacman", 320, 0)[:64])
    number, first = int(ids[20] // 16), int(ids[20] // 16) * 16
    head = bytes([0, 127])
    source.log.heap.put([number], Segments.of([head + noise.tobytes()]))
    places = np.array([3, 3, 9, 15])
    assert np.array_equal(source.read(first + places), noise[places])
    assert np.array_equal(target.read(target.transfer(source, ids[None])[0]), source.read(ids))
    few, left = "it has fewer frames than are wanted of it", "it holds more than its frames need"
    for rest, why in [(noise[:15].tobytes() + b"x", few), (noise.tobytes() + b"x", left)]:
        source.log.heap.put([number], Segments.of([head + rest]))
        with pytest.raises(CorruptStream, match=NOT_TAKEN + why + "$"):
            target.transfer(source, ids[None])


def test_a_pickle_whose_frames_follow_others_that_can_not_be_is_refused():
    source = stack_store()
    source.append(stacks("Pong", 50))
    source.frames.log.tables.previous[40] = 1 << 30
    with pytest.raises(CorruptStream, match=r"'previous' of a state is in 0\.\.\d+, got 0\.\.1073741824"):
        pickle.loads(pickle.dumps(source))


def test_many_threads_transfer_into_one_store():
    played = [stacks(game, 100) for game in GAMES]
    sources = [AutoStore(STACK, codec="delta-rle") for _ in GAMES]
    ids = [store.append(np.concatenate([part] * 3)) for store, part in zip(sources, played, strict=True)]
    target, failed = AutoStore(STACK, codec="delta-rle"), []

    def transfer(which: int) -> None:
        try:
            for i in range(12):
                adopted = target.transfer(sources[which], ids[which][None, i * 10 : i * 10 + 100])[0]
                guard = target.guard()
                if i % 2:
                    target.release(adopted)
                expected = np.roll(played[which], -i * 10, axis=0)
                if not np.array_equal(target.read(adopted), expected):
                    failed.append((which, i))
                guard.close()
                if i % 2 == 0:
                    target.release(adopted)
        except BaseException as error:
            failed.append((which, error))

    threads = [threading.Thread(target=transfer, args=(which % 3,)) for which in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert target.stats().n_tensors == 0


def test_a_store_adopts_its_own_without_a_copy():
    store = frame_store()
    ids = store.append(frames("Pong", 320, 0)[:50])
    before = store.stats()
    assert np.array_equal(store.transfer(store, ids[None])[0], ids)
    assert store.stats() == before
    store.release(np.concatenate([ids, ids]))
    assert store.stats().n_tensors == 0


def test_a_pickle_has_no_raw_frames():
    """Neither the first tensors, nor the recent ones, nor references."""
    for n in (100, 400):
        store = AutoStore(STACK, codec="delta-rle")
        store.append(np.concatenate([stacks("Pong", 200), stacks("Pong", 200)])[:n])
        assert len(pickle.dumps(store)) < 2 * STACK.nbytes


@pytest.mark.parametrize("n_bytes", [None, 1_000_000])
def test_blocks_with_empty_runs_are_refused_where_they_are_too_long(n_bytes: int | None) -> None:
    """A run of no bytes is allowed and means nothing. With a first patch made anew, a block can be longer than any."""

    def filled(seed: int) -> tuple[FrameStore, np.ndarray]:
        """A store that has all references it may have, and the ids of two frames of noise."""
        frames = np.random.default_rng(seed).integers(1, 256, size=(80, 512), dtype=np.uint8)
        store = FrameStore(Layout((512,), np.uint8), codec="delta-rle|lz4", block_frames=2)
        return store, np.concatenate([store.append(frames[i : i + 2]) for i in range(0, 80, 2)])[-2:]

    source, ids = filled(0)
    number = int(ids[0]) // 2
    source.stats()  # which stores full blocks
    length = n_bytes or len(source.log.heap.get([number])[0])
    head = b"\0" + encode_varint(source.log.open.n_references - 1)
    n_runs = length // 2 - 6
    runs = encode_varint(0) + encode_varint(n_runs) + b"\0\0" * n_runs
    source.log.heap.put([number], Segments.of([head + encode_varint(len(runs)) + runs]))
    assert len(source.read(ids)) == 2
    mine, kept = filled(1)
    expected = mine.read(kept)
    with pytest.raises(CorruptStream, match="its patches have more bytes than is possible"):
        mine.transfer(source, ids)
    np.testing.assert_array_equal(mine.read(kept), expected)
