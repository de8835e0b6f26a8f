import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obscodec.runtime.threads import MAX_THREADS, as_threads, over_ranges


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
    totals = [0] * 8

    def enter(i):
        parts = []
        for _ in range(50):
            over_ranges(lambda start, stop: parts.append(stop - start), 100, 4)
        totals[i] = sum(parts)

    callers = [threading.Thread(target=enter, args=(i,)) for i in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert totals == [5000] * 8


@pytest.mark.parametrize(("usable", "expected"), [(1, 1), (2, 1), (4, 2), (7, 3), (64, MAX_THREADS)])
def test_half_of_the_usable_processors_is_the_default(monkeypatch, usable, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    assert as_threads(None) == expected
