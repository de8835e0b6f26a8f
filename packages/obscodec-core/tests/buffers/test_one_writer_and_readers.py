"""Threads append to a buffer while others sample: each row is one step, under its own index."""

import os
import threading
import time
import warnings

import numpy as np
import pytest
from obscodec import Field, Prioritized, RingBuffer
from together import meanwhile, together

SECONDS = float(os.environ.get("THREADS_SECONDS", "1.5"))


def frame(number):
    made = np.zeros((16, 16), np.uint8)
    made[number % 16] = 1 + number % 250
    made[0, :8] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
    return made


def new_buffer(capacity, **options):
    fields = {"obs": Field((16, 16), np.uint8, "delta-rle"), "number": Field((), np.int64)}
    fields |= {"next_obs": Field((16, 16), np.uint8, next_of="obs"), "done": Field((), bool)}
    fields |= {"reward": Field((), np.float32)}
    return RingBuffer(capacity, fields, episode_end="done", **options)


def append(buffer, number):
    buffer.append(obs=frame(number), number=number, next_obs=frame(number + 1), done=number % 50 == 49, reward=1)


def assert_whole(batch, indices=None):
    numbers = batch["number"].reshape(-1)
    for name, ahead in (("obs", 0), ("next_obs", 1)):
        expected = np.stack([frame(number + ahead) for number in numbers.tolist()])
        np.testing.assert_array_equal(batch[name].reshape(expected.shape), expected)
    if indices is not None:
        np.testing.assert_array_equal(indices, numbers)


class Steps:
    def __init__(self, buffer, n=60):
        self.buffer, self.n = buffer, 0
        for _ in range(n):
            self.append()

    def append(self):
        append(self.buffer, self.n)
        self.n += 1


@pytest.mark.parametrize("capacity", [40, 2000])
@pytest.mark.parametrize("by", ["uniform", "priorities"])
def test_a_sample_has_whole_steps_while_another_thread_appends(capacity, by):
    steps, batches = Steps(new_buffer(capacity)), []
    priorities = Prioritized(capacity) if by == "priorities" else None

    def sample():
        batch, indices = steps.buffer.sample(16, p=priorities, return_indices=True)
        assert_whole(batch, indices)
        if priorities is not None:
            priorities.update(indices, np.ones(16))
        batches.append(len(indices))

    n = steps.n
    with meanwhile(steps.append, sample, sample, seconds=SECONDS):
        pass
    assert len(batches) > 10
    assert steps.n > n + 10
    if priorities is not None:
        tree, n_leaves = priorities._tree, len(priorities._tree) // 2
        np.testing.assert_allclose(tree[1:n_leaves], tree[2::2] + tree[3::2])


def test_sequences_n_steps_and_everything_are_whole_while_another_thread_appends():
    steps = Steps(new_buffer(60))

    def sequences():
        drawn = steps.buffer.sequences(4, 5, strict_length=False)
        for k in range(4):
            numbers = drawn["number"][k][drawn["mask"][k]]
            assert (np.diff(numbers) == 1).all()
            assert numbers[0] // 50 == numbers[-1] // 50
            np.testing.assert_array_equal(drawn["obs"][k][drawn["mask"][k]], [frame(i) for i in numbers.tolist()])

    def everything():
        found = steps.buffer[:]
        assert (np.diff(found["number"][:, 0]) == 1).all()
        assert_whole(found)

    def returns():
        batch, indices = steps.buffer.sample(8, n_step=3, gamma=1.0, return_indices=True)
        n_steps = np.minimum(batch["number"] % 50 + 3, 50) - batch["number"] % 50  # fewer if no more were stored
        assert ((batch["reward"] >= 1) & (batch["reward"] <= n_steps)).all()
        after = (indices + batch["reward"]).astype(int).tolist()
        np.testing.assert_array_equal(batch["next_obs"], [frame(number) for number in after])

    with meanwhile(steps.append, sequences, everything, returns, seconds=SECONDS):
        pass


def test_a_buffer_that_drops_steps_for_want_of_bytes_gives_whole_ones():
    steps = Steps(new_buffer(10_000, max_bytes=400_000))
    with warnings.catch_warnings(action="ignore"):
        while not steps.buffer.indices.start:
            steps.append()
    first = steps.buffer.indices.start

    def sample():
        assert_whole(*steps.buffer.sample(16, return_indices=True))

    with warnings.catch_warnings(action="ignore"), meanwhile(steps.append, sample, seconds=SECONDS) as stop:
        for _ in range(3000):
            if steps.buffer.indices.start > first or stop.wait(0.01):
                break
    assert steps.buffer.indices.start > first


def test_steps_of_two_writers_are_whole_and_none_is_lost():
    buffer, counts = new_buffer(200), [0, 1_000_000]

    def writer(which):
        def write():
            append(buffer, counts[which])
            counts[which] += 1

        return write

    append(buffer, 5_000_000)
    with meanwhile(writer(0), writer(1), seconds=SECONDS):
        pass
    assert buffer.indices.stop == 1 + counts[0] + counts[1] - 1_000_000
    assert_whole(buffer[:])


def test_episodes_end_and_go_while_other_threads_sample():
    steps = Steps(new_buffer(60))

    def seam():
        steps.append()
        if steps.n % 7 == 0:
            steps.buffer.end_episodes()
        elif steps.n % 11 == 0:
            steps.buffer.drop_episode()

    def sample():
        batch, indices = steps.buffer.sample(16, return_indices=True)
        assert_whole(batch, indices)

    with meanwhile(seam, sample, sample, seconds=SECONDS):
        pass


def test_a_writer_does_not_wait_for_a_reader(monkeypatch):
    """A batch is decoded without the lock."""
    steps = Steps(new_buffer(40))
    (store,) = steps.buffer.stores
    entered, go_on = threading.Event(), threading.Event()
    read_into = type(store).read_into

    def slow(self, ids, out):
        entered.set()
        assert go_on.wait(20)
        read_into(self, ids, out)

    def write():
        assert entered.wait(20)
        began = time.monotonic()
        for _ in range(100):  # the ring goes round twice
            steps.append()
        assert time.monotonic() - began < 15
        go_on.set()

    batches = []
    monkeypatch.setattr(type(store), "read_into", slow)
    together(lambda: batches.append(steps.buffer.sample(16, return_indices=True)), write)
    assert_whole(*batches[0])
