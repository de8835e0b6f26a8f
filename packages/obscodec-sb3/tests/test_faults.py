"""A step is added, or the buffer stays as it was: whatever exception comes, at any line, or for want of memory."""

import gc
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from failing_allocator import run_with
from faults import at_every_line
from gymnasium import spaces
from new_python import run_python
from obscodec_sb3 import CompressedReplayBuffer
from replay_in_parallel import Play

HERE = Path(__file__).parent
STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "7"))
OPTIONS = [("delta-rle", 8), ("zstd:1", 8), ("auto", 100_000)]


@pytest.mark.parametrize(("codec", "decide_after"), OPTIONS)
def test_a_step_that_is_interrupted_is_added_or_not(codec, decide_after):
    play, n_interrupts = Play(codec=codec, decide_after=decide_after), 0
    for _ in range(30):
        play.prepare()()
        play.stored()
    for _ in range(4):
        for where in at_every_line(play.prepare, STEP):
            n_interrupts += 1
            play.check(where)
    assert n_interrupts > 300 // STEP


@pytest.mark.slow
def test_each_allocation_of_a_step_may_fail(tmp_path):
    options = [f"{codec}/{decide_after}" for codec, decide_after in OPTIONS]
    printed = run_with(HERE / "allocation_faults_sb3.py", *options, folder=tmp_path)
    for option in options:  # a step takes few
        assert int(re.search(rf"^{re.escape(option)}: (\d+)$", printed, re.M)[1]) > 1


@pytest.mark.slow
def test_each_allocation_of_a_save_may_fail(tmp_path):
    """It leaves the snapshot before, and the buffer as it was."""
    step = os.environ.get("OBSCODEC_FAULT_STEP", "80")
    printed = run_with(HERE / "allocation_faults_sb3_saves.py", step, "delta-rle|lz4", "auto", folder=tmp_path)
    assert [int(n) > 5 for n in re.findall(r": (\d+)$", printed, re.M)] == [True, True]


@pytest.mark.slow
@pytest.mark.needs("limits of a process", "/proc")
@pytest.mark.parametrize("kind", [pytest.param("box", marks=pytest.mark.long), "dict"])
def test_what_has_no_memory_is_undone_in_a_new_process(kind):
    """Also in one that has never undone anything."""
    assert run_python(HERE / "add_without_memory.py", kind, timeout=300).endswith("all is there\n")


@pytest.mark.slow
@pytest.mark.needs("fork")
def test_forks_beside_threads():
    """A process may be forked while other threads sample and add; the child ends, and has whole items."""
    program = HERE / "fork_beside_threads_sb3.py"
    assert run_python(program, 8, "sample", "add", timeout=400).endswith("all children of sample, add ended\n")


SPACES = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(2)
CAPACITY = 150


def frame(k):
    image = np.zeros((84, 84), np.uint8)
    image[k % 84] = k % 251 + 1
    image[:, k * 7 % 84] = k % 83 + 1
    return image


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="interrupts are sent by a timer")
@pytest.mark.parametrize(("codec", "n_envs"), [("delta-rle", 1), ("delta-rle", 3), ("zstd:1", 1)])
def test_an_interrupt_loses_one_step_at_most(codec, n_envs):
    frames = np.stack([frame(k) for k in range(700)])

    def observations(k):
        return np.stack([frames[k + 50 * env : k + 50 * env + 4] for env in range(n_envs)])

    rng = np.random.default_rng(0)
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    of_interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us with it ignored
    n_interrupts = 0
    gc.disable()  # an interrupt inside a callback of the collector, such as hypothesis has, is lost
    try:
        for _ in range(15):
            buffer = CompressedReplayBuffer(CAPACITY * n_envs, *SPACES, device="cpu", n_envs=n_envs, codec=codec)
            expected = {}
            for k in range(400):
                at = buffer.pos
                try:
                    if k > 200 and rng.random() < 0.2:
                        signal.setitimer(signal.ITIMER_REAL, 1e-6 + 1e-4 * rng.random())
                    zeros = np.zeros(n_envs)
                    buffer.add(observations(k), observations(k + 1), zeros, zeros, zeros, [{}] * n_envs)
                    expected[at] = k
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    n_interrupts += 1
                    expected.pop(at, None)
                    expected.pop(buffer.pos, None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            for at, k in expected.items():
                np.testing.assert_array_equal(buffer.observations[at], observations(k))
                np.testing.assert_array_equal(buffer.next_observations[at], observations(k + 1))
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, of_interrupts)
    assert n_interrupts > 5
