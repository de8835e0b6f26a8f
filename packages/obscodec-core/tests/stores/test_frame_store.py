"""A FrameStore equals a dict of arrays; it holds each frame once, gives memory back, and survives altered blocks."""

import copy
import pickle
import re
from collections import Counter
from functools import partial

import numpy as np
import pytest
from atari_frames import frames
from faults import at_every_line
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec import CorruptStream, FrameStore, HeapFull, Layout, ShapeError, SlotError
from obscodec.frames.block_queue import BlockQueue
from obscodec.frames.trained_codecs import TrainedCodecs
from obscodec.segments import Segments
from together import meanwhile

FRAME = Layout((84, 84), np.uint8)
CODECS = [("delta-rle", 16), ("delta-rle|zstd:3", 16), ("zstd:3", 4), ("lz4", 1), ("raw", 16), ("delta-rle", 1)]
GAMES = ["MsPacman", "Pong", "Breakout"]
N_STREAMS = 3


def noise(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(n, 84, 84), dtype=np.uint8)


def pool() -> np.ndarray:
    """Frames to draw from: zeros, one with a single byte that is not, noise, and games as they were played."""
    nearly_zeros = np.zeros((2, 84, 84), np.uint8)
    nearly_zeros[1, -1, -1] = 1
    return np.concatenate([nearly_zeros, noise(3, 0), *(frames(game, 320, 0)[:60] for game in GAMES)])


class FrameStoreEqualsDict(RuleBasedStateMachine):
    @initialize(spec=st.sampled_from(CODECS), recent=st.sampled_from([None, 1, 6, 7]))
    def make(self, spec, recent):
        codec, block_frames = spec
        self.pool = pool()
        self.store = FrameStore(FRAME, codec=codec, block_frames=block_frames, recent=recent, threads=2)
        self.model: dict[int, bytes] = {}
        self.counts: Counter[int] = Counter()

    @rule(
        first=st.integers(0, 184),
        n=st.integers(0, 40),
        step=st.sampled_from([0, 1, 1, 2]),
        stream=st.integers(0, N_STREAMS - 1),
    )
    def append_played(self, first, n, step, stream):
        self.append((first + step * np.arange(n)) % len(self.pool), stream)

    @rule(seed=st.integers(0, 1000), n=st.integers(0, 30), alphabet=st.integers(1, 12))
    def append_mixed(self, seed, n, alphabet):
        rng = np.random.default_rng(seed)
        self.append(rng.integers(alphabet, size=n), rng.integers(N_STREAMS, size=n))

    def append(self, which, streams):
        self.know(self.store.append(self.pool[which], streams), which)

    def know(self, ids, which):
        for frame_id, frame in zip(ids.tolist(), self.pool[which], strict=True):
            content = frame.tobytes()
            assert (frame_id == 0) == (not frame.any())
            if frame_id:
                assert self.model.setdefault(frame_id, content) == content
                self.counts[frame_id] += 1

    def forget(self, ids):
        for frame_id in ids:
            if frame_id:
                self.counts[frame_id] -= 1
                if not self.counts[frame_id]:
                    del self.counts[frame_id], self.model[frame_id]

    def some_ids(self, seed, n):
        return np.random.default_rng(seed).choice([0, *self.model], size=n)

    def some_references(self, seed, part):
        held = np.array([0, 0, *self.counts.elements()])
        rng = np.random.default_rng(seed)
        return rng.permutation(held)[: int(part * len(held))]

    @rule(seed=st.integers(0, 1000), n=st.integers(0, 60))
    def read(self, seed, n):
        ids = self.some_ids(seed, n)
        expected = [self.model.get(frame_id, bytes(FRAME.nbytes)) for frame_id in ids.tolist()]
        assert self.store.read(ids).tobytes() == b"".join(expected)

    @rule(seed=st.integers(0, 1000), part=st.sampled_from([0.1, 0.5, 0.9, 1]))
    def release(self, seed, part):
        ids = self.some_references(seed, part)
        self.store.release(ids)
        self.forget(ids.tolist())

    @rule(seed=st.integers(0, 1000))
    def release_too_often(self, seed):
        ids = self.some_references(seed, 1)
        surplus = int(ids[0]) if ids[0] else max(self.model, default=0) + 10_000
        with pytest.raises(SlotError, match=f"^id {surplus} is of no frame in this store, or is released more often"):
            self.store.release(np.append(ids, surplus))

    @rule(how=st.sampled_from([copy.deepcopy, copy.copy, lambda store: pickle.loads(pickle.dumps(store))]))
    def rebuild(self, how):
        self.store = how(self.store)

    @invariant()
    def holds_what_the_model_holds(self):
        stats = self.store.stats()
        assert stats.n_tensors == len(self.model)
        assert stats.raw_bytes == len(self.model) * FRAME.nbytes
        ids = list(self.model)[-20:]
        assert self.store.read(ids).tobytes() == b"".join(self.model[frame_id] for frame_id in ids)


TestFrameStoreEqualsDict = pytest.mark.slow(FrameStoreEqualsDict.TestCase)
TestFrameStoreEqualsDict.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize(("codec", "block_frames"), CODECS)
@pytest.mark.parametrize("game", GAMES)
def test_read_gives_what_was_appended(codec, block_frames, game):
    played = frames(game, 320, seed=0)
    which = np.random.default_rng(0).integers(320, size=700)
    for threads in (1, 2, 7):
        store = FrameStore(FRAME, codec=codec, block_frames=block_frames, threads=threads)
        ids = store.append(played)
        np.testing.assert_array_equal(store.read(ids), played)
        np.testing.assert_array_equal(store.read(ids[which]), played[which])


@pytest.mark.parametrize(
    "layout",
    [
        Layout((), np.float64),
        Layout((1,), np.uint8),
        Layout((3, 5), "bfloat16"),
        Layout((2, 3, 4), np.complex64),
        Layout((9,), "datetime64[s]"),
        Layout((3 << 20,), np.uint8),
    ],
    ids=str,
)
@pytest.mark.parametrize(("codec", "block_frames"), CODECS[:5])
def test_frames_of_any_layout(layout, codec, block_frames):
    rng = np.random.default_rng(0)
    rows = rng.integers(256, size=(1, layout.nbytes), dtype=np.uint8).repeat(37 if layout.nbytes < 1000 else 6, 0)
    rows[np.arange(len(rows)), np.arange(len(rows)) % layout.nbytes] ^= rng.integers(
        256, size=len(rows), dtype=np.uint8
    )
    written = layout.tensors(rows)
    store = FrameStore(layout, codec=codec, block_frames=min(block_frames, 4) if layout.nbytes > 1000 else block_frames)
    read = store.read(store.append(written))
    assert read.dtype == layout.dtype
    assert read.tobytes() == written.tobytes()


def test_negative_zeros_are_not_the_frame_of_zeros():
    store = FrameStore(Layout((4,), np.float32))
    ids = store.append(np.array([[0.0] * 4, [-0.0] * 4], np.float32))
    assert ids[0] == 0 != ids[1]
    assert np.signbit(store.read(ids)).tolist() == [[False] * 4, [True] * 4]


def test_releasing_everything_gives_the_memory_back():
    for spec, block_frames in CODECS:
        store = FrameStore(FRAME, codec=spec, block_frames=block_frames)
        all_ids = [store.append(frames("MsPacman", 320, 0) ^ np.uint8(key), sequences=key % 2) for key in range(6)]
        full = store.stats()
        for ids in all_ids:
            store.release(ids)
        stats = store.stats()
        assert (stats.n_tensors, stats.raw_bytes) == (0, 0)
        # four recent frames of each stream are kept, and the blocks that they are in
        most = 2 * (1 if block_frames > 4 else 4)
        assert stats.live_bytes <= most * (full.live_bytes / (full.n_tensors / block_frames)) * 4
        assert stats.reserved_bytes < full.reserved_bytes / 3 + (1 << 19)


def test_a_store_that_is_used_for_ever_does_not_grow():
    store = FrameStore(FRAME)
    played = frames("Pong", 320, 0)
    held = []
    sizes = []
    for step in range(40):
        held.append(store.append(np.roll(played[:100], step, axis=1)))
        if len(held) > 3:
            store.release(held.pop(0))
        sizes.append(store.stats().reserved_bytes + store.stats().table_bytes)
        assert store.stats().dictionary_bytes <= 32 * FRAME.nbytes
    assert max(sizes[20:]) < 1.1 * max(sizes[:20])
    expected = np.concatenate([np.roll(played[:100], step, axis=1) for step in (37, 38, 39)])
    np.testing.assert_array_equal(store.read(np.concatenate(held)), expected)


@pytest.mark.parametrize(("layout", "options", "text"), [
    (Layout((0,), np.uint8), {}, "a frame has at least one byte, got uint8[0]"),
    (Layout((), np.uint8), {"frame_stack": 4}, "frames are stacked along axis 0, an observation of shape () has none"),
    (FRAME, {"frame_stack": 5}, "axis 0 of shape (84, 84) does not divide into 5 frames"),
])  # fmt: skip
def test_what_no_store_can_be_made_of(layout, options, text):
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        FrameStore(layout, **options)


def test_one_frame_kept_of_each_block():
    """Its block stays whole: the statistics show it, and memory is bounded by the blocks that are kept."""
    store = FrameStore(FRAME)
    rng = np.random.default_rng(0)
    long_lived: list[int] = []
    block_nbytes = []
    for _ in range(40):
        ids = store.append(np.cumsum(rng.random((32, 84, 84)) < 0.01, axis=0, dtype=np.uint8) + np.uint8(1))
        block_nbytes.append(store.stats().live_bytes / 2)
        keep = ids[[5, 21]]
        store.release(np.setdiff1d(ids, keep))
        long_lived += keep.tolist()
        if len(long_lived) > 20:
            store.release(long_lived[:2])
            del long_lived[:2]
        stats = store.stats()
        assert stats.n_tensors == len(long_lived)
    a_block = 16 * FRAME.nbytes * 0.03 + FRAME.nbytes
    assert stats.live_bytes < 24 * a_block
    assert stats.live_bytes > 5 * 20 * 70  # far more than twenty frames need, and it is counted
    assert stats.reserved_bytes < 3 * stats.live_bytes + (1 << 18)
    store.release(long_lived)
    assert store.stats().live_bytes < 3 * a_block


@pytest.mark.parametrize("depth", [None, 4])
def test_two_threads_read_while_one_appends_and_releases(depth):
    played = frames("MsPacman", 320, 0)
    if depth:
        played = played[np.maximum(np.arange(320)[:, None] + np.arange(-3, 1), [[0]])]
    layout = Layout(played.shape[1:], np.uint8)
    store = FrameStore(layout, frame_stack=depth, codec="delta-rle|zstd:3", block_frames=4, threads=2)
    kept = store.append(played, np.arange(320) % 2)

    def read(rng):
        which = rng.integers(320, size=64)
        np.testing.assert_array_equal(store.read(kept[which]), played[which])

    others: list[np.ndarray] = []
    with meanwhile(*(partial(read, np.random.default_rng(seed)) for seed in range(2))):
        for step in range(60):
            others.append(store.append(np.roll(played[:40], step, axis=-1), step % 3))
            if len(others) > 4:
                store.release(others.pop(0))


@pytest.mark.parametrize(("codec", "largest"), [("zstd:1", 1 << 14), ("lz4", 1 << 16)])
def test_dictionaries_are_trained_kept_while_needed_and_trained_again(codec, largest):
    """256 blocks are the samples, 256 more show how well it goes, and a game that goes worse gets another one."""
    store = FrameStore(FRAME, codec=codec, block_frames=1)
    pong, pacman = frames("Pong", 900, 0), frames("MsPacman", 900, 0)
    first = store.append(pong[:250])
    assert store.stats().dictionary_bytes == 0
    second = store.append(pong[250:])
    one = store.stats().dictionary_bytes
    assert 1000 < one <= largest
    store.append(np.roll(pong, 1, axis=1)[:10])
    third = store.append(pacman)
    two = store.stats().dictionary_bytes
    assert one < two <= 2 * largest
    np.testing.assert_array_equal(store.read(first), pong[:250])
    np.testing.assert_array_equal(store.read(second), pong[250:])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(store)).read(third), pacman)


def test_a_dictionary_goes_with_the_last_block_that_needs_it():
    store = FrameStore(FRAME, codec="zstd:1", block_frames=1)
    pong, pacman = frames("Pong", 900, 0), frames("MsPacman", 900, 0)
    ids = store.append(pong)
    trained = store.stats().dictionary_bytes
    kept = store.append(pacman)
    both = store.stats().dictionary_bytes
    store.release(ids)
    assert store.stats().dictionary_bytes == both  # the first frames of MsPacman need it too
    store.release(kept[:700])
    assert trained < both
    assert store.stats().dictionary_bytes == both - trained
    np.testing.assert_array_equal(store.read(kept[700:]), pacman[700:])


def test_blocks_larger_than_all_samples_are_encoded():
    """A dictionary of zstd takes more samples than one; books of pred are trained on the one block."""
    large = np.zeros((6, 1500, 1500), np.uint8)
    large[:] = np.add.outer(np.arange(6), np.arange(1500) // 7 % 50)[:, None]
    for codec in ("zstd:1", "pred"):
        store = FrameStore(Layout((1500, 1500), np.uint8), codec=codec, block_frames=2)
        ids = store.append(large)
        assert store.stats().live_bytes < large.nbytes // 9
        assert bool(store.stats().dictionary_bytes) == (codec == "pred")
        np.testing.assert_array_equal(store.read(ids), large)


@pytest.mark.parametrize("codec", ["zstd:1", "delta-rle|zstd:1"])
def test_a_codec_stays_while_somebody_reads_with_it(monkeypatch, codec):
    """All blocks of the first version go while they are decoded."""
    store = FrameStore(FRAME, codec=codec, block_frames=1)
    played = {frame.tobytes(): frame for frame in frames("MsPacman", 4000, 0)}
    played = np.stack([*played.values()][:400])
    ids = store.append(played)
    store.stats()  # which stores full blocks
    versions, coder_type = store.log.coder.versions, type(store.log.coder)
    decode, of_first = coder_type.read, store.log.tables.versions[ids] == 1
    assert versions.newest == 2
    assert 250 < np.count_nonzero(of_first) < 400

    def decode_late(*arguments):
        store.release(ids[of_first])
        store.stats()  # which forgets what nothing needs
        return decode(*arguments)

    for _ in at_every_line(lambda: lambda: store.read(ids[of_first][:40]), 17):
        pass  # which leaves no readers
    with monkeypatch.context() as patched:
        patched.setattr(coder_type, "read", decode_late)
        found = store.read(ids[of_first])
    np.testing.assert_array_equal(found, played[of_first])
    assert 1 in versions.by_version
    store.release(ids[~of_first][:1])
    store.stats()
    assert 1 not in versions.by_version


@pytest.mark.parametrize("n_damaged", [0, 300])
def test_a_dictionary_is_trained_again_on_all_that_is_stored(monkeypatch, n_damaged):
    """The first 256 blocks are of one game, 900 more of another; the dictionary after 1,024 blocks knows both."""
    pong, pacman = ({frame.tobytes(): frame for frame in frames(game, 4000, 0)} for game in ("Pong", "MsPacman"))
    pong, pacman = (np.stack([*distinct.values()]) for distinct in (pong, pacman))
    played = np.concatenate([pong[:256], pacman[:900], pong[256:400], pacman[900:1000]])

    def stored() -> list[int]:
        """Bytes of the last frames of each game, and the newest version."""
        store = FrameStore(FRAME, codec="zstd:1", block_frames=1)
        ids = store.append(played[:1000])
        store.stats()  # which stores full blocks
        damaged = ids[: 3 * n_damaged : 3]
        store.log.heap.put(damaged, Segments.of([b"\xff" * 11] * n_damaged))
        ids = np.append(ids, store.append(played[1000:-244]))
        sizes = [store.stats().live_bytes]
        for last in (played[-244:-100], played[-100:]):
            ids = np.append(ids, store.append(last))
            sizes.append(store.stats().live_bytes)
        good = ~np.isin(ids, damaged)
        np.testing.assert_array_equal(store.read(ids[good]), played[good])
        return [*np.diff(sizes).tolist(), store.log.coder.versions.newest]

    of_pong, of_pacman, newest = stored()
    monkeypatch.setattr(TrainedCodecs, "is_due", False)
    of_pong_first, of_pacman_first, newest_first = stored()
    assert of_pong < 0.8 * of_pong_first
    assert of_pacman < 0.8 * of_pacman_first
    assert newest > newest_first


def test_a_block_that_lacks_its_last_byte_lacks_its_last_frame():
    store = FrameStore(Layout((4,), np.uint8), codec="raw", block_frames=2)
    ids = store.append(np.arange(1, 13, dtype=np.uint8).reshape(3, 4))
    store.stats()  # which stores full blocks
    stream = store.log.heap.get(ids[:1] // 2)[0]
    store.log.heap.put(ids[:1] // 2, Segments.of([stream[:-1]]))
    assert store.read(ids[:1]).tolist() == [[1, 2, 3, 4]]
    with pytest.raises(CorruptStream) as caught:
        store.read(ids[1:2])
    assert str(caught.value) == "a stored block of raw can't be decoded: it has fewer frames than are wanted of it"


@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|lz4", "delta-rle|zstd:3"])
def test_a_block_without_patches_is_read(codec):
    """No store writes one, but the format of its blocks has them."""
    store, frames_of_block = FrameStore(FRAME, codec=codec), noise(16, 0)
    ids = store.append(frames("MsPacman", 320, 0)[:64])
    store.stats()  # which stores full blocks
    number, places = int(ids[20] // 16), np.array([3, 3, 9, 15])
    store.log.heap.put([number], Segments.of([bytes([0, 127]) + frames_of_block.tobytes()]))
    np.testing.assert_array_equal(store.read(number * 16 + places), frames_of_block[places])


@pytest.mark.parametrize(
    ("codec", "stored"), [("raw", "00 01 02 03 04 01 02 03 05"), ("delta-rle", "00 01 04 00 01 03 01 05")]
)
def test_a_block_is_stored_as_its_document_says(codec, stored):
    """The examples in ``docs/formats/frame-block.md``."""
    store = FrameStore(Layout((4,), np.uint8), codec=codec, block_frames=2)
    ids = store.append(np.array([[1, 2, 3, 4], [1, 2, 3, 5], [9, 9, 9, 9]], np.uint8))
    store.stats()  # which stores full blocks
    assert bytes(store.log.heap.get(ids[:1] // 2)[0]).hex(" ") == stored


@pytest.mark.parametrize("nbytes", [63, 64, 65, 127, 7056, 10_007])
@pytest.mark.parametrize("begin", [0, 1, 63])
def test_large_batches_at_any_address(nbytes, begin):
    """They are written past the caches, in lines of 64 bytes; nothing around them is."""
    rng = np.random.default_rng(nbytes)
    store = FrameStore(Layout((nbytes,), np.uint8))
    stored = rng.integers(3, size=(40, nbytes), dtype=np.uint8)
    ids = store.append(stored)
    which = rng.integers(len(stored), size=(5 << 20) // nbytes)
    room = np.full(len(which) * nbytes + 256, 7, np.uint8)
    begin += -room.ctypes.data % 64 + 64
    out = room[begin : begin + len(which) * nbytes].reshape(len(which), nbytes)
    store.read(ids[which], out)
    np.testing.assert_array_equal(out, stored[which])
    assert (room[:begin] == 7).all()
    assert (room[begin + out.size :] == 7).all()


@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|lz4:6", "delta-rle|zstd:3", "zstd:1"])
def test_blocks_of_many_sequences_become_full_in_one_call(codec):
    """Nine frames of each of seven sequences at once: two full blocks of each, and an open one."""
    rng, n = np.random.default_rng(0), 7
    walks = rng.integers(256, size=(n, 1, 40), dtype=np.uint8).repeat(9, axis=1)
    walks[:, np.arange(9), np.arange(9)] += np.arange(9, dtype=np.uint8)
    store = FrameStore(Layout((40,), np.uint8), codec=codec, block_frames=4)
    ids = store.append(walks.reshape(-1, 40), np.repeat(np.arange(n), 9))
    again = store.append(walks.swapaxes(0, 1).reshape(-1, 40), np.tile(np.arange(n), 9))
    np.testing.assert_array_equal(store.read(ids).reshape(walks.shape), walks)
    np.testing.assert_array_equal(store.read(again).reshape(9, n, 40).swapaxes(0, 1), walks)
    store.stats()  # which stores full blocks
    n_streams = store.log.heap.stats().n_streams
    store.release(ids)
    store.release(again)
    assert n_streams >= 2 * n
    assert store.stats().n_tensors == 0


NOISE = np.random.default_rng(0).integers(1, 256, size=(20, 1, 7056), dtype=np.uint8)


def full_store() -> tuple[FrameStore, list[np.ndarray]]:
    """A store whose full block of sequence 0 has no room in the heap; and the ids of its frames."""
    store = FrameStore(Layout((7056,), np.uint8), codec="delta-rle|lz4", max_bytes=60_000)
    return store, [store.append(NOISE[i]) for i in range(16)]


def test_a_block_without_room_does_not_keep_those_of_other_sequences_out():
    store, _ = full_store()
    frame = np.zeros((1, 7056), np.uint8)
    ids = []
    for k in range(100):
        frame[0, k] = k + 1
        ids.append(store.append(frame, 1))
    np.testing.assert_array_equal(store.read(np.concatenate(ids))[-1], frame[0])
    for _ in range(2):
        with pytest.raises(HeapFull, match="max_bytes is 60000"):
            store.append(NOISE[16])


def test_a_block_without_room_is_not_compressed_again_for_known_frames(monkeypatch):
    store, ids = full_store()
    calls = []
    seal = store.log.coder.seal
    monkeypatch.setattr(store.log.coder, "seal", lambda blocks: calls.append(len(blocks)) or seal(blocks))
    for _ in range(3):
        assert store.append(NOISE[15]) == ids[15]
    assert not calls
    with pytest.raises(HeapFull):
        store.append(NOISE[16])
    assert calls


def test_a_stored_block_is_not_stored_again_after_an_interrupt(monkeypatch):
    """With another version by then, and no room, the table of versions would tell a version that nobody wrote."""
    store = FrameStore(Layout((7056,), np.uint8), codec="delta-rle|lz4")

    def interrupted(_):
        raise KeyboardInterrupt

    for i in range(17):
        store.append(NOISE[i] % 4)
    with monkeypatch.context() as patch:
        patch.setattr(BlockQueue, "clear", lambda *_: interrupted(None))
        with pytest.raises(KeyboardInterrupt):
            store.stats()
    assert store.log.heap.stats().n_streams == 1
    calls = []
    monkeypatch.setattr(store.log.heap, "put", lambda numbers, _: calls.append(numbers))
    assert store.stats().n_tensors == 17
    assert not calls
