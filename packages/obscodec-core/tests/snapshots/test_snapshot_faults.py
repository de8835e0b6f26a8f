"""A save, a load or a state that ends at any line leaves buffer and folder as they were, or does all of its work."""

import os
import signal
from functools import partial

import numpy as np
import obscodec
import pytest
from faults import at_every_line
from obscodec.snapshots.folder import Folder
from saved import append, check_equal_rings, ring

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "29"))  # 1 for every line
N_BEFORE, N_AFTER = 9, 23


def small(n_steps):
    return ring(n_steps, capacity=12)


def filled(n_steps, end):
    """A small ring in which steps wait, as they do right after they were appended."""
    buffer = small(n_steps)
    append(buffer, n_steps, end)
    return buffer


def check_folder(folder, before, after, place):
    """The folder has one of two rings; which."""
    loaded = obscodec.load(folder)
    is_after = loaded._clock.appended == after._clock.appended
    check_equal_rings(after if is_after else before, loaded)
    assert not list(folder.glob("*.tmp")), place
    return is_after


@pytest.mark.slow
def test_a_save_that_is_interrupted_is_done_or_not(tmp_path, monkeypatch):
    """The disk is waited for in the last save only: no power is lost here."""
    before, after, n_done, n_interrupts = small(N_BEFORE), small(N_AFTER), 0, 0

    def prepare():
        obscodec.save(before, tmp_path)
        # A buffer whose saves are interrupted again and again has at last enough tensors to choose its codecs, which
        # takes most of the time, and only computes.
        return partial(obscodec.save, small(N_AFTER), tmp_path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        for place in at_every_line(prepare, STEP):
            n_interrupts += 1
            n_done += check_folder(tmp_path, before, after, place)
    assert n_interrupts > 300 // STEP
    assert n_done > 0
    obscodec.save(after, tmp_path)
    assert len(Folder(tmp_path).generations()) == 1


def test_a_state_that_is_interrupted_changes_nothing(tmp_path):
    expected, buffers, n_interrupts = filled(N_BEFORE, N_AFTER), [], 0

    def prepare():
        buffers[:] = [filled(N_BEFORE, N_AFTER)]  # steps that wait are stored by a state
        return buffers[0].state

    for place in at_every_line(prepare, STEP):
        n_interrupts += 1
        assert buffers[0]._clock.appended == N_AFTER, place
        obscodec.save(buffers[0], tmp_path)
        check_folder(tmp_path, expected, expected, place)
    assert n_interrupts > 200 // STEP


def test_a_load_that_is_interrupted_leaves_the_folder(tmp_path):
    before, n_interrupts = small(N_AFTER), 0
    obscodec.save(before, tmp_path)
    names = {file.name for file in tmp_path.iterdir()}
    for place in at_every_line(lambda: lambda: obscodec.load(tmp_path), STEP):
        n_interrupts += 1
        assert {file.name for file in tmp_path.iterdir()} == names, place
    assert n_interrupts > 300 // STEP
    check_folder(tmp_path, before, before, "at the end")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="interrupts are sent by a timer")
@pytest.mark.filterwarnings(r"ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_control_c_at_any_time(tmp_path):
    """Keys are pressed while a buffer is filled, saved and loaded; each generation that is there is whole."""
    rng, n_interrupts, n_saved = np.random.default_rng(0), 0, 0
    handler = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    of_interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    rings = {n: small(n) for n in range(3, 60, 4)}
    save_s = 0.005  # how long a save takes: grows until some are finished
    try:
        for n, buffer in [*rings.items()] * 6:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + 2 * save_s * rng.random())
                obscodec.save(buffer, tmp_path)
                n_saved += 1
                obscodec.load(tmp_path)
                buffer.state()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                n_interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            save_s *= 1.1 if 4 * n_saved < n_interrupts else 1
            if Folder(tmp_path).generations():
                loaded = obscodec.load(tmp_path)
                check_equal_rings(rings[loaded._clock.appended], loaded)
            assert buffer._clock.appended == n
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.signal(signal.SIGINT, of_interrupts)
    assert n_interrupts > 20
    assert n_saved > 5
