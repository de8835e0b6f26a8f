"""Buffers of another capacity, and of several buffers, against lists of what their episodes are."""

import os
import threading
import time
import warnings
from contextlib import suppress

import numpy as np
import obscodec
import pytest
from faults import at_every_line
from obscodec import DTypeError, Field, FieldError, Prioritized, RingBuffer, ShapeError, SlotError
from obscodec.buffers.side_by_side import SideBySide
from played import CAPACITY, DEPTH, Played, drawn, frames
from together import meanwhile

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "97"))  # 1 for every line
CODECS = ["delta-rle", "auto", None]


def by_number(buffer):
    return {number: step for number, (_, step) in drawn(buffer).items()} if len(buffer) else {}


def number_of_tensors(buffer):
    return 0 if isinstance(stats := buffer.stats().fields["obs"], int) else stats.n_tensors


def check_inside(games, buffer):
    """Nothing that is drawn has steps of two episodes; a game has the numbers from a multiple of 1000 on."""
    places, strides = {k: place for game in games for k, place in game.places.items()}, [g.buffer.n_envs for g in games]
    batch, indices = buffer.sample(300, 0, n_step=4, gamma=0.5, return_indices=True)
    for row, number in enumerate(buffer.take(indices)["number"].tolist()):
        episode, at = places[number]
        n = round(-np.log2(batch["discount"][row]))
        following = episode[at : at + n]
        assert len(following) == n
        assert batch["reward"][row] == np.float32(sum(0.5**k * (one % 17) for k, one in enumerate(following)))
        after = batch["next_obs"][row].reshape(-1, 6, 6)[-1]
        np.testing.assert_array_equal(after, frames(following[-1] + strides[number // 1000]))
    drawn = buffer.sequences(200, 5, 1, strict_length=False, burn_in=2)
    for numbers, mask in zip(drawn["number"], drawn["mask"], strict=True):
        numbers = numbers[mask].tolist()
        episode, at = places[numbers[0]]
        assert numbers == episode[at : at + len(numbers)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(6))
def test_a_program_of_resizes(codec, seed):
    """Against a buffer that had the largest capacity from the start, of which only the newest steps count."""
    options = [{}, {"stack": None, "pad": None}, {"masks": True}][seed % 3]
    played, rng = Played(2, seed, codec=codec, capacity=25, **options), np.random.default_rng(seed)
    whole, kept = Played(2, seed, codec=codec, capacity=1000, **options), 0
    for _ in range(8):
        n = int(rng.integers(40))
        for one in (played, whole):
            one.play(n)
        first = max(kept, played.buffer.indices.start)
        capacity = int(rng.integers(1, 60))
        before = played.buffer
        played.buffer = made = before.resized(capacity)
        kept = max(first, whole.buffer.indices.stop - 2 * capacity)
        assert made.indices == range(kept, whole.buffer.indices.stop)
        assert (made.capacity, made.n_envs) == (capacity, 2)
        expected = {k: (index, step) for k, (index, step) in drawn(whole.buffer).items()} if whole.n else {}
        expected = {k: of for k, of in expected.items() if of[0] >= kept}
        assert (drawn(made) if expected else {}) == expected
        assert before.capacity != capacity or drawn(before) == expected
    if codec is not None:
        made.clear()
        assert number_of_tensors(made) == 0


def test_a_stack_of_a_smaller_buffer_reaches_as_far_as_before():
    played = Played(1)
    played.step(30, p_end=0)
    small = played.buffer.resized(10)
    np.testing.assert_array_equal(small[0]["obs"][0], frames([18, 19, 20]))
    large = small.resized(20)  # no step before number 18 is there any more
    assert large.indices == range(20, 30)
    np.testing.assert_array_equal(large[0]["obs"][0], frames([18, 19, 20]))
    played.buffer = large
    played.step(60, p_end=0)
    np.testing.assert_array_equal(large[0]["obs"][0], frames([68, 69, 70]))


def test_a_stack_does_not_reach_what_was_forgotten():
    played = Played(1, pad="edge")
    played.step(5, p_end=0)
    played.buffer.clear()
    played.step(3, p_end=0)
    for capacity, stacks in ((2, [[5, 5, 6], [5, 6, 7]]), (100, [[5, 5, 5], [5, 5, 6], [5, 6, 7]])):
        np.testing.assert_array_equal(played.buffer.resized(capacity)[:]["obs"][:, 0], frames(stacks))


@pytest.mark.parametrize("codec", ["delta-rle", "auto"])
def test_nothing_is_decoded_for_another_capacity(codec, monkeypatch):
    buffer = Played(2, codec=codec).play(70).buffer
    (store,) = buffer.stores
    n_tensors = number_of_tensors(buffer)
    with monkeypatch.context() as patch:
        patch.setattr(type(store), "read_into", None)
        larger, smaller = buffer.resized(100), buffer.resized(20)
    in_spare_row = 2 * 2
    assert n_tensors - in_spare_row <= number_of_tensors(larger) <= n_tensors
    assert number_of_tensors(smaller) < number_of_tensors(larger)


def test_a_resized_buffer_goes_on_as_the_other_one(tmp_path):
    """With running episodes, priorities, and through a snapshot; the other one goes on by itself."""
    played, priorities = Played(3), Prioritized(3 * CAPACITY)
    played.step(50, p_end=0.05)
    _, indices = played.buffer.sample(30, 0, p=priorities, return_indices=True)
    priorities.update(indices, np.arange(30))
    small = played.buffer.resized(20)
    obscodec.save(small, tmp_path)
    loaded = obscodec.load(tmp_path, continue_episodes=True)
    before, other = drawn(small), played.buffer
    played.step(70)
    assert drawn(small) == before == drawn(loaded)
    for buffer in (small, loaded):
        again, again.buffer = Played(3, seed=9), buffer
        again.n = 150
        again.step(10, p_end=0)
        batch = buffer.take([150])
        np.testing.assert_array_equal(batch["obs"][0, -1], frames(150))
        assert (batch["obs"][0, -2] == frames(147)).all() or not batch["obs"][0, -2].any()
        assert len(buffer) == 20
    _, indices = small.sample(50, 0, p=priorities, return_indices=True)
    assert indices.min() >= small.indices.start
    assert other.indices.stop == 360


def test_a_capacity_that_is_none_is_refused():
    buffer = Played(2).buffer
    with pytest.raises(ShapeError, match="capacity must be 1 or more, got 0"):
        buffer.resized(0)
    with pytest.raises(DTypeError, match="capacity"):
        buffer.resized("2")
    fields = {"f": Field((64, 64), np.uint8, "raw"), "number": Field((1000,), np.uint8, None)}
    with pytest.raises(ShapeError, match="max_bytes must be 10,040,000 or more for 10,000 steps"):
        RingBuffer(10, fields, max_bytes=1 << 20).resized(10_000)


@pytest.mark.filterwarnings("ignore:.*are left out")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("options", [{"episode_end": "done"}, {"stack": None, "pad": None}, {"masks": True}])
@pytest.mark.parametrize(
    ("shapes", "n_envs"),
    [([(2, 60), (3, 20)], None), ([(1, 5), (2, 0), (4, 55)], 3), ([(3, 100)], 2), ([(1, 9), (1, 9)], 5)],
)
def test_several_buffers_are_one(codec, options, shapes, n_envs, monkeypatch):
    monkeypatch.setattr(obscodec.buffers.array_set, "_COPIED_NBYTES", 6 * 6 * 2 * 5)  # five steps at a time
    games = [Played(n, k, codec=codec, **options) for k, (n, _) in enumerate(shapes)]
    for k, (game, (_, n_steps)) in enumerate(zip(games, shapes, strict=True)):
        game.n = 1000 * k  # the first of its numbers
        game.play(n_steps).end()
    buffers = [game.buffer for game in games]
    before = [by_number(buffer) for buffer in buffers]
    merged = RingBuffer.merged(buffers, n_envs)
    total = sum(n for n, _ in shapes)
    assert merged.n_envs == (n_envs or total)
    assert merged.capacity == -(-CAPACITY * total // merged.n_envs)
    after, expected = by_number(merged), {k: step for of in before for k, step in of.items()}
    left_out = expected.keys() - after.keys()
    assert after == {k: step for k, step in expected.items() if k not in left_out}
    assert len(left_out) <= (total + 3 * merged.n_envs) * DEPTH * (len(shapes) + 1)
    assert [by_number(buffer) for buffer in buffers] == before
    if after:
        check_inside(games, merged)
    if codec is not None:
        merged.clear()
        assert number_of_tensors(merged) == 0


class Separate:
    """Buffers with equal steps of environments that do not step together."""

    def __init__(self, seed, n_envs, capacities, first=0):
        self.rng, self.counts, self.first = np.random.default_rng(seed), np.zeros(n_envs, np.int64), first
        fields = {"obs": Field((6, 6), np.uint8, "delta-rle", min_nbytes=1, block_frames=2)}
        fields |= {"next_obs": Field((6, 6), np.uint8, next_of="obs"), "number": Field((), np.int64)}
        fields |= {"done": Field((), np.bool_)}
        options = {"n_envs": n_envs, "stack": {"obs": DEPTH}, "pad": "edge", "episode_end": "done"}
        self.buffers = [RingBuffer(capacity, fields, **options) for capacity in capacities]

    def step(self, n):
        n_envs = len(self.counts)
        for _ in range(n):
            envs = np.flatnonzero(self.rng.random(n_envs) < 0.6)
            numbers = self.first + self.counts[envs] * n_envs + envs
            step = {"obs": frames(numbers), "next_obs": frames(numbers + n_envs), "number": numbers}
            done = self.rng.random(len(envs)) < 0.1
            for buffer in self.buffers:
                buffer.append(**step, done=done, envs=envs)
            self.counts[envs] += 1
        return self


@pytest.mark.parametrize("seed", range(4))
def test_a_program_of_resizes_of_environments_that_do_not_step_together(seed):
    separate, kept = Separate(seed, 3, [1000, 25]), np.zeros(3, np.int64)
    whole, made = separate.buffers
    for _ in range(8):
        separate.step(int(separate.rng.integers(40)))
        capacity = int(separate.rng.integers(1, 60))
        kept = np.maximum(kept, separate.counts - min(made.capacity, capacity))
        separate.buffers[1] = made = made.resized(capacity)
        expected = drawn(whole) if separate.counts.any() else {}
        expected = {k: of for k, of in expected.items() if k // 3 >= kept[k % 3]}
        assert (drawn(made) if expected else {}) == expected
        assert [*made.indices] == sorted(expected)


@pytest.mark.filterwarnings("ignore:.*are left out")
@pytest.mark.parametrize("n_envs", [None, 2])
def test_environments_that_do_not_step_together_are_merged(n_envs):
    games = [Separate(k, n, [30], 1000 * k).step(n_steps) for k, (n, n_steps) in enumerate([(3, 40), (2, 5), (1, 90)])]
    buffers = [game.buffers[0] for game in games]
    for buffer in buffers:
        buffer.end_episodes()
    expected = {k: step for buffer in buffers for k, step in by_number(buffer).items()}
    after = by_number(RingBuffer.merged(buffers, n_envs))
    assert len(after) > 0.8 * len(expected)
    assert after == {k: expected[k] for k in after}


@pytest.mark.filterwarnings("ignore:.*are left out")
def test_merged_buffers_keep_each_frame_once_and_move_those_of_the_largest(monkeypatch):
    large, small = Played(2, 1, capacity=100), Played(4, 2)
    large.step(100, p_end=0)
    small.n = 1000
    small.step(19, p_end=0)
    n_frames, read = [number_of_tensors(of.end().buffer) for of in (large, small)], []
    (store,) = large.buffer.stores
    read_into = type(store).read_into
    monkeypatch.setattr(
        type(store), "read_into", lambda self, ids, out: read.append(len(ids)) or read_into(self, ids, out)
    )
    merged = RingBuffer.merged([small.buffer, large.buffer])
    n_cuts = 6
    assert sum(read) <= 2 * 76 + n_cuts * 2 * DEPTH
    assert number_of_tensors(merged) <= sum(n_frames) + n_cuts * 2 * DEPTH
    assert len(by_number(merged)) == 276
    step = {name: np.zeros((6, *of.shape), of.dtype) for name, of in merged.fields.items()}
    merged.append(**step | {"number": 2000 + np.arange(6)})
    np.testing.assert_array_equal(merged[-1]["obs"], 0)


def test_compressed_and_plain_ones_come_together():
    plain, compressed = Played(1, 1, codec=None), Played(2, 2, codec="zstd:1")
    for k, game in enumerate((plain, compressed)):
        game.n = 1000 * k
        game.play(35).end()
    expected = by_number(plain.buffer) | by_number(compressed.buffer)
    for buffers in ([plain.buffer, compressed.buffer], [plain.buffer.with_envs(1), compressed.buffer.resized(5)]):
        merged = RingBuffer.merged(buffers, 2)
        after = by_number(merged)
        assert after == {k: expected[k] for k in after}
        assert after.keys() == {k for buffer in buffers for k in by_number(buffer)}


def test_the_same_buffer_twice_has_its_steps_twice():
    played = Played(1, 3, codec="delta-rle", stack=None, pad=None).play(20).end()
    twice = RingBuffer.merged([played.buffer, played.buffer])
    numbers = sorted(np.concatenate([batch["number"] for batch in twice.epochs(7, 0)]).tolist())
    assert numbers == sorted([*by_number(played.buffer)] * 2)


def test_limits_add_up(tmp_path):
    def new(max_bytes, spill=None):
        fields = {"f": Field((64, 64), np.uint8, "raw"), "done": Field((), np.bool_)}
        return RingBuffer(50, fields, episode_end="done", max_bytes=max_bytes, spill=spill)

    both = RingBuffer.merged([new(1 << 21, tmp_path), new(1 << 20)])
    assert (both.max_bytes, both.spill) == (3 << 20, str(tmp_path))
    assert RingBuffer.merged([new(1 << 21), new(None)]).max_bytes is None


def test_what_exceeds_the_limit_moves_to_files_at_once(tmp_path):
    fields = {"f": Field((64, 64), np.uint8, "raw"), "done": Field((), np.bool_)}
    buffer = RingBuffer(2000, fields, episode_end="done", max_bytes=3_000_000, spill=tmp_path)
    frames = np.random.default_rng(0).integers(0, 255, (1500, 1, 64, 64), np.uint8)
    buffer.extend(f=frames, done=np.ones((1500, 1)))
    both = RingBuffer.merged([buffer, buffer])
    assert both._memory_bytes() < both.max_bytes + (1 << 20)
    for frame in both[:]["f"].swapaxes(0, 1):
        np.testing.assert_array_equal(frame, frames[:, 0])


def test_buffers_that_differ_are_refused():
    def new(**options):
        fields = {"f": Field((4,), np.float32), "done": Field((), np.bool_)} | options.pop("fields", {})
        return RingBuffer(10, fields, **{"episode_end": "done"} | options)

    for others, text in [
        (
            {"fields": {"f": Field((5,), np.float32)}},
            r"field 'f' is float32\[4\] on cpu, next_of None in the first one, float32\[5\] on cpu,",
        ),
        ({"fields": {"g": Field((5,), np.float32)}}, r"field 'g' is None in the first one, float32\[5\] on cpu"),
        ({"stack": {"f": 2}, "pad": "zeros"}, r"stack is \{\} in the first one, \{'f': 2\} in that at position 2"),
        ({"episode_end": None}, r"episode_end is \('done',\) in the first one, \(\) in that"),
    ]:
        with pytest.raises(FieldError, match=f"^buffers that are put together are alike: {text}"):
            RingBuffer.merged([new(), new(), new(**others)])
    with pytest.raises(FieldError, match="there are no buffers: pass one or more"):
        RingBuffer.merged([])
    with pytest.raises(DTypeError, match="buffers must be a list of RingBuffers, got RingBuffer"):
        RingBuffer.merged(new())
    with pytest.raises(DTypeError, match="a buffer must be a RingBuffer, got int"):
        RingBuffer.merged([new(), 3])
    running = new(n_envs=2)
    running.append(f=np.zeros((2, 4)), done=[True, False])
    text = (
        "the newest step of environment 1 of the buffer at position 1 ends no episode, and no environment would go on"
    )
    with pytest.raises(SlotError, match=text):
        RingBuffer.merged([new(), running])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(RingBuffer.merged([new(), new()])) == 0


@pytest.mark.parametrize("make", ["resized", "merged"])
def test_what_is_interrupted_leaves_all_buffers_as_they_are(make):
    games = [Played(2, 1), Played(1, 2)]
    for k, game in enumerate(games):
        game.n = 1000 * k
        game.play(30).end()
    buffers = [game.buffer for game in games]
    before, n_tensors = [drawn(buffer) for buffer in buffers], [number_of_tensors(buffer) for buffer in buffers]

    def call():
        return buffers[0].resized(20) if make == "resized" else RingBuffer.merged(buffers)

    for where in at_every_line(lambda: call, STEP):
        assert [drawn(buffer) for buffer in buffers] == before, where
        assert [number_of_tensors(buffer) for buffer in buffers] == n_tensors, where


def test_no_step_comes_while_buffers_are_laid_out(monkeypatch):
    buffers, laid_out = [RingBuffer(4, {"k": Field((), np.int64)}) for _ in range(3)], SideBySide.rearranged
    appends = [threading.Thread(target=lambda buffer=buffer: buffer.append(k=1)) for buffer in buffers]

    def rearranged(*args):
        for thread in appends:
            thread.start()
            thread.join(0.05)
        assert all(thread.is_alive() for thread in appends)
        return laid_out(*args)

    monkeypatch.setattr(SideBySide, "rearranged", rearranged)
    assert len(RingBuffer.merged(buffers)) == 0
    for thread in appends:
        thread.join()
    assert [len(buffer) for buffer in buffers] == [1, 1, 1]


def test_buffers_are_resized_and_merged_while_others_append():
    fields = {"f": Field((16, 16), np.uint8, "delta-rle"), "k": Field((), np.int64)}
    buffers = [RingBuffer(40, fields) for _ in range(2)]

    def append(buffer):
        k = buffer.indices.stop
        buffer.append(f=np.full((16, 16), k % 251, np.uint8), k=k)

    def check(made):
        batch, indices = made.sample(64, return_indices=True)
        np.testing.assert_array_equal(batch["f"][:, 3, 3], batch["k"] % 251)
        return batch["k"], indices

    def resize():
        numbers, indices = check(buffers[0].resized(30))
        np.testing.assert_array_equal(numbers, indices)

    def merge():
        for order in (buffers, buffers[::-1]):
            for buffer in buffers:
                buffer.end_episodes()
            with suppress(SlotError):  # a step came in between
                check(RingBuffer.merged(order))
                merged.append(1)

    merged: list[int] = []
    for buffer in buffers:
        append(buffer)
    appends = [lambda buffer=buffer: (append(buffer), time.sleep(0.001)) for buffer in buffers]
    with meanwhile(*appends, resize, merge, merge, seconds=1.5):
        pass
    assert len(merged) > 3
