import copy
import itertools
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import obscodec
import pytest
from atari_frames import frames
from forked import exit_status, forked
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import (
    CorruptStream,
    DTypeError,
    Field,
    FieldError,
    HeapFull,
    Prioritized,
    RingBuffer,
    ShapeError,
    SlotError,
    SpecError,
)
from obscodec.buffers import BufferOptions
from obscodec.stats import in_units

FIELDS = {
    "frame": Field((3, 2), np.uint8, "zstd:1", decide_after=4, block_frames=2),
    "state": Field((2,), np.float32),
    "action": Field((), np.int64),
    "done": Field((), np.bool_),
}
STACK = {"frame": 4, "state": 2}


class ListOfSteps:
    """What a ring buffer is, written down naively: a list of steps, and loops."""

    def __init__(self, capacity: int, n_envs: int) -> None:
        self.capacity, self.n_envs = capacity, n_envs
        self.appended: list[dict[str, np.ndarray]] = []

    @property
    def steps(self) -> list[dict[str, np.ndarray]]:
        return self.appended[-self.capacity :]

    def append(self, **values: np.ndarray) -> None:
        self.appended.append(values)

    def at(self, name: str, time: int, env: int) -> np.ndarray:
        time += len(self.appended) - len(self.steps)  # stacks reach back to steps that can't be drawn any more
        if name not in STACK:
            return self.appended[time][name][env]
        stacked = [self.appended[time][name][env]]
        while len(stacked) < STACK[name]:
            time -= 1
            if time < 0 or self.appended[time]["done"][env]:
                break
            stacked.insert(0, self.appended[time][name][env])
        missing = [np.zeros_like(stacked[0])] * (STACK[name] - len(stacked))
        return np.stack(missing + stacked)

    def everything(self, name: str) -> np.ndarray:
        """``[len, n_envs, ...]``."""
        times, envs = range(len(self.steps)), range(self.n_envs)
        return np.stack([np.stack([self.at(name, time, env) for env in envs]) for time in times])


def random_step(rng: np.random.Generator, n_envs: int) -> dict[str, np.ndarray]:
    return {
        "frame": rng.integers(256, size=(n_envs, 3, 2), dtype=np.uint8),
        "state": rng.normal(size=(n_envs, 2)).astype(np.float32),
        "action": rng.integers(10, size=n_envs),
        "done": rng.random(n_envs) < 0.2,
    }


def both(capacity: int, n_envs: int, n_steps: int, seed: int = 0) -> tuple[RingBuffer, ListOfSteps]:
    buffer = RingBuffer(capacity, FIELDS, n_envs, stack=STACK, pad="zeros", episode_end="done")
    model = ListOfSteps(capacity, n_envs)
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        step = random_step(rng, n_envs)
        buffer.append(**step)
        model.append(**step)
    return buffer, model


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], strict=True)


def test_stacks_end_at_a_compressed_episode_end():
    fields = {"frame": FIELDS["frame"], "done": Field((), np.bool_, "raw", decide_after=4, block_frames=2)}
    buffer = RingBuffer(20, fields, stack={"frame": 4}, pad="zeros", episode_end="done")
    for i in range(12):
        buffer.append(frame=np.full((3, 2), i + 1, np.uint8), done=i == 6)
    assert buffer[-1]["frame"][0, :, 0, 0].tolist() == [9, 10, 11, 12]
    assert buffer[8]["frame"][0, :, 0, 0].tolist() == [0, 0, 8, 9]


def test_samples_are_counted():
    buffer, _ = both(5, 1, 5)
    for _ in range(3):
        buffer.sample(4, 0)
    assert buffer.stats().n_samples == 3
    assert 0 < buffer.stats().sample_s < 10


SMALL = {
    "capacity": st.integers(1, 9),
    "n_envs": st.sampled_from([1, 3]),
    "n_steps": st.integers(1, 25),
    "seed": st.integers(0, 1000),
}


@given(**SMALL)
@settings(deadline=None)
def test_it_holds_the_last_steps_and_stacks_them_within_episodes(capacity, n_envs, n_steps, seed):
    buffer, model = both(capacity, n_envs, n_steps, seed)
    assert len(buffer) == len(model.steps)
    assert_same(buffer[:], {name: model.everything(name) for name in FIELDS})


@given(**SMALL, batch=st.integers(0, 40))
@settings(deadline=None)
def test_a_sample_is_steps_at_uniform_times_of_uniform_environments(capacity, n_envs, n_steps, seed, batch):
    buffer, model = both(capacity, n_envs, n_steps, seed)
    sample = buffer.sample(batch, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    times, envs = rng.integers(len(buffer), size=batch), rng.integers(n_envs, size=batch)
    assert_same(sample, {name: model.everything(name)[times, envs] for name in FIELDS})


INDICES = [
    0,
    -1,
    np.int64(3),
    slice(None),
    slice(-3, None),
    slice(None, None, -2),
    [0, -1, 2, 2],
    np.array([[1, 2], [3, 0]]),
    np.arange(7) % 2 == 0,
    [],
    (2, 1),
    (-1, slice(None)),
    (slice(1, 4), 2),
    ([0, 3], [1, 2]),
    (slice(None), [2, 0]),
    np.eye(7, 3, dtype=bool),
    ...,
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_an_index_selects_times_and_environments_as_numpy_does(index):
    buffer, model = both(7, 3, 17)
    assert_same(buffer[index], {name: model.everything(name)[index] for name in FIELDS})


@pytest.mark.parametrize("index", [7, -8, (0, 3), [0, 7], (0, 0, 0), 1.0])
def test_an_index_outside_is_refused(index):
    buffer, _ = both(7, 3, 17)
    with pytest.raises(SlotError, match=r"^7 steps of 3 environments are stored: "):
        buffer[index]


def test_iteration_goes_from_the_oldest_to_the_newest():
    buffer, model = both(7, 1, 17)
    assert [step["action"].item() for step in buffer] == [step["action"].item() for step in model.steps]


def test_one_environment_needs_no_axis_and_numbers_need_no_array():
    fields = {**FIELDS, "reward": Field((), np.float32)}
    short, full = (RingBuffer(5, fields) for _ in range(2))
    for i in range(7):
        step = random_step(np.random.default_rng(i), 1)
        full.append(**step, reward=np.array([0.1 * i]))
        short.append(frame=step["frame"][0], state=step["state"][0].tolist(), action=int(step["action"][0]),
                     done=bool(step["done"][0]), reward=0.1 * i)  # fmt: skip
    assert_same(short[:], full[:])


def test_what_was_appended_and_what_was_read_is_a_copy():
    buffer = RingBuffer(5, FIELDS)
    step = random_step(np.random.default_rng(0), 1)
    buffer.append(**step)
    expected = copy.deepcopy(step)
    for array in [*step.values(), *buffer[-1].values(), *buffer.sample(1).values()]:
        array[...] = 1
    assert_same(buffer[-1], expected)


def test_samples_go_through_convert():
    buffer, _ = both(7, 3, 17)
    plain = buffer.sample(20, np.random.default_rng(0))
    converted = buffer.sample(20, np.random.default_rng(0), convert=lambda array: (array.shape, array.tobytes()))
    assert converted == {name: (array.shape, array.tobytes()) for name, array in plain.items()}


def test_steps_that_wait_are_there_for_whoever_reads():
    field = Field((40, 40), np.uint8, "delta-rle", decide_after=4)
    steps = np.random.default_rng(0).integers(256, size=(10, 40, 40), dtype=np.uint8)
    for read in (
        lambda buffer: ThreadPoolExecutor(1).submit(lambda: buffer[:]).result(),
        lambda buffer: pickle.loads(pickle.dumps(buffer))[:],
        lambda buffer: copy.deepcopy(buffer)[:],
        lambda buffer: (buffer.stats(), buffer[:])[1],
    ):
        buffer = RingBuffer(20, {"frame": field})
        for step in steps:
            buffer.append(frame=step)
        (store,) = buffer._set.stores.values()
        assert store.stats().n_tensors == 0
        np.testing.assert_array_equal(read(buffer)["frame"][:, 0], steps)
        assert store.stats().n_tensors == 10


def test_no_step_waits_for_a_store_that_may_be_full():
    buffer = RingBuffer(20, {"frame": Field((40, 40), np.uint8, "delta-rle", decide_after=4, max_bytes=100_000)})
    for n in range(1, 10):
        buffer.append(frame=np.full((40, 40), n, np.uint8))
        (store,) = buffer._set.stores.values()
        assert store.stats().n_tensors == n


def test_statistics_are_the_sum_of_the_fields():
    played = frames("Pong", 1400, seed=0)
    fields = {"frame": Field((84, 84), np.uint8, "zstd:1"), "reward": Field((), np.float32)}
    buffer = RingBuffer(1000, fields)
    assert buffer.stats().total_bytes == 0
    assert buffer.stats().ratio == 1.0
    for frame in played:
        buffer.append(frame=frame, reward=0.0)
    stats = buffer.stats()
    assert 900 <= stats.fields["frame"].n_tensors <= 1000  # equal frames are stored once
    assert stats.fields["reward"] == 1000 * 4
    assert stats.raw_bytes == 1000 * (84 * 84 + 4)
    more = stats.total_bytes - stats.fields["frame"].total_bytes - 1000 * 4
    assert 1000 * 4 < more < 1000 * 4 + 40_000  # ids, and those that were replaced
    assert stats.ratio == stats.raw_bytes / stats.total_bytes > 10


def test_a_field_can_share_the_store_of_another():
    played = frames("Pong", 700, seed=0)
    stacks = np.lib.stride_tricks.sliding_window_view(played, 4, axis=0).transpose(0, 3, 1, 2)
    alone = {"obs": Field((4, 84, 84), np.uint8), "next_obs": Field((4, 84, 84), np.uint8)}
    shared = {**alone, "next_obs": Field((4, 84, 84), np.uint8, shares="obs")}
    buffers = [RingBuffer(500, fields) for fields in (alone, shared)]
    for obs, next_obs in itertools.pairwise(stacks):
        for buffer in buffers:
            buffer.append(obs=obs, next_obs=next_obs)
    assert_same(buffers[0][:], buffers[1][:])
    np.testing.assert_array_equal(buffers[1][:]["next_obs"][:, 0], stacks[-500:])
    totals = [buffer.stats().total_bytes for buffer in buffers]
    assert totals[1] < 0.6 * totals[0]
    batch = buffers[1].sample(64, np.random.default_rng(0))
    assert np.shares_memory(batch["obs"].base, batch["next_obs"].base)


def test_environments_are_streams_of_their_own():
    played = [frames("Pong", 400, seed=0), frames("Breakout", 400, seed=0)]
    single = [RingBuffer(300, {"frame": Field((84, 84), np.uint8, "delta-rle")}) for _ in played]
    both = RingBuffer(300, {"frame": Field((84, 84), np.uint8, "delta-rle")}, n_envs=2)
    for step in zip(*played, strict=True):
        both.append(frame=np.stack(step))
        for buffer, frame in zip(single, step, strict=True):
            buffer.append(frame=frame)
    live_bytes = [buffer.stats().fields["frame"].live_bytes for buffer in [*single, both]]
    assert live_bytes[2] < 1.1 * (live_bytes[0] + live_bytes[1])


GOOD = random_step(np.random.default_rng(1), 3)
CAST = "cast them yourself, or use a dtype that can hold them"
REFUSED_STEPS = [
    ({"extra": 1}, FieldError,
     "a step has the fields frame, state, action, done: 'extra' is none of them"),
    ({"action": np.array([None] * 3)}, DTypeError,
     f"field 'action': values of dtype object would be changed by dtype int64: {CAST}"),
    ({"action": np.array([0, 1, 0.5])}, DTypeError,
     f"field 'action': values of dtype float64, such as 0.5, would be changed by dtype int64: {CAST}"),
    ({"frame": GOOD["frame"][:2]}, ShapeError, "field 'frame': expected shape (3, 3, 2), got (2, 3, 2)"),
    ({"frame": GOOD["frame"][0]}, ShapeError, "field 'frame': expected shape (3, 3, 2), got (3, 2)"),
    ({"frame": np.swapaxes(GOOD["frame"], 1, 2)}, ShapeError,
     "field 'frame': expected shape (3, 3, 2), got (3, 2, 3): its axes are in another order, so transpose it, or "
     "declare its shape"),
    ({"done": True}, ShapeError, "field 'done': expected shape (3,), got ()"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "text"), REFUSED_STEPS)
def test_a_refused_step_changes_nothing(change, error, text):
    buffer, model = both(7, 3, 17)
    stats = buffer.stats()
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        buffer.append(**GOOD | change)
    assert_same(buffer[:], {name: model.everything(name) for name in FIELDS})
    assert buffer.stats() == stats


def test_a_missing_field_is_refused():
    wrong = {"frame": GOOD["frame"], "state": GOOD["state"], "actions": GOOD["action"]}
    text = (
        "a step has the fields frame, state, action, done: 'action' is missing, 'done' is missing, 'actions' is none "
        "of them"
    )
    with pytest.raises(FieldError, match=f"^{re.escape(text)}$"):
        RingBuffer(5, FIELDS, n_envs=3).append(**wrong)


@pytest.mark.parametrize("method", ["append", "extend"])
def test_a_dictionary_without_stars_is_refused(method):
    text = (
        f"{method} takes each field by its name, got dict without one: write {method}(**step) if step is a dictionary "
        "of frame, state, action, done"
    )
    with pytest.raises(DTypeError, match=f"^{re.escape(text)}$"):
        getattr(RingBuffer(5, FIELDS, n_envs=3), method)(GOOD)


def test_a_buffer_is_printed_in_three_lines():
    fields = FIELDS | {"next": Field((3, 2), np.uint8, next_of="frame"), "image": Field((84, 84), np.uint8)}
    buffer = RingBuffer(500, fields, n_envs=2)
    assert repr(buffer) == (
        "RingBuffer(0 of 500 steps, n_envs=2\n"
        "  empty\n"
        "  frame: uint8[3, 2] zstd:1 (it waits for 4 more tensors; decide() chooses now); state: float32[2]; "
        "action: int64[]; done: bool[]; next: uint8[3, 2] with frame; image: uint8[84, 84] auto (it waits for 256 more "
        "tensors; decide() chooses now))"
    )
    step = {name: np.zeros((300, 2, *field.shape), field.dtype) for name, field in fields.items()}
    step["image"] += np.arange(300, dtype=np.uint16).astype(np.uint8)[:, None, None, None]
    buffer.extend(**step)
    buffer.decide()
    assert repr(buffer).startswith(f"RingBuffer(300 of 500 steps, n_envs=2\n  {buffer.stats().summary}\n  frame: ")
    chosen = buffer.stats().fields["image"].choice.chosen.spec
    assert repr(buffer).endswith(f"; image: uint8[84, 84] {chosen})")


def test_stats_tell_the_codec_of_each_field_before_and_after_it_is_chosen():
    named = {"some": Field((9, 9), np.uint8, "zstd:3"), "few": Field((9, 9), np.uint8, "delta-rle", block_frames=4)}
    buffer = RingBuffer(500, named | {"auto": Field((84, 84), np.uint8), "done": Field((), np.bool_)})
    codecs = "  some: zstd:3, blocks of 1\n  few: delta-rle, blocks of 4\n"
    waits = "it waits for 256 more tensors; decide() chooses now"
    undecided = codecs.replace("\n", f"; {waits}\n")
    plain = "done: uncompressed: under 1 KiB, or without a codec"
    before = f"{undecided}  auto: auto, which has not chosen yet: {waits}\n  {plain}"
    assert str(buffer.stats()) == f"{buffer.stats().summary}\n{before}"
    for step in range(300):
        images = {name: np.full(field.shape, step % 251, field.dtype) for name, field in buffer.fields.items()}
        buffer.append(**images)
    stats = buffer.stats()
    chosen = stats.fields["auto"]
    assert (chosen.codec, chosen.block_frames) == (chosen.choice.chosen.spec, chosen.choice.chosen.block_frames)
    line = f"  auto: {chosen.codec}, blocks of {chosen.block_frames}: {chosen.choice.reason}"
    assert str(stats) == f"{stats.summary}\n{codecs}{line}\n  {plain}"
    assert stats.summary.endswith(f"; about {in_units(stats.projected_bytes)} when full")
    buffer.sample(4)
    samples = f"  {1000 * buffer.stats().sample_s:.2f} ms for a sample, the mean of 1"
    assert repr(buffer.stats()) == f"BufferStats({stats}\n{samples})"


def test_a_buffer_says_that_it_has_no_codec_so_far():
    """Not that it is as large as what came, and none of what the full one takes: both will change."""
    one = RingBuffer(1_000_000, {"frame": Field((84, 84), np.uint8), "action": Field((), np.int64)})
    other = Field((84, 84), np.uint8, "zstd:1", decide_after=1)
    two = RingBuffer(1000, {"frame": Field((84, 84), np.uint8), "other": other})
    for step in range(100):
        frame = np.full((84, 84), step, np.uint8)
        one.append(frame=frame, action=step)
        two.append(frame=frame, other=frame)
    memory = f"{in_units(one.stats().total_bytes)} in memory, 706 kB uncompressed"
    codec = "frame: uint8[84, 84] auto (it waits for 156 more tensors; decide() chooses now)"
    assert repr(one) == (
        f"RingBuffer(100 of 1,000,000 steps, n_envs=1\n  {memory}: nothing is compressed yet\n"
        f"  {codec}; action: int64[])"
    )
    assert two.stats().summary.endswith(" in memory, 1.41 MB uncompressed: not all is compressed yet")
    assert str(one.stores.pop().stats()).startswith("100 tensors, ")


def test_a_buffer_without_codecs_names_no_ratio():
    buffer = RingBuffer(1000, {"action": Field((), np.int64)})
    buffer.append(action=1)
    assert buffer.stats().summary == "8 bytes in memory, 8 bytes uncompressed; about 8 kB when full"


def test_a_buffer_with_a_limit_prints_it(tmp_path):
    noise = np.random.default_rng(0).integers(256, size=(400, 1, 84, 84), dtype=np.uint8)
    for spill in (None, tmp_path):
        buffer = RingBuffer(1000, {"frame": Field((84, 84), np.uint8, "raw")}, max_bytes=1_800_000, spill=spill)
        with nullcontext() if spill else pytest.warns(UserWarning, match="reached max_bytes"):
            for frame in noise:
                buffer.append(frame=frame)
        stats = buffer.stats()
        if spill is None:
            assert stats.summary.endswith(f"; about {stats.steps_that_fit} steps fit into max_bytes")
        else:
            assert f" in memory, {in_units(stats.disk_bytes)} on disk, 2.82 MB uncompressed; " in stats.summary


def test_a_buffer_that_no_memory_has_room_for_is_refused():
    text = (
        r"there is not enough memory for 2,000,000,000,000 steps, .* are free: make the buffer smaller, and see what "
        r"obscodec.estimate\(env, steps\) says; .*allocate"
    )
    with pytest.raises(MemoryError, match=f"^{text}"):
        RingBuffer(10**12, {"state": Field((9,), np.float64)}, n_envs=2)
    with pytest.raises(MemoryError, match=r"^there is not enough memory for 1,000,000,000,000 steps"):
        Prioritized(10**12)


def test_a_field_without_room_leaves_all_fields_as_they_were():
    fields = {
        "number": Field((), np.int64),
        "before": Field((1000,), np.uint8, "raw"),
        "full": Field((1000,), np.uint8, "raw", max_bytes=4096),
        "after": Field((1000,), np.uint8, "raw"),
    }
    buffer = RingBuffer(10, fields)
    for i in range(1, 6):  # the last one is in the open block, which is not in the heap
        buffer.append(number=i, **dict.fromkeys(["before", "full", "after"], np.full(1000, i, np.uint8)))
    before, stats = buffer[:], buffer.stats()
    text = (
        "1001 bytes do not fit: the heap has reserved 4096 bytes for 4004 live ones, max_bytes is 4096: "
        "free slots, or allow more"
    )
    for _ in range(30):  # more often than there are slots
        with pytest.raises(HeapFull, match=f"^{text}$"):
            buffer.append(number=9, **dict.fromkeys(["before", "full", "after"], np.full(1000, 9, np.uint8)))
    assert_same(buffer[:], before)
    assert stats.fields["before"].n_tensors == 5
    assert buffer.stats().fields["before"].n_tensors <= 6  # one in the row of the next step, which replaces it


REFUSED_BUFFERS = [
    ({"fields": {}}, FieldError, "a buffer has one field or more, got none"),
    ({"stack": {"pixels": 4}}, FieldError, "no field is named 'pixels', there are frame, state, action, done"),
    ({"episode_end": "end"}, FieldError, "no field is named 'end', there are frame, state, action, done"),
    ({"mask": ("a", ["b"])}, FieldError,
     "no field is named ('a', ['b']), there are frame, state, action, done"),
    ({"fields": {**FIELDS, "x": Field((2,), np.uint8, shares="pixels")}}, FieldError,
     "field 'x' needs 'pixels': no field is named 'pixels', there are frame, state, action, done"),
    ({"fields": {**FIELDS, "x": Field((2,), np.uint8, shares="x")}}, FieldError,
     "'x' can't share the store of 'x', which has none of its own: name the field that owns the store"),
    ({"fields": {**FIELDS, "x": Field((3, 2), np.uint8, shares="frame"), "y": Field((3, 2), np.uint8, shares="x")}},
     FieldError, "'y' can't share the store of 'x', which has none of its own: name the field that owns the store"),
    ({"fields": {**FIELDS, "x": Field((2,), np.uint8, shares="frame")}}, ShapeError,
     "fields that share a store have one shape and dtype, 'x' is uint8[2], 'frame' is uint8[3, 2]"),
    ({"episode_end": None}, FieldError,
     "stacks need episode_end, the boolean field that is true in the last step of an episode"),
    ({"episode_end": "action"}, DTypeError, "episode_end takes a field bool[], 'action' is int64[]"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "text"), REFUSED_BUFFERS)
def test_a_constructor_refuses_what_it_can_know(change, error, text):
    arguments = {"capacity": 5, "fields": FIELDS, "stack": {"frame": 4}, "pad": "zeros", "episode_end": "done"}
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        RingBuffer(**arguments | change)


def test_a_field_with_an_unknown_codec_is_refused():
    text = r"^no codec is named 'zst' \(in spec 'zst'\), did you mean 'zstd'\? There are bitpack, "
    with pytest.raises(SpecError, match=text):
        Field((84, 84), np.uint8, "zst")
    with pytest.raises(SpecError, match=text):
        BufferOptions(codec={"frame": "zst"})


@pytest.mark.needs("fork")
def test_a_forked_process_draws_by_itself(tmp_path):
    ring = RingBuffer(1000, {"t": Field((), np.int64)})
    for t in range(1000):
        ring.append(t=t)
    ring.sample(1)
    children = [forked(lambda i=i: np.save(tmp_path / f"{i}.npy", ring.sample(100)["t"])) for i in range(2)]
    assert [exit_status(child) for child in children] == [0, 0]
    drawn = [np.load(tmp_path / f"{i}.npy").tolist() for i in range(2)] + [ring.sample(100)["t"].tolist()]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


@pytest.mark.needs("fork")
def test_a_forked_process_goes_on_with_epochs_while_another_thread_draws():
    small, large = (RingBuffer(n, {"t": Field((), np.int64)}) for n in (30, 50_000))
    for ring in (small, large):
        for t in range(ring.capacity):
            ring.append(t=t)
    epochs, ended = small.epochs(30, n_epochs=1000), threading.Event()
    next(epochs)
    draws = large.epochs(50_000, n_epochs=10**6)
    thread = threading.Thread(target=lambda: [next(draws) for _ in iter(ended.is_set, True)])
    thread.start()
    try:
        assert [exit_status(forked(lambda: next(epochs), seconds=10)) for _ in range(5)] == [0] * 5
    finally:
        ended.set()
        thread.join()


def test_a_seed_gives_the_same_batch_again():
    buffer = RingBuffer(50, {"number": Field((), np.int64)})
    for number in range(50):
        buffer.append(number=np.array([number]))
    assert np.array_equal(buffer.sample(20, 3)["number"], buffer.sample(20, 3)["number"])
    assert not np.array_equal(buffer.sample(20, 3)["number"], buffer.sample(20, 4)["number"])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"codec": "raw", "budget": "fast"}, SpecError, "a budget is for the codec 'auto', got it for 'raw'"),
        ({"shares": "obs", "codec": "raw"}, FieldError,
         "a field that shares a store takes the options of the field that owns it: leave out codec"),
        ({"shares": "obs", "block_frames": 4, "decide_after": 4, "max_bytes": 5}, FieldError,
         "a field that shares a store takes the options of the field that owns it: leave out decide_after, "
         "block_frames, max_bytes"),
        ({"heap": "pinned"}, SpecError,
         "heap='pinned' is for a GPU, got it for the CPU: name another device, or leave it out"),
        ({"device": "cuda", "heap": "vram"}, SpecError, "heap is 'device' or 'pinned', got 'vram'"),
    ],
)  # fmt: skip
def test_a_field_refuses_options_that_nothing_would_read(options, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        Field((84, 84), np.uint8, **options)


def test_a_buffer_that_is_cleared_again_and_again_does_not_look_ahead_at_each_step(monkeypatch):
    buffer = RingBuffer(1000, {"number": Field((), np.int64)})
    looks = []
    look = buffer._memory._forecast
    monkeypatch.setattr(buffer._memory, "_forecast", lambda *of: (looks.append(len(buffer)), look(*of)))
    for _ in range(20):
        for number in range(100):
            buffer.append(number=number)
        buffer.clear()
    for number in range(1000):
        buffer.append(number=number)
    assert looks == [16, 32, 64, 128, 256, 512]


def test_what_other_libraries_call_append_is_named():
    buffer = RingBuffer(5, FIELDS, n_envs=3)
    with pytest.raises(AttributeError, match=r"^'RingBuffer' object has no attribute 'add': append stores a step$"):
        buffer.add(**GOOD)
    with pytest.raises(AttributeError, match=r"^'RingBuffer' object has no attribute 'appendd'$"):
        buffer.appendd(**GOOD)


def test_a_field_is_no_index():
    text = "an index is of steps and environments, got 'frame': write buffer[:]['frame']"
    with pytest.raises(SlotError, match=f"^{re.escape(text)}$"):
        RingBuffer(5, FIELDS, n_envs=3)["frame"]


@pytest.mark.parametrize("codec", ["auto", "delta-rle", "zstd:1"])
@pytest.mark.parametrize("n", [3, 400])
def test_a_cleared_buffer_prints_the_memory_that_it_keeps(codec, n):
    buffer = RingBuffer(500, {"frame": Field((84, 84), np.uint8, codec)})
    for t in range(n):
        buffer.append(frame=np.full((84, 84), t % 256, np.uint8))
    buffer.clear()
    stats = buffer.stats()
    assert stats.total_bytes > 0
    assert stats.summary == f"empty, {in_units(stats.total_bytes)} in memory"
    assert repr(buffer).startswith(f"RingBuffer(0 of 500 steps, n_envs=1\n  {stats.summary}\n")
    assert str(stats).startswith(stats.summary)


@pytest.mark.parametrize("name", ["n_appended", "first", "n_rows", "earliest", "arrays", "seams"])
def test_a_state_has_all_its_values(name):
    made = RingBuffer(3, FIELDS)
    state = made.state()
    del state[name]
    with pytest.raises(CorruptStream, match=f"^'{name}' of a state is a "):
        made.restore(state)


def test_the_arguments_of_a_buffer_with_stacks_say_what_is_before_an_episode():
    arguments = RingBuffer(3, FIELDS, stack=STACK, pad="zeros", episode_end="done").arguments()
    del arguments["pad"]
    with pytest.raises(SpecError, match="pad"):
        RingBuffer.from_arguments(arguments)


@pytest.mark.parametrize("how", ["load", "with_envs", "clear"])
def test_what_a_refused_append_has_stored_goes(tmp_path, how):
    """The first field has its tensors when the second one is full: they are in the spare row, which nobody reads."""
    rng = np.random.default_rng(0)
    full = {"codec": "raw", "max_bytes": 1 << 21}
    buffer = RingBuffer(
        5000,
        {"a": Field((40, 40), np.uint8, "delta-rle"), "b": Field((40, 40), np.uint8, **full), "done": Field((), bool)},
        episode_end="done",
    )

    a, b = rng.integers(256, size=(2, 5000, 1, 40, 40), dtype=np.uint8)
    with pytest.raises(HeapFull):
        buffer.extend(a=a, b=b, done=np.ones((5000, 1), bool))
    if how == "clear":
        buffer.clear()
    elif how == "load":
        obscodec.save(buffer, tmp_path)
        buffer = obscodec.load(tmp_path)
    else:
        buffer = buffer.with_envs(1)
    assert buffer.stats().fields["a"].n_tensors == len(buffer)


def test_a_loaded_ring_is_cleared_as_a_whole(tmp_path):
    buffer = RingBuffer(5, {"a": Field((40, 40), np.uint8, "delta-rle")})
    for i in range(60):
        buffer.append(a=np.full((1, 40, 40), i, np.uint8))
    obscodec.save(buffer, tmp_path)
    loaded = obscodec.load(tmp_path)
    loaded.clear()
    assert loaded.stats().fields["a"].n_tensors == 0
