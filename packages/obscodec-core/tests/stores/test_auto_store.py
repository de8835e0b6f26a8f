"""An AutoStore equals a dict of arrays, before it has decided how to store them, while it does and afterwards."""

import copy
import pickle
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from atari_frames import frames
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec import AutoStore, FrameStack, Layout, SlotError
from obscodec.stores import StoragePlan, Store
from together import together

N_FIRST = 256  # tensors before it decides
FRAME = Layout((84, 84), np.uint8)
REBUILD = [lambda store: pickle.loads(pickle.dumps(store)), copy.deepcopy]


def stacks(n: int, starts: set[int]) -> np.ndarray:
    """Stacks of four frames; the first frame again before an episode begins, at each of ``starts``."""
    stacked = []
    last: deque[np.ndarray] = deque(maxlen=4)
    for i, frame in enumerate(frames("MsPacman", 320, 0)[:n, ::2, ::2]):
        last.extend([frame] * (4 if i in starts else 1))
        stacked.append(np.stack(last))
    return np.stack(stacked)


def small() -> np.ndarray:
    return frames("MsPacman", 320, 0)[:, ::4, ::4]


def around_zero() -> np.ndarray:
    """The code 0 stands for -1, and there are tensors of zeros and of -1."""
    centred = small().astype(np.float32) / np.float32(127.5) - np.float32(1)
    centred[[3, 100, 300]], centred[[5, 101, 301]] = 0, -1
    return centred


def some_that_do_not_fit() -> np.ndarray:
    mixed = small().astype(np.float32) / np.float32(255)
    mixed[[258, 270, 300, 301]] = np.random.default_rng(0).normal(size=(4, 21, 21))
    return mixed


# 320 tensors; 200 of the first 256 are different ones.
KINDS: dict[str, Callable[[], np.ndarray]] = {
    "frames": small,
    "stacks": lambda: stacks(320, {0, 70, 73, 260, 261}),
    "noise": lambda: np.random.default_rng(0).integers(256, size=(320, 21, 21), dtype=np.uint8),
    "zeros": lambda: np.zeros((320, 21, 21), np.uint8),
    "floats of bytes": lambda: small().astype(np.float32) / np.float32(255),
    "floats around zero": around_zero,
    "floats of which some do not fit": some_that_do_not_fit,
    "stacked floats": lambda: stacks(320, {0, 70, 73, 260}).astype(np.float32) / np.float32(255),
    "normal floats": lambda: np.random.default_rng(0).normal(size=(320, 21, 21)),
}


class AutoStoreEqualsDict(RuleBasedStateMachine):
    @initialize(kind=st.sampled_from([*KINDS]), spec=st.sampled_from(["auto", "auto", "zstd:1", "delta-rle|lz4"]))
    def make(self, kind, spec):
        self.tensors = KINDS[kind]()
        self.store = AutoStore(Layout(self.tensors.shape[1:], self.tensors.dtype), codec=spec, threads=1)
        self.appended = 0
        self.references: list[tuple[int, bytes]] = []

    @rule(n=st.integers(0, 120), n_streams=st.integers(1, 3))
    def append(self, n, n_streams):
        which = (self.appended + np.arange(n)) % len(self.tensors)
        self.appended += n
        self.know(self.store.append(self.tensors[which], np.arange(n) % n_streams), which)

    def know(self, ids, which):
        assert len(ids) == len(which)
        contents = (tensor.tobytes() for tensor in self.tensors[which])
        self.references += list(zip(ids.tolist(), contents, strict=True))

    def take(self, n, seed):
        chosen = set(np.random.default_rng(seed).permutation(len(self.references))[:n].tolist())
        taken = [self.references[i][0] for i in chosen]
        self.references = [reference for i, reference in enumerate(self.references) if i not in chosen]
        return taken

    @rule(n=st.integers(0, 200), seed=st.integers(0, 1000))
    def release(self, n, seed):
        self.store.release(np.array([*self.take(n, seed), 0]))

    @rule(rebuild=st.sampled_from(REBUILD))
    def rebuild(self, rebuild):
        self.store = rebuild(self.store)

    @invariant()
    def holds_what_the_model_holds(self):
        rng = np.random.default_rng(self.appended)
        some = [self.references[i] for i in rng.permutation(len(self.references))[:50]]
        some.append((0, bytes(self.store.layout.nbytes)))
        assert self.store.read([i for i, _ in some]).tobytes() == b"".join(content for _, content in some)


TestAutoStoreEqualsDict = AutoStoreEqualsDict.TestCase
TestAutoStoreEqualsDict.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_come_back_before_and_after_the_move(kind):
    tensors = KINDS[kind]()
    store = AutoStore(Layout(tensors.shape[1:], tensors.dtype))
    ids = np.zeros(0, np.int64)
    for part in np.split(tensors, 32):
        ids = np.append(ids, store.append(part))
        assert store.read(ids).tobytes() == tensors[: len(ids)].tobytes()
        assert (store.choice is None) == (len(ids) < N_FIRST or kind == "zeros")  # which are all alike
    which = np.random.default_rng(0).integers(320, size=500)
    assert store.read(ids[which]).tobytes() == tensors[which].tobytes()
    store.release(ids)
    assert store.stats().n_tensors == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_tensors_give_the_same_choice(kind):
    tensors = KINDS[kind]()
    choices = []
    for n_parts in (1, 4, 320):
        store = AutoStore(Layout(tensors.shape[1:], tensors.dtype))
        for part in np.split(tensors, n_parts):
            store.append(part)
        choices.append(store.stats().choice)
    assert choices[0] == choices[1] == choices[2]


@pytest.mark.parametrize("kind", ["noise", "normal floats"])
def test_noise_takes_no_more_than_it_does_raw(kind):
    """And a byte for each tensor, the tables, and what the heap reserves ahead."""
    tensors = KINDS[kind]()
    store = AutoStore(Layout(tensors.shape[1:], tensors.dtype))
    for key in range(10):
        store.append(np.roll(tensors, key, axis=2))
    stats = store.stats()
    assert stats.n_tensors == 3200
    assert stats.live_bytes <= stats.raw_bytes + 3200
    assert stats.table_bytes <= 32 * 3200
    assert stats.total_bytes <= 1.02 * stats.raw_bytes + (1 << 21) + (1 << 18)
    assert store.choice.chosen.spec == "raw" or stats.live_bytes < stats.raw_bytes


def test_tensors_that_are_released_before_the_move_do_not_move():
    tensors = KINDS["frames"]()
    store = AutoStore(Layout((21, 21), np.uint8))
    ids = store.append(tensors[:200])
    store.release(ids[::2])
    assert store.stats().n_tensors == 100
    more = store.append(tensors[200:])
    held = np.concatenate([ids[1::2], more])
    np.testing.assert_array_equal(store.read(held), np.concatenate([tensors[1:200:2], tensors[200:]]))
    store.release(held)
    assert store.stats().n_tensors == 0


@pytest.mark.parametrize("n", [20, 300])
def test_no_tensor_is_released_twice(n):
    """Also where it shares its frame with another one."""
    tensors = np.repeat(KINDS["frames"](), 2, axis=0)[:n]
    store = AutoStore(Layout((21, 21), np.uint8))
    ids = store.append(tensors)
    with pytest.raises(SlotError, match=f"^id {ids[4]} is released twice, it stands for one tensor$"):
        store.release(ids[[4, 6, 4]])
    np.testing.assert_array_equal(store.read(ids), tensors)
    store.release(ids[[4, 6]])
    for call in (store.release, store.read):
        with pytest.raises(SlotError, match=f"^id {ids[4]} is of no tensor in this store$"):
            call(ids[[0, 4]])
    kept = np.delete(np.arange(n), [4, 6])
    np.testing.assert_array_equal(store.read(ids[kept]), tensors[kept])


def test_threads_append_and_read_through_the_move():
    tensors = KINDS["stacks"]()
    store = AutoStore(Layout((4, 42, 42), np.uint8), threads=2)

    def work(stream):
        ids = np.zeros(0, np.int64)
        for part in np.split(tensors, 32):
            ids = np.append(ids, store.append(part, stream))
            which = np.random.default_rng(len(ids)).integers(len(ids), size=20)
            np.testing.assert_array_equal(store.read(ids[which]), tensors[which])
        store.release(ids)

    together(*(partial(work, stream) for stream in range(4)))
    assert store.stats().n_tensors == 0


def test_large_tensors_are_decided_on_early():
    store = AutoStore(Layout((3, 512, 512), np.uint8))
    tensors = np.zeros((24, 3, 512, 512), np.uint8)
    tensors[:, 0, :24] = np.arange(24, dtype=np.uint8)[:, None, None]
    ids = store.append(tensors[:20])
    assert store.choice is None
    ids = np.append(ids, store.append(tensors[20:]))  # 16 MB are 21 of them
    assert store.choice is not None
    np.testing.assert_array_equal(store.read(ids[::-1]), tensors[::-1])


@pytest.mark.parametrize("codec", ["auto", "delta-rle", "zstd:1"])
@pytest.mark.parametrize("decide_after", [1, 4, 300])
def test_it_decides_after_as_many_tensors_as_it_is_told(decide_after, codec):
    tensors = KINDS["noise"]()
    store = AutoStore(Layout((21, 21), np.uint8), codec=codec, decide_after=decide_after)
    before = store.append(tensors[: decide_after - 1])
    waits = f"it waits for {decide_after - len(before)} more tensors; decide() chooses now"
    assert repr(store) == f"AutoStore({store.layout}, undecided: {waits})"
    ids = np.append(before, store.append(tensors[decide_after - 1 :]))
    assert repr(store).startswith(f"AutoStore({store.layout}, FrameStore(")
    np.testing.assert_array_equal(store.read(ids), tensors)
    if codec == "auto":
        assert store.choice.reason.endswith(
            "on the first frame" if decide_after == 1 else f"first {decide_after} frames"
        )


def test_it_waits_for_tensors_that_differ():
    black, game = np.zeros((300, 84, 84), np.uint8), frames("MsPacman", 320, 0)[:200]
    late, plain = AutoStore(FRAME), AutoStore(FRAME)
    late.append(black)
    assert late.choice is None
    waits = f"it waits for tensors that differ, for {8 * N_FIRST - 300:,} at most; decide() chooses now"
    assert late.stats().waits_for == waits
    for frame in game:
        late.append(frame[None])
    plain.append(game)
    plain.decide()
    assert late.choice.chosen.spec == plain.choice.chosen.spec != "raw"
    assert late.stats().total_bytes < 1.2 * plain.stats().total_bytes
    assert late.choice.reason.endswith("on the first 128 frames")  # half of 256


def test_tensors_that_are_all_alike_wait_for_eight_times_as_many():
    store, alike = AutoStore(FRAME), np.zeros((8 * N_FIRST, 84, 84), np.uint8)
    ids = store.append(alike[:-1])
    assert store.choice is None
    ids = np.append(ids, store.append(alike[-1:]))
    assert store.choice is not None
    assert not store.read(ids).any()


@pytest.mark.parametrize("options", [{"decide_after": 100}, {"max_bytes": 100 * FRAME.nbytes}])
def test_it_looks_at_as_many_as_it_is_told_even_if_they_are_alike(options):
    store = AutoStore(FRAME, **options)
    store.append(np.zeros((100, 84, 84), np.uint8))
    assert store.choice is not None


def test_max_bytes_may_have_room_for_fewer_than_it_is_told_to_look_at():
    tensors = KINDS["frames"]()
    store = AutoStore(Layout((21, 21), np.uint8), codec="zstd:1", decide_after=100, max_bytes=20 * 441)
    store.append(tensors[:19])
    assert "undecided" in repr(store)
    store.append(tensors[19:20])
    assert "undecided" not in repr(store)


@pytest.mark.parametrize(("codec", "by_itself"), [("delta-rle", 16), ("zstd:1", 1), ("rle", 1)])
@pytest.mark.parametrize("block_frames", [None, 1, 4])
def test_a_codec_encodes_as_many_frames_together_as_it_is_told(block_frames, codec, by_itself):
    """A block is stored as soon as it is full. The first frame of noise becomes a reference."""
    n = by_itself if block_frames is None else block_frames
    store = AutoStore(Layout((21, 21), np.uint8), codec=codec, decide_after=1, block_frames=block_frames)
    tensors = np.random.default_rng(0).integers(256, size=(n, 21, 21), dtype=np.uint8)
    ids = [store.append(tensors[:1])]
    assert f"block_frames={n}, " in repr(store)
    ids.append(store.append(tensors[1:-1]))
    if n > 1:
        assert store.stats().live_bytes == 0
        ids.append(store.append(tensors[-1:]))
    ids = np.concatenate(ids)
    assert (n - 1) * 441 < store.stats().live_bytes + (n == 1) < (n + 1) * 441
    np.testing.assert_array_equal(store.read(ids), tensors)


@pytest.mark.parametrize(("options", "tried"), [({"block_frames": 3}, {3}), ({}, {1, 16})])
def test_all_that_auto_tries_encode_as_many_frames_together_as_it_is_told(options, tried):
    store = AutoStore(FRAME, **options)
    store.append(frames("Breakout", 320, 0)[:256])
    assert {trial.block_frames for trial in store.choice.trials} == tried
    assert not options or "block_frames=3, " in repr(store)


def test_a_store_that_decides_while_it_is_pickled_keeps_its_first_tensors(monkeypatch):
    tensors = np.random.default_rng(0).integers(256, size=(9, 6, 5), dtype=np.uint8)
    store = AutoStore(Layout((6, 5), np.uint8), codec="zstd:1", decide_after=8)
    ids = store.append(tensors[:4])
    state_of = Store.__getstate__

    def then_another_thread_appends(self):
        state = state_of(self)
        monkeypatch.undo()
        store.append(tensors[4:])
        return state

    monkeypatch.setattr(Store, "__getstate__", then_another_thread_appends)
    copied = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(copied.read(ids), tensors[:4])


@pytest.mark.parametrize("axes", ["T H W C", "T C H W", "H W TC", "TC H W"])
def test_stacks_of_textured_images_are_frames_of_a_codec_for_images(axes):
    """As Gymnasium stacks them, and as Stable-Baselines3 does, with the channels last and first."""
    rng, n = np.random.default_rng(0), 300
    wall = (rng.normal(0, 6, (64, 800, 3)).cumsum(0).cumsum(1) / 40).astype(np.uint8)
    frames = np.stack([wall[:, k : k + 64] + rng.integers(3, size=(64, 64, 3), dtype=np.uint8) for k in range(n + 3)])
    stacks = np.stack([frames[k : k + n] for k in range(4)], axis=1)
    if "C H W" in axes:
        stacks = np.moveaxis(stacks, -1, 2)
    if axes == "TC H W":
        stacks = np.moveaxis(stacks, -1, 2).reshape(n, 12, 64, 64)
    if axes == "H W TC":
        stacks = np.moveaxis(stacks, 1, -2).reshape(n, 64, 64, 12)
    store = AutoStore(Layout(stacks.shape[1:], np.uint8))
    ids = store.append(stacks)
    assert store.choice.chosen.spec.startswith("pred")
    assert (store.read(ids) == stacks).all()
    assert store.stats().live_bytes < stacks.nbytes / 4 / 3  # frames are stored once


def channels_last(n_channels, n=40):
    """Textured images ``[n, 32, 32, n_channels]`` of a camera that moves."""
    rng = np.random.default_rng(0)
    wall = rng.normal(0, 6, (32 + n, 32 + n, n_channels)).cumsum(0).cumsum(1) / 4
    images = np.stack([wall[k : k + 32, k : k + 32] for k in range(n)]).astype(np.int64)
    return (images + rng.integers(3, size=images.shape)).astype(np.uint8)


@pytest.mark.parametrize("codec", ["pred", "palette", "pred|zstd:1"])
@pytest.mark.parametrize("n_channels", [2, 4])
def test_a_codec_of_images_gets_other_channels_as_planes(codec, n_channels):
    images = channels_last(n_channels)
    sizes = []
    for tensors, options in (
        (images, {}),
        (np.ascontiguousarray(np.moveaxis(images, -1, 1)), {}),
        (images, {"frame_stack": FrameStack(1)}),  # of rows, as it was told
    ):
        store = AutoStore(Layout(tensors.shape[1:], np.uint8), codec=codec, decide_after=16, **options)
        ids = store.append(tensors)
        np.testing.assert_array_equal(store.read(ids), tensors)
        rebuilt = pickle.loads(pickle.dumps(store))
        np.testing.assert_array_equal(rebuilt.read(ids), tensors)
        sizes.append(store.stats().live_bytes)
    assert sizes[0] == sizes[1] != sizes[2]
    assert sizes[0] < 0.9 * sizes[2] or codec == "palette"  # which stores so many colours by pred, untrained


def test_four_grey_frames_of_a_stack_are_not_channels():
    frames = channels_last(1, 43)[..., 0]
    stacks = np.stack([frames[k : k + 40] for k in range(4)], axis=-1)
    store = AutoStore(Layout((32, 32, 4), np.uint8), codec="pred", decide_after=16)
    np.testing.assert_array_equal(store.read(store.append(stacks)), stacks)
    assert "FrameStack(depth=4, axis=-1)" in repr(store)


def smooth_channels_last(n_channels, n=40):
    """``f32[n, 32, 32, n_channels]``, such as optical flow."""
    y, x, t, c = np.ix_(np.arange(32), np.arange(32), np.arange(n), np.arange(n_channels))
    return np.moveaxis(5 + np.sin(y / 9 + t + c) + np.cos(x / 7 - t * c), 2, 0).astype(np.float32)


@pytest.mark.parametrize(("made", "spec"), [(channels_last, "pred"), (smooth_channels_last, "lorenzo|shuffle|pred")])
@pytest.mark.parametrize("n_channels", [2, 4])
def test_auto_takes_images_of_any_channels(made, spec, n_channels):
    images = made(n_channels)
    store = AutoStore(Layout(images.shape[1:], images.dtype), decide_after=32)
    ids = store.append(images)
    np.testing.assert_array_equal(store.read(ids), images)
    assert {trial.spec for trial in store.choice.trials} > {spec, "zstd:3"}
    planes = AutoStore(store.layout, decide_after=32, frame_stack=FrameStack(1, axis=-1))
    planes.append(images)
    assert (store.choice, store.choice.chosen.spec) == (planes.choice, spec)
    assert store.stats().live_bytes == planes.stats().live_bytes


def test_auto_keeps_the_pixels_together_of_images_that_no_codec_of_images_suits():
    noise = np.random.default_rng(0).integers(256, size=(40, 32, 32, 4), dtype=np.uint8)
    store = AutoStore(Layout((32, 32, 4), np.uint8), decide_after=32)
    store.append(noise)
    assert store.choice.chosen.spec == "raw"
    assert "FrameStack" not in repr(store)


def test_a_store_follows_a_plan_whatever_its_first_tensors_show():
    layout = Layout((32, 32), np.uint8)
    frames = np.random.default_rng(0).integers(256, size=(40, 32, 32), dtype=np.uint8)
    store, plan = AutoStore(layout), StoragePlan(None, None, "zstd:3", 4, None)
    ids = store.append(frames[:20])
    store.follow(plan)
    assert (store.stats().is_decided, store.choice) == (True, None)
    assert "zstd:3" in repr(store)
    ids = np.append(ids, store.append(frames[20:]))
    np.testing.assert_array_equal(store.read(ids), frames)
    store.follow(StoragePlan(None, None, "raw", 1, None))  # it has decided
    assert "zstd:3" in repr(store)


@pytest.mark.parametrize("n", [100, 400])
def test_a_pickle_has_no_raw_frames(n):
    """Neither the first tensors, nor the recent ones, nor references."""
    stacks = frames("Pong", 320, 0)[np.arange(200)[:, None] + np.arange(4)]
    store = AutoStore(Layout((4, 84, 84), np.uint8), codec="delta-rle")
    store.append(np.concatenate([stacks, stacks])[:n])
    assert len(pickle.dumps(store)) < 2 * store.layout.nbytes


def test_ids_of_first_tensors_may_have_any_integer_dtype():
    store = AutoStore(Layout((16, 16), np.uint8), codec="delta-rle", threads=1)
    tensors = np.random.default_rng(0).integers(4, size=(300, 16, 16), dtype=np.uint8)
    ids = store.append(tensors)
    store.decide()
    out = np.zeros((7, 16, 16), np.uint8)
    store.read_into(ids[5:12].astype(np.int32), out)
    np.testing.assert_array_equal(out, tensors[5:12])
