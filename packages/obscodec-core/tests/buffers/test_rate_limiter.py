"""RateLimiter: who waits, for how long, and what counts."""

import pickle
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from faults import at_every_line
from forked import exit_status, forked
from hypothesis import given
from hypothesis import strategies as st
from obscodec import DTypeError, Field, FieldError, RateLimited, RateLimiter, RingBuffer, ShapeError, SlotError
from obscodec.buffers import rate_limiter


def buffer_with(limiter: RateLimiter | None, n_envs: int = 1) -> RingBuffer:
    fields = {"k": Field((), np.int64), "done": Field((), bool)}
    return RingBuffer(1000, fields, n_envs, episode_end="done", limiter=limiter)


def waits_for(limiter: RateLimiter, call: str, n: int = 1) -> None:
    """Return once so many calls wait."""
    end = time.monotonic() + 60
    while limiter.waiting()[call][0] < n:
        assert time.monotonic() < end
        time.sleep(0.001)


@given(st.data())
def test_a_program_waits_where_its_side_is_ahead(data):
    """A side may go on while it is ahead by the tolerance at most, one side or the other always."""
    per_insert = data.draw(st.sampled_from([0.25, 1, 3, 8.5]))
    tolerance, min_size = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 20))
    limiter = RateLimiter(per_insert, min_size=min_size, tolerance=tolerance, timeout=0)
    inserted = sampled = 0
    for call, n in data.draw(st.lists(st.tuples(st.sampled_from(["insert", "sample"]), st.integers(0, 30)))):
        ahead = per_insert * (inserted - min_size) - sampled
        may = {
            "insert": inserted < min_size or ahead <= tolerance,
            "sample": inserted >= min_size and -ahead <= tolerance,
        }
        assert any(may.values())
        if may[call]:
            assert getattr(limiter, call)(n) == 0
            inserted, sampled = (inserted + n, sampled) if call == "insert" else (inserted, sampled + n)
        else:
            with pytest.raises(RateLimited, match=f"^an? {call} of {n} steps has waited for 0 s"):
                getattr(limiter, call)(n)
        assert (limiter.n_inserted, limiter.n_sampled) == (inserted, sampled)


def test_threads_keep_the_ratio():
    limiter = RateLimiter(4, min_size=50, tolerance=20, timeout=60)
    buffer = buffer_with(limiter, n_envs=2)
    ahead = []

    def act() -> None:
        for k in range(300):
            buffer.append(k=[k, k], done=[False, False])
            ahead.append(4 * (limiter.n_inserted - 50) - limiter.n_sampled)

    actors = [threading.Thread(target=act) for _ in range(2)]
    batches = []

    def learn() -> None:
        while any(actor.is_alive() for actor in actors):
            batches.append(buffer.sample(16)["k"])

    learners = [threading.Thread(target=learn) for _ in range(2)]
    for thread in [*actors, *learners]:
        thread.start()
    for actor in actors:
        actor.join()
    limiter.stop()
    for learner in learners:
        learner.join()
    assert limiter.n_inserted == 1200
    assert limiter.n_sampled == 16 * len(batches)
    assert max(ahead) <= 20 + 4 * 2 * 2  # the last step of either actor
    assert limiter.insert_waited_s + limiter.sample_waited_s > 0
    assert limiter.waiting() == {"insert": (0, 0.0), "sample": (0, 0.0)}


def test_each_verb_counts_its_steps():
    limiter = RateLimiter(1e-9, tolerance=1e9)  # never waits
    buffer = buffer_with(limiter, n_envs=3)
    counts = []

    def counted() -> tuple[int, int]:
        counts.append((limiter.n_inserted, limiter.n_sampled))
        return tuple(np.subtract(counts[-1], counts[-2] if len(counts) > 1 else 0).tolist())

    buffer.append(k=[0, 0, 0], done=[False] * 3)
    assert counted() == (3, 0)
    buffer.append(envs=[0, 2], k=[1, 1], done=[True, False])
    assert counted() == (2, 0)
    buffer.extend(k=np.ones((20, 3)), done=np.zeros((20, 3), bool))
    assert counted() == (60, 0)
    buffer.sample(5)
    assert counted() == (0, 5)
    buffer.sequences(4, 6, burn_in=2, bootstrap=1)
    assert counted() == (0, 24)
    mask = buffer.sample_episodes(7)["mask"]
    assert counted() == (0, int(mask.sum()))
    buffer.take([0])
    buffer[:]
    list(buffer.epochs(16))
    list(buffer.episodes())
    buffer.relabel("k", lambda steps: steps["k"])
    assert counted() == (0, 0)


def test_a_refused_call_counts_nothing_and_stores_nothing():
    limiter = RateLimiter(2, min_size=4, timeout=0)
    buffer = buffer_with(limiter)
    with pytest.raises(RateLimited, match=r"4 more steps must be inserted first; 0 are inserted, 0 drawn, and 2 samp"):
        buffer.sample(2)
    with pytest.raises(FieldError):
        buffer.append(k=1)
    buffer.extend(k=range(5), done=[False] * 5)
    with pytest.raises(RateLimited, match=r"^an insert of 1 steps .* 2 more steps must be drawn first"):
        buffer.append(k=5, done=False)
    assert len(buffer) == 5
    with pytest.raises(FieldError):
        buffer.sample(2, n_step=2)
    with pytest.raises(SlotError, match=r"no episode"):
        buffer.sequences(2, 100)
    assert (limiter.n_inserted, limiter.n_sampled) == (5, 0)
    buffer.sample(100)
    with pytest.raises(RateLimited, match="49 more steps must be inserted first"):
        buffer.sample(1)
    assert issubclass(RateLimited, TimeoutError)


def test_a_step_that_finds_no_room_is_not_counted():
    limiter = RateLimiter(1, min_size=1000)
    fields = {"x": Field((1 << 16,), np.uint8, codec="raw", max_bytes=200_000)}
    buffer = RingBuffer(100, fields, limiter=limiter)
    rng = np.random.default_rng(0)
    noise = rng.integers(256, size=(100, 1 << 16), dtype=np.uint8)
    with pytest.raises(MemoryError):
        buffer.extend(x=noise)
    assert 0 < limiter.n_inserted == len(buffer) < 100


def test_it_tells_who_waits_and_lets_all_go_on_when_stopped():
    limiter = RateLimiter(2, min_size=2)
    buffer = buffer_with(limiter)
    buffer.append(k=0, done=False)
    learners = [threading.Thread(target=buffer.sample, args=[8]) for _ in range(2)]
    for learner in learners:
        learner.start()
    waits_for(limiter, "sample", 2)
    assert limiter.waiting()["insert"] == (0, 0.0)
    assert "2 sample calls waiting for" in repr(limiter)
    buffer.append(k=1, done=False)  # one of them goes on, and is ahead
    while limiter.waiting()["sample"][0] == 2:
        time.sleep(0.001)
    assert limiter.n_sampled == 8
    limiter.stop()
    for learner in learners:
        learner.join()
    assert limiter.n_sampled == 16
    assert limiter.sample_waited_s > 0 == limiter.insert_waited_s
    buffer.sample(100)
    assert limiter.sample(100) == 0


def test_after_a_minute_it_warns_of_a_call_that_goes_on_waiting(monkeypatch):
    monkeypatch.setattr(rate_limiter, "_WARN_AFTER_S", 0.01)
    limiter = RateLimiter(1, timeout=0.05)
    with (
        pytest.warns(UserWarning, match="1 more steps must be inserted first.* It goes on waiting"),
        pytest.raises(RateLimited, match=r"waited for 0\.05 s"),
    ):
        limiter.sample(1)


def test_a_call_asks_the_limiter_that_it_began_with():
    """Another thread may replace it in the middle of a call."""
    limiter, found = RateLimiter(8, tolerance=1e9), []

    class Replaced(RingBuffer):
        @property
        def limiter(self) -> RateLimiter | None:
            found.append(None)
            return limiter if len(found) % 2 else None

        @limiter.setter
        def limiter(self, _: object) -> None:
            pass

    buffer = Replaced(100, {"k": Field((), np.int64), "done": Field((), bool)}, episode_end="done")
    for call in (
        lambda: buffer.append(k=1, done=True),
        lambda: buffer.sample(2),
        lambda: buffer.sequences(3, 1),
        lambda: buffer.sample_episodes(4),
    ):
        found.clear()
        call()
    assert (limiter.n_inserted, limiter.n_sampled) == (1, 2 + 3 + 4)


def test_episodes_that_can_not_be_read_do_not_count(monkeypatch):
    def raise_memory_error(*_: object) -> None:
        raise MemoryError

    limiter = RateLimiter(8)
    buffer = buffer_with(limiter)
    buffer.append(k=1, done=True)
    with monkeypatch.context() as patch:
        patch.setattr("obscodec.arrays.deferred_read.DeferredRead.result", raise_memory_error)
        with pytest.raises(MemoryError):
            buffer.sample_episodes(4)
    assert limiter.n_sampled == 0
    buffer.sample_episodes(4)
    assert limiter.n_sampled == 4


def test_a_timeout_may_be_longer_than_any_wait(monkeypatch):
    monkeypatch.setattr(rate_limiter, "_WARN_AFTER_S", 0.0)
    limiter, waited, told = RateLimiter(8, timeout=1e300), [], []
    learner = threading.Thread(target=lambda: waited.append(limiter.sample(1)))
    monkeypatch.setattr(rate_limiter, "warn", told.append)
    learner.start()
    waits_for(limiter, "sample")
    limiter.insert(1)
    learner.join()
    assert [text.endswith("threads or processes of their own") for text in told] == [True]
    assert len(waited) == limiter.n_sampled == 1


@pytest.mark.parametrize("samples_per_insert", [1e-300, 1e300])
def test_what_is_missing_can_be_said_of_any_ratio(samples_per_insert):
    limiter = RateLimiter(samples_per_insert, n_inserted=10**9, n_sampled=10**9, timeout=0)
    with pytest.raises(RateLimited, match=r"(\d|inf) more steps must be"):
        (limiter.insert if samples_per_insert > 1 else limiter.sample)(1)


def test_an_interrupt_at_any_line_leaves_nobody_waiting():
    limiter, places = RateLimiter(1, timeout=0.001), []

    def refused() -> None:
        with suppress(RateLimited):
            limiter.sample(1)

    for place in at_every_line(lambda: refused):
        places.append(place)
        assert limiter.waiting() == {"insert": (0, 0.0), "sample": (0, 0.0)}
        assert limiter.n_sampled == 0
    assert any("_wait" in place for place in places)


def test_an_append_that_is_interrupted_at_any_line_counts_or_not():
    limiters = []

    def prepare() -> Callable[[], object]:
        limiters.append(limiter := RateLimiter(1e9, tolerance=1e9))
        buffers.append(buffer := buffer_with(limiter))
        buffer.append(k=0, done=False)
        return lambda: buffer.append(k=1, done=False)

    buffers: list[RingBuffer] = []
    for _ in at_every_line(prepare):
        limiter, buffer = limiters[-1], buffers[-1]
        assert limiter.n_inserted in (1, 2)
        buffer.append(k=2, done=False)
        assert buffer[-1]["k"] == 2


@pytest.mark.needs("fork")
def test_a_forked_process_goes_on_while_others_wait_and_count():
    limiter = RateLimiter(1, min_size=10)
    learner = threading.Thread(target=limiter.sample)
    learner.start()
    waits_for(limiter, "sample")
    has_ended = threading.Event()

    def count() -> None:
        while not has_ended.is_set():
            limiter.count("insert", 1)
            limiter.count("insert", -1)

    counting = [threading.Thread(target=count) for _ in range(2)]
    for thread in counting:
        thread.start()

    def go_on() -> None:
        limiter.insert(30)
        limiter.sample(2)

    try:
        assert [exit_status(forked(go_on, seconds=10)) for _ in range(20)] == [0] * 20
    finally:
        has_ended.set()
        for thread in counting:
            thread.join()
        limiter.stop()
        learner.join()


@pytest.mark.needs("signals at any time")
def test_an_interrupted_call_waits_no_longer():
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    limiter = RateLimiter(1)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            limiter.sample(1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert limiter.waiting() == {"insert": (0, 0.0), "sample": (0, 0.0)}
    assert limiter.n_sampled == 0
    limiter.insert(1)
    limiter.sample(1)


def test_a_pickle_goes_on_counting():
    limiter = RateLimiter(2, min_size=3, tolerance=5, timeout=0)
    buffer = buffer_with(limiter)
    buffer.extend(k=range(4), done=[False] * 4)
    buffer.sample(8)
    again = pickle.loads(pickle.dumps(buffer))
    assert (again.limiter.n_inserted, again.limiter.n_sampled) == (4, 8)
    with pytest.raises(RateLimited):
        again.sample(1)
    again.limiter = RateLimiter(2, n_inserted=4, n_sampled=1, timeout=0)
    again.sample(8)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"samples_per_insert": 0}, ShapeError, "more than 0"),
        ({"samples_per_insert": np.nan}, ShapeError, "finite"),
        ({"samples_per_insert": "8"}, DTypeError, "a number"),
        ({"min_size": 0}, ShapeError, "min_size"),
        ({"tolerance": -1}, ShapeError, "tolerance"),
        ({"timeout": -1}, ShapeError, "timeout"),
    ],
)
def test_wrong_options_are_refused(options, error, match):
    with pytest.raises(error, match=match):
        RateLimiter(**{"samples_per_insert": 8, **options})


def test_a_buffer_takes_no_number_for_a_limiter():
    with pytest.raises(DTypeError, match=r"limiter must be a RateLimiter, such as RateLimiter\(samples_per_insert=8\)"):
        buffer_with(8)
