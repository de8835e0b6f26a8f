"""Work in the background ends, whatever happens to those who wait for it."""

import _thread
import threading
import time
from types import SimpleNamespace

import pytest
from faults import at_any_time, at_every_line
from forked import exit_status, forked
from new_python import run_python
from obscodec.runtime import Background, background
from together import together


def test_calls_are_made_one_after_the_other_in_another_thread():
    background, made = Background(), []

    def work(i):
        made.append((i, threading.get_ident()))
        return i

    jobs = [background.submit(lambda i=i: work(i)) for i in range(20)]
    assert [job.result() for job in jobs] == list(range(20))
    assert [i for i, _ in made] == list(range(20))
    assert len({ident for _, ident in made} - {threading.get_ident()}) == 1
    assert jobs[0].result() == 0  # as often as somebody asks
    assert all(job.is_done for job in jobs)


def test_two_threads_that_use_it_first_start_one_thread(monkeypatch):
    start, started, done = _thread.start_new_thread, [], []

    def slowly(*arguments):
        time.sleep(0.05)
        started.append(arguments)
        return start(*arguments)

    worker = Background()
    monkeypatch.setattr(background, "_thread", SimpleNamespace(**{**vars(_thread), "start_new_thread": slowly}))
    together(*[lambda: done.append(worker.submit(lambda: 7).result())] * 3)
    assert (done, len(started)) == ([7, 7, 7], 1)


def test_an_error_comes_with_the_result():
    job = Background().submit(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            job.result()
    job.wait()


def test_an_interrupt_at_any_line_keeps_no_later_call_from_its_end():
    background, n_interrupts = Background(), 0
    for _ in at_every_line(lambda: lambda: background.submit(lambda: 7).result()):
        n_interrupts += 1
        assert background.submit(lambda: 8).result() == 8
    assert n_interrupts > 5


@pytest.mark.needs("signals at any time")
def test_signals_at_any_time_keep_no_later_call_from_its_end():
    background = Background()
    for _ in at_any_time(lambda: background.submit(lambda: 7).result()):
        assert background.submit(lambda: 8).result() == 8


@pytest.mark.needs("fork")
def test_a_forked_process_has_a_thread_of_its_own():
    background = Background()
    assert background.submit(lambda: 7).result() == 7
    running = background.submit(lambda: time.sleep(0.2))
    time.sleep(0.05)

    def go_on():
        assert background.submit(lambda: 9).result() == 9

    child = forked(go_on)  # waits for what runs
    assert running.is_done
    assert exit_status(child) == 0


ENDS = """
import atexit, time

def after_the_end():
    for job in jobs:
        try:
            job.result()
        except BaseException as error:
            print(repr(error))
    try:
        background.submit(print)
    except RuntimeError as error:
        print(repr(error))

atexit.register(after_the_end)  # before others, so it is called after theirs

import numpy as np
from obscodec import encode
from obscodec.runtime import Background, background
from together import together

def encode_for_ever():
    while True:
        encode(x, "delta-rle")

background, x = Background(), np.arange(1 << 22, dtype=np.uint8)
encode(x, "delta-rle")
jobs = [background.submit(encode_for_ever), background.submit(lambda: print("never"))]
time.sleep(0.2)
"""


def test_python_exits_while_a_kernel_runs_in_the_background():
    ending = "RuntimeError('Python is about to exit')"
    assert run_python("-c", ENDS, timeout=60).splitlines() == ["SystemExit()", ending, ending]


ENDS_IN_LLVM = """
import time
from obscodec.runtime import Background

names = {"__name__": "llvmlite.binding.ffi", "time": time}
exec("def called():\\n for _ in range(100): time.sleep(0.005)\\n print('whole')", names)
job = Background().submit(lambda: names["called"]())
while not job.has_begun:
    time.sleep(0.001)
time.sleep(0.05)
"""


def test_nothing_is_raised_in_a_call_of_llvm_as_python_exits():
    """What LLVM asks Python for there would be missing, and it would crash."""
    assert run_python("-c", ENDS_IN_LLVM, timeout=60) == "whole\n"
