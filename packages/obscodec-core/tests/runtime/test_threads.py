import _thread
import threading
import time

import pytest
from faults import at_any_time, at_every_line
from forked import exit_status, forked
from hypothesis import given
from hypothesis import strategies as st
from obscodec.runtime import threads as threads_module
from obscodec.runtime.background import Background
from obscodec.runtime.threads import MAX_THREADS, as_threads, over_ranges
from together import together


@given(n=st.integers(0, 100), threads=st.integers(-1, 20))
def test_every_position_is_worked_on_once(n, threads):
    seen = []
    lock = threading.Lock()

    def work(start, stop):
        with lock:
            seen.extend(range(start, stop))

    over_ranges(work, n, threads)
    assert sorted(seen) == list(range(n))


@pytest.mark.parametrize("failing", range(4))
def test_an_error_in_any_range_is_raised_when_all_have_ended(failing):
    ended = []

    def work(start, stop):
        if start == failing:
            raise ValueError(f"range {start}")
        ended.append(start)

    with pytest.raises(ValueError, match=f"^range {failing}$"):
        over_ranges(work, 4, 4)
    assert sorted(ended) == [i for i in range(4) if i != failing]


def test_several_threads_can_enter_at_once():
    def enter():
        parts = []
        for _ in range(50):
            over_ranges(lambda start, stop: parts.append(stop - start), 100, 4)
        assert sum(parts) == 5000

    together(*[enter] * 8)


def sums_to_its_length():
    seen = []
    over_ranges(lambda start, stop: seen.extend(range(start, stop)), 100, 4)
    return len(seen) == 100


class Running:
    """Counts calls that run; some of them take long."""

    def __init__(self):
        self.n = 0
        self._lock = threading.Lock()

    def work(self, start, stop):
        with self._lock:
            self.n += 1
        if start:
            time.sleep(0.002)
        with self._lock:
            self.n -= 1


def test_an_interrupt_at_any_line_leaves_no_call_running():
    n_interrupts, running = 0, Running()

    def work(start, stop):
        if threading.get_ident() != main:  # the main thread is interrupted inside of it
            running.work(start, stop)
        elif start == 3:  # which the main thread takes first: let another one begin
            time.sleep(0.001)

    main = threading.get_ident()
    for _ in at_every_line(lambda: lambda: over_ranges(work, 4, 4)):
        n_interrupts += 1
        assert running.n == 0
        assert sums_to_its_length()
    assert n_interrupts > 10


@pytest.mark.needs("signals at any time")
def test_signals_at_any_time_keep_no_later_call_from_its_end():
    for _ in at_any_time(lambda: over_ranges(lambda start, stop: None, 100, 4)):
        assert sums_to_its_length()


def test_the_caller_does_what_no_thread_begins(monkeypatch):
    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threads_module, "_helpers", lambda: [Background()])
        patch.setattr(_thread, "start_new_thread", no_thread)
        assert sums_to_its_length()


@pytest.mark.needs("fork")
def test_a_forked_process_has_threads_of_its_own():
    assert sums_to_its_length()

    def work():
        idents = set()
        over_ranges(lambda start, stop: (idents.add(threading.get_ident()), time.sleep(0.05)), 4, 4)
        assert len(idents) > 1

    assert exit_status(forked(work)) == 0


@pytest.mark.parametrize(("usable", "expected"), [(1, 1), (2, 1), (4, 2), (7, 3), (64, MAX_THREADS)])
def test_half_of_the_usable_processors_is_the_default(monkeypatch, usable, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    assert as_threads(None) == expected
