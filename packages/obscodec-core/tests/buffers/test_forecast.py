"""A buffer knows what it will take when it is full, and warns once if that is more than the machine has."""

import copy
import re
import warnings
from itertools import pairwise

import numpy as np
import pytest
from obscodec import Field, HeapFull, RingBuffer
from obscodec.buffers import memory
from obscodec.runtime import free_memory

SIDE = 84
TEXT = (
    r"(?P<steps>\d+) steps will take about (?P<size>[\d.,]+) (?P<unit>[GT]B), judging by (?P<n>\d+) steps, and the "
    r"machine has (?P<free>[\d.]+ [GT]B) free: make the buffer smaller, or pass max_bytes, with spill=folder to "
    r"keep the rest on disk; stats\(\) shows the size of each field"
)


def too_many(codec: str | None) -> int:
    """For so many steps, the machine has too little; but not for one array of them, which numpy would refuse."""
    return int(free_memory() * (4 if codec else 0.75)) // (SIDE * SIDE)


def fields(codec: str | None = "auto") -> dict[str, Field]:
    return {
        "obs": Field((SIDE, SIDE), np.uint8, codec),
        "next": Field((SIDE, SIDE), np.uint8, shares="obs"),
        "action": Field((), np.int64),
    }


def steps(n: int, n_envs: int, noisy: int):
    """A square that moves, over ``noisy`` rows of noise."""
    rng = np.random.default_rng(0)
    before = np.zeros((n_envs, SIDE, SIDE), np.uint8)
    for i in range(n):
        frame = np.zeros((n_envs, SIDE, SIDE), np.uint8)
        frame[:, :noisy] = rng.integers(256, size=(n_envs, noisy, SIDE), dtype=np.uint8)
        frame[:, 70:80, i % 70 :][..., :10] = 200
        yield {"obs": before, "next": frame, "action": np.zeros(n_envs, np.int64)}
        before = frame


def fill(buffer: RingBuffer, n: int) -> None:
    for step in steps(n, buffer.n_envs, SIDE):
        buffer.append(**step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "n_envs"),
    [
        ("auto", 1),
        ("auto", 8),
        ("delta-rle", 8),
        ("delta-rle|zstd:3", 1),
        ("delta-rle|zstd:3", 8),
        ("zstd:1", 8),
        ("rle", 8),
        ("raw", 8),
        (None, 1),
    ],
)
def test_the_projection_is_what_the_full_buffer_takes(codec, n_envs):
    n = 12_800 // n_envs
    buffer, projected = RingBuffer(n, fields(codec), n_envs), {}
    for i, step in enumerate(steps(n, n_envs, noisy=4), 1):
        buffer.append(**step)
        if i in (n // 10, n // 3, n):
            projected[i] = buffer.stats().projected_bytes
    full = buffer.stats().total_bytes
    assert projected.pop(n) == full
    assert [*projected.values()] == pytest.approx([full] * 2, rel=0.15)


@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|lz4:6"])
def test_noise_is_not_projected_to_shrink(codec):
    """Although the first frames of the first blocks become reference frames, and cost these blocks nothing."""
    noise = np.random.default_rng(0).integers(256, size=(3001, 64, 64, 3), dtype=np.uint8)
    item = Field((64, 64, 3), np.uint8, codec)
    buffer, projected = RingBuffer(3000, {"obs": item, "next": Field(item.shape, np.uint8, next_of="obs")}), []
    for n, (before, frame) in enumerate(pairwise(noise), 1):
        buffer.append(obs=before, next=frame)
        if n in (128, 360, 700, 1500):
            projected.append(buffer.stats().projected_bytes)
            assert copy.deepcopy(buffer).stats().projected_bytes >= noise.nbytes
    assert min(projected) >= noise.nbytes
    # chunks of the heap have up to 2 MiB, and the newest one may be empty
    assert projected == pytest.approx([buffer.stats().total_bytes] * 4, abs=2**21, rel=0)


def test_there_is_no_projection_before_a_codec_is_chosen_or_a_step_is_there():
    buffer = RingBuffer(1000, fields())
    assert buffer.stats().projected_bytes is None
    for step in steps(100, 1, 4):
        buffer.append(**step)
    assert buffer.stats().projected_bytes is None


def test_the_projection_stays_within_the_limit():
    buffer = RingBuffer(1_000_000, fields("raw"), max_bytes=30_000_000)
    fill(buffer, 1000)
    assert buffer.stats().projected_bytes == 30_000_000


@pytest.mark.parametrize("codec", ["auto", "delta-rle", None])
@pytest.mark.parametrize("n_envs", [1, 16])
def test_it_warns_once_with_the_numbers(codec, n_envs):
    capacity = too_many(codec) // n_envs
    buffer = RingBuffer(capacity, fields(codec), n_envs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fill(buffer, 600 // n_envs)
    (warning,) = caught
    match = re.fullmatch(TEXT, str(warning.message))
    assert match["steps"] == str(capacity)
    assert int(match["n"]) == (128 if codec and n_envs == 1 else 16)  # a store decides after 256 frames
    expected = capacity * n_envs * SIDE * SIDE * (2 if codec is None else 1)
    assert float(match["size"]) * {"GB": 1e9, "TB": 1e12}[match["unit"]] == pytest.approx(expected, rel=0.15)


def test_a_step_that_warns_can_be_appended_again_if_warnings_are_errors():
    buffer, refused = RingBuffer(too_many(None), fields(None)), 0
    for n, step in enumerate(steps(40, 1, SIDE)):
        assert len(buffer) == n
        try:
            buffer.append(**step)
        except UserWarning:
            refused += 1
            buffer.append(**step)
    assert refused == 1


@pytest.mark.parametrize(
    ("capacity", "codec", "options"),
    [(1000, None, {}), (too_many("raw"), "raw", {"max_bytes": free_memory() // 2})],
    ids=["small", "limited"],
)
def test_it_does_not_warn_if_the_memory_suffices(capacity, codec, options):
    buffer = RingBuffer(capacity, fields(codec), **options)
    fill(buffer, 300)  # a warning is an error


def test_it_warns_of_a_limit_that_is_more_than_the_machine_has():
    buffer = RingBuffer(too_many(None), fields(None), max_bytes=10**13)
    with pytest.warns(UserWarning, match=rf"{buffer.capacity} steps will take about .*, judging by 16 steps"):
        fill(buffer, 40)


def test_what_fails_while_room_is_made_is_told_with_the_steps_unless_it_tells_more(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: None)

    def fail(error):
        with memory.making_room(lambda: 5_000):
            raise error

    text = (
        "there is not enough memory for 5,000 steps: make the buffer smaller, and see what obscodec.estimate(env, "
        "steps) says; "
    )
    for error in (MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        with pytest.raises(MemoryError) as caught:
            fail(error)
        assert str(caught.value) == f"{text}{error}"
    for error in (HeapFull("the heap is full"), ValueError("no room")):
        with pytest.raises(type(error)) as caught:
            fail(error)
        assert caught.value is error
