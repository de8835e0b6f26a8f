"""A ring buffer with a limit of memory equals the last steps of a list, and takes no more than the limit."""

import itertools
import os
import pickle
import re
import sys
import warnings
from functools import partial

import numpy as np
import obscodec
import pytest
from faults import at_every_line
from new_python import run_python
from obscodec import DTypeError, Field, HeapFull, RingBuffer, ShapeError, SnapshotError, SpecError
from obscodec.buffers.memory import LOOK_EVERY
from together import meanwhile

SIDE = 40
STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "3"))  # 1 for every line


def fields(codec: str = "delta-rle|zstd:1", **options) -> dict[str, Field]:
    return {
        "obs": Field((1, SIDE, SIDE), np.uint8, codec, decide_after=8, **options),
        "next": Field((1, SIDE, SIDE), np.uint8, shares="obs"),
        "depth": Field((SIDE, SIDE), np.float32, "shuffle|zstd:1", decide_after=8, block_frames=1),
        "reward": Field((), np.float32),
        "done": Field((), np.bool_),
    }


def step(i: int, n_envs: int) -> dict[str, np.ndarray]:
    """Half noise, so that a step takes about 4 kB."""
    rng = np.random.default_rng(i)
    obs = np.zeros((n_envs, 1, SIDE, SIDE), np.uint8)
    obs[:, :, : SIDE // 2] = rng.integers(256, size=(n_envs, 1, SIDE // 2, SIDE), dtype=np.uint8)
    return {
        "obs": obs,
        "next": np.roll(obs, 1, axis=-1),
        "depth": obs[:, 0] // 10 / np.float32(255),
        "reward": rng.normal(size=n_envs).astype(np.float32),
        "done": rng.random(n_envs) < 0.05,
    }


def fill(buffer: RingBuffer, steps: list[dict[str, np.ndarray]], n: int) -> None:
    for _ in range(n):
        steps.append(step(len(steps), buffer.n_envs))
        buffer.append(**steps[-1])


def stacked(steps: list[dict[str, np.ndarray]], at: int, env: int, n: int) -> np.ndarray:
    found = [steps[at]["obs"][env]]
    while len(found) < n and at > 0 and not steps[at - 1]["done"][env]:
        at -= 1
        found.insert(0, steps[at]["obs"][env])
    return np.stack([np.zeros_like(found[0])] * (n - len(found)) + found)


def check_equal(buffer: RingBuffer, steps: list[dict[str, np.ndarray]]) -> None:
    """The buffer has the last steps of the list, of which it tells how many."""
    first = len(steps) - len(buffer)
    last = steps[first:]
    found = buffer[:]
    for name in ("next", "depth", "reward", "done"):
        np.testing.assert_array_equal(found[name], np.stack([of[name] for of in last]), strict=True)
    for at, env in itertools.product(
        {0, 1, 2, len(last) // 2, len(last) - 1} & {*range(len(last))}, range(buffer.n_envs)
    ):
        np.testing.assert_array_equal(found["obs"][at, env], stacked(steps, first + at, env, 3))


def limited(max_bytes: int | None, capacity: int = 10_000, n_envs: int = 2, **options) -> RingBuffer:
    stacked = {"stack": {"obs": 3}, "pad": "zeros", "episode_end": "done"}
    return RingBuffer(capacity, fields(), n_envs, **stacked, max_bytes=max_bytes, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*max_bytes")
@pytest.mark.parametrize(("capacity", "n_envs"), [(150, 1), (10_000, 3)])
def test_a_limited_buffer_equals_its_last_steps(capacity, n_envs):
    buffer, steps, lengths = limited(1_200_000, capacity, n_envs), [], []
    rng = np.random.default_rng(0)
    for i in range(900 // n_envs):
        fill(buffer, steps, 1)
        lengths.append(len(buffer))
        if i % 40 == 0:
            check_equal(buffer, steps)
        sampled = buffer.sample(8, rng)["reward"]
        assert np.isin(sampled, np.stack([of["reward"] for of in steps[-len(buffer) :]])).all()
        assert buffer.stats().total_bytes < 1_200_000 + 16 * n_envs * 4 * SIDE * SIDE
    check_equal(buffer, steps)
    assert (max(lengths) == min(150, capacity)) or max(lengths) < 900 // n_envs
    rebuilt = pickle.loads(pickle.dumps(buffer))
    fill(rebuilt, steps, 60)
    check_equal(rebuilt, steps)


def test_a_buffer_that_spills_keeps_all_steps(tmp_path):
    buffer, steps = limited(1_200_000, 600, spill=tmp_path / "made"), []
    for i in range(800):
        fill(buffer, steps, 1)
        assert len(buffer) == min(i + 1, 600)
        if i % 20 == 0:
            assert buffer.stats().total_bytes < 1_200_000 + 16 * 2 * 4 * SIDE * SIDE
    check_equal(buffer, steps)
    stats = buffer.stats()
    assert stats.disk_bytes > 500_000
    assert stats.n_steps == 600
    assert stats.steps_that_fit is None  # all do
    obscodec.save(buffer, tmp_path / "saved")
    loaded = obscodec.load(tmp_path / "saved", spill=tmp_path / "made")
    for rebuilt in (pickle.loads(pickle.dumps(buffer)), loaded):
        check_equal(rebuilt, steps)
        more = list(steps)
        fill(rebuilt, more, 40)
        check_equal(rebuilt, more)
        assert rebuilt.stats().disk_bytes > 500_000


def test_a_buffer_below_its_limit_loses_no_step_when_it_is_loaded(tmp_path):
    """Files have the streams of all fields, one behind the other; each store counts its own."""
    buffer, steps = limited(3_000_000), []
    with obscodec.Snapshot(tmp_path) as snapshot:
        for i in range(300):
            steps.append(step(i, 2))
            buffer.append(**steps[-1])
            if i % 20 == 0:
                snapshot.write(buffer)
        snapshot.write(buffer)
    loaded = obscodec.load(tmp_path)
    assert len(buffer) == 300
    assert loaded._memory_bytes() < 1.3 * buffer._memory_bytes()
    fill(loaded, steps, 20)
    assert len(loaded) == 320
    check_equal(loaded, steps)


def test_a_snapshot_does_not_choose_where_files_are_written(tmp_path):
    buffer, steps = limited(1_200_000, spill=tmp_path / "blocks"), []
    fill(buffer, steps, 400)
    obscodec.save(buffer, tmp_path / "saved")
    (tmp_path / "blocks").rmdir()
    with pytest.raises(SnapshotError) as caught:
        obscodec.load(tmp_path / "saved")
    assert str(caught.value) == (
        f"{tmp_path / 'saved'} has a buffer whose oldest blocks are in files: pass spill, a folder for them"
    )
    loaded = obscodec.load(tmp_path / "saved", spill=tmp_path / "other")
    assert not (tmp_path / "blocks").exists()
    check_equal(loaded, steps)
    assert len(loaded) == 400
    fill(loaded, steps, 100)
    check_equal(loaded, steps)
    assert loaded.stats().disk_bytes > 500_000


def test_one_warning_says_what_ran_out_and_what_to_do():
    buffer, steps = limited(1_200_000), 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for steps in range(700):
            buffer.append(**step(steps, 2))
    (warning,) = caught
    n, rest = str(warning.message).split(" ", 1)
    assert re.fullmatch(
        r"of 10000 steps have reached max_bytes, 1200000, with \d+ bytes each: from now on the oldest steps are "
        r"dropped. To keep them, allow more bytes, or pass spill, a folder",
        rest,
    )
    assert len(buffer) <= int(n) + 16
    stats = buffer.stats()
    assert stats.n_steps == len(buffer)
    assert stats.steps_that_fit == pytest.approx(len(buffer), rel=0.3)
    unlimited = limited(None)
    unlimited.append(**step(0, 2))
    assert (unlimited.stats().n_steps, unlimited.stats().steps_that_fit) == (None, None)


@pytest.mark.filterwarnings("ignore:.*max_bytes")
def test_a_limit_below_the_newest_steps_is_refused_when_they_come():
    buffer, steps = limited(500_000), []
    with pytest.raises(HeapFull) as full:
        fill(buffer, steps, 200)
    assert re.fullmatch(
        r"max_bytes is 500000, and the buffer takes \d+ for its \d+ newest steps, and for what it has not compressed "
        r"yet: allow some MB more for each compressed field",
        str(full.value),
    )
    check_equal(buffer, steps[:-1])


@pytest.mark.filterwarnings("ignore:.*max_bytes")
@pytest.mark.parametrize("codec", ["auto", "zstd:1"])
def test_a_buffer_chooses_its_codec_before_it_exceeds_its_limit(codec):
    field = Field((84, 84), np.uint8, codec)
    buffer, frames = RingBuffer(2_000, {"obs": field}, max_bytes=1_000_000), []
    rng = np.random.default_rng(0)
    for _ in range(400):
        frames.append(np.repeat(rng.integers(256, size=(84, 3), dtype=np.uint8), 28, axis=1))
        buffer.append(obs=frames[-1])
    assert len(buffer) == 400  # each takes some 300 bytes, and 256 of 7,056 bytes would not fit
    np.testing.assert_array_equal(buffer[:]["obs"][:, 0], frames)


def test_bad_limits_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for error, text, options in (
        (SpecError, "spill says where blocks go that exceed max_bytes: pass max_bytes, too", {"spill": tmp_path}),
        (ShapeError, "max_bytes must be 1 or more, or None, got 0", {"max_bytes": 0}),
        (DTypeError, "max_bytes must be a number of bytes, or None, got '5B': write 5", {"max_bytes": "5B"}),
        (
            DTypeError,
            "spill must be a folder for the oldest blocks, such as '/tmp', or None, got int",
            {"max_bytes": 100, "spill": 3},
        ),
        (
            FileExistsError,
            f"[Errno 17] spill must be a folder, and '{tmp_path}/file' can't be made: File exists; name another one",
            {"max_bytes": 9, "spill": tmp_path / "file"},
        ),
    ):
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            limited(**{"max_bytes": None, **options})


def test_a_full_disk_leaves_the_buffer_as_it_was(tmp_path):
    buffer, steps = limited(1_200_000, spill=tmp_path / "gone"), []
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as refused:
        fill(buffer, steps, 700)
    assert str(refused.value).endswith("No such file or directory; make room there, or choose another folder")
    check_equal(buffer, steps[:-1])
    (tmp_path / "gone").mkdir()
    buffer.append(**steps[-1])
    check_equal(buffer, steps)
    assert buffer.stats().disk_bytes > 0
    assert buffer.stats().steps_that_fit is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*max_bytes")
@pytest.mark.parametrize("spills", [False, True])
def test_an_append_that_is_interrupted_stores_a_step_or_none(spills, tmp_path):
    buffer, steps = limited(1_200_000, **({"spill": tmp_path} if spills else {})), []
    fill(buffer, steps, 320)

    def prepare():
        while buffer._clock.appended % LOOK_EVERY:  # the next one looks at the memory
            fill(buffer, steps, 1)
        steps.append(step(len(steps), 2))
        return lambda: buffer.append(**steps[-1])

    for _ in at_every_line(prepare, STEP):
        del steps[buffer._clock.appended :]
        last = steps[len(steps) - len(buffer) :]
        np.testing.assert_array_equal(buffer[:]["reward"], np.stack([of["reward"] for of in last]))
        np.testing.assert_array_equal(buffer[:3]["next"], np.stack([of["next"] for of in last[:3]]))
    check_equal(buffer, steps)
    if not spills:  # what was dropped has no tensors
        held = np.count_nonzero(buffer._arrays["next"].ids)
        assert held <= 2 * (buffer._clock.n_before + len(buffer) + 1)


def test_threads_sample_while_blocks_move_to_files(tmp_path):
    buffer, steps = limited(1_200_000, spill=tmp_path), []
    fill(buffer, steps, 400)

    def sample(rng):
        which = rng.integers(400, size=16)
        np.testing.assert_array_equal(buffer[which]["next"], np.stack([steps[at]["next"] for at in which]))

    with meanwhile(*(partial(sample, np.random.default_rng(seed)) for seed in range(2))):
        for store in buffer._set.own_stores:
            while store.spill(str(tmp_path), 1):
                pass


_RESIDENT = """
import sys, warnings
import numpy as np
from obscodec import Field, RingBuffer

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

def buffer(max_bytes):
    fields = {"obs": Field((84, 84), np.uint8, "delta-rle|lz4", decide_after=64), "reward": Field((), np.float32)}
    return RingBuffer(100_000, fields, 2, max_bytes=max_bytes, spill=sys.argv[1] or None)

def fill(made, n):
    rng, frame = np.random.default_rng(0), np.zeros((2, 84, 84), np.uint8)
    most = 0
    for i in range(n):
        frame[:, :30] = rng.integers(256, size=(2, 30, 84))
        made.append(obs=frame, reward=np.zeros(2))
        if i % 50 == 0:
            most = max(most, resident())
    return most

warnings.simplefilter("ignore")
fill(buffer(4_000_000), 2000)  # compile, and have all that a process keeps
made = buffer(int(sys.argv[2]))
most = fill(made, 12_000)
print(most, len(made), made.stats().disk_bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is resident")
@pytest.mark.parametrize("spills", [pytest.param(False, marks=pytest.mark.long), True])
def test_resident_memory_stays_within_the_limit(spills, tmp_path):
    def ran(max_bytes):
        return map(int, run_python("-c", _RESIDENT, tmp_path if spills else "", max_bytes).split())

    # What the process takes beside the buffer is different each time, by MB: two limits in two processes tell it apart.
    least, *_ = ran(4_000_000)
    most, n, disk_bytes = ran(30_000_000)
    assert 20_000_000 < most - least < 26_000_000 + 16 * 2 * 84 * 84 + 2_000_000
    assert (n == 12_000) == spills
    assert (disk_bytes > 20_000_000) == spills


PLAIN = {
    "a plain image": {"image": Field((4, 40, 40), np.uint8, None)},
    "a vector beside an image": {"image": Field((40, 40), np.uint8), "vector": Field((1500,), np.float32, None)},
    "ids": {"image": Field((40, 40), np.uint8, "raw"), "next": Field((40, 40), np.uint8, shares="image")},
}


@pytest.mark.parametrize("spills", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_a_limit_that_plain_fields_and_ids_exceed_is_refused_at_once(name, spills, tmp_path):
    def made(capacity: int, max_bytes: int) -> RingBuffer:
        return RingBuffer(capacity, PLAIN[name], max_bytes=max_bytes, spill=tmp_path / "spill" if spills else None)

    limit = 100_000 if name == "ids" else 8 << 20
    with pytest.raises(ShapeError) as caught:
        made(100_000, limit)
    told = re.fullmatch(
        rf"max_bytes must be ([\d,]+) or more for 100,000 steps, got {limit:,}: uncompressed fields and ids take that "
        r"much, and keep it when steps are dropped or move to files\. Allow more bytes, or name a codec for large "
        r"fields, or make room for ([\d,]+) steps or fewer",
        str(caught.value),
    )
    least, n_fit = (int(n.replace(",", "")) for n in told.groups())
    made(100_000, least)
    made(n_fit, limit)
    with pytest.raises(ShapeError):
        made(100_000, least - 1)
    with pytest.raises(ShapeError):
        made(n_fit + 100, limit)


@pytest.mark.filterwarnings("ignore:.*max_bytes")
def test_a_buffer_is_loaded_with_another_limit(tmp_path):
    buffer = limited(1_200_000, 300, spill=tmp_path / "spill")
    fill(buffer, steps := [], 300)
    obscodec.save(buffer, tmp_path / "saved")
    with pytest.raises(
        ShapeError, match=r"has a buffer that does not fit: .*Pass a larger max_bytes to load$"
    ) as caught:
        obscodec.load(tmp_path / "saved", max_bytes=1000, spill=tmp_path)
    least = int(re.search(r"max_bytes must be ([\d,]+)", str(caught.value))[1].replace(",", ""))
    with pytest.raises(HeapFull, match=r"has a buffer that does not fit: .*\. Pass a larger max_bytes to load$"):
        obscodec.load(tmp_path / "saved", max_bytes=least, spill=tmp_path)
    with pytest.raises(DTypeError, match="max_bytes must be a number of bytes, or None, got '2 MB'"):
        obscodec.load(tmp_path / "saved", max_bytes="2 MB", spill=tmp_path)
    for max_bytes in (None, 700_000, 1 << 30):
        loaded = obscodec.load(tmp_path / "saved", max_bytes=max_bytes, spill=tmp_path)
        assert loaded.arguments()["max_bytes"] == (max_bytes or 1_200_000)
        check_equal(loaded, steps)
        loaded.append(**step(300, 2))
        assert loaded.stats().total_bytes < (max_bytes or 1_200_000) + 16 * 2 * 4 * SIDE * SIDE
        assert (loaded.stats().disk_bytes > 0) == (max_bytes == 700_000)


@pytest.mark.filterwarnings("ignore:.*max_bytes")
def test_a_limit_can_be_given_to_a_buffer_that_had_none(tmp_path):
    buffer = limited(None)
    fill(buffer, steps := [], 300)
    obscodec.save(buffer, tmp_path / "saved")
    dropping = obscodec.load(tmp_path / "saved", max_bytes=900_000)
    fill(dropping, more := list(steps), 40)
    assert 16 <= len(dropping) < 300
    check_equal(dropping, more)
    spilling = obscodec.load(tmp_path / "saved", max_bytes=700_000, spill=tmp_path / "spill")
    assert spilling.stats().disk_bytes > 0
    check_equal(spilling, steps)
    obscodec.save(obscodec.Prioritized(5), tmp_path / "priorities")
    with pytest.raises(SpecError, match="has a Prioritized, which takes no max_bytes when it is loaded: leave it out"):
        obscodec.load(tmp_path / "priorities", max_bytes=5)
