"""A process may be forked while another thread saves; both go on."""

import os
import threading
import time

import obscodec
import pytest
from forked import exit_status, forked
from obscodec.snapshots.folder_lock import FolderLock
from saved import check_equal_rings, ring

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def test_a_forked_process_has_no_part_of_the_lock(tmp_path):
    """Else nobody could save to the folder as long as the child lives."""
    buffer, go_on = ring(9), os.pipe()
    obscodec.save(buffer, tmp_path)
    with FolderLock(tmp_path):
        child = forked(lambda: os.read(go_on[0], 1))
    try:
        obscodec.save(ring(30), tmp_path)
    finally:
        os.write(go_on[1], b".")
        assert exit_status(child) == 0
    check_equal_rings(ring(30), obscodec.load(tmp_path))


def test_a_lock_ends_before_a_forked_process_gives_up_its_part(tmp_path):
    """It does so as soon as it runs, which may be later than the next save."""
    lock = FolderLock(tmp_path)
    part = os.dup(lock._descriptor)  # as the new process has it
    lock.close()
    with FolderLock(tmp_path):
        pass
    os.close(part)


def test_a_lock_stays_when_a_forked_process_gives_up_its_part(tmp_path):
    with FolderLock(tmp_path):
        assert exit_status(forked(lambda: None)) == 0
        with pytest.raises(obscodec.SnapshotError, match="is being written by somebody else"):
            FolderLock(tmp_path)


@pytest.mark.parametrize("moment", ["open", "close"])
def test_a_fork_while_the_lock_is_opened_or_closed(tmp_path, monkeypatch, moment):
    """The system has opened its file, or is about to close it, and the object that has the lock does not name it."""
    meanwhile, go_on = threading.Event(), os.pipe()
    original = getattr(os, moment)

    def slow(*args):
        if threading.current_thread() is not locking:
            return original(*args)
        opened = original(*args) if moment == "open" else None
        meanwhile.set()
        time.sleep(0.2)
        return opened if moment == "open" else original(*args)

    def lock_and_unlock():
        with FolderLock(tmp_path):
            pass

    locking = threading.Thread(target=lock_and_unlock)
    monkeypatch.setattr(os, moment, slow)
    locking.start()
    meanwhile.wait(20)
    child = forked(lambda: os.read(go_on[0], 1))
    try:
        locking.join()
        with FolderLock(tmp_path):  # though the child is still there
            pass
    finally:
        os.write(go_on[1], b".")
        assert exit_status(child) == 0


def test_a_fork_waits_for_a_state(tmp_path, monkeypatch):
    """The locks of the buffer are free in the child."""
    buffer, began, may_go_on = ring(9), threading.Event(), threading.Event()
    state = obscodec.RingBuffer.state

    def slow(self):
        with self._set.stores["obs"].changing:
            began.set()
            may_go_on.wait(20)
            return state(self)

    monkeypatch.setattr(obscodec.RingBuffer, "state", slow)
    saving = threading.Thread(target=obscodec.save, args=(buffer, tmp_path))
    saving.start()
    began.wait(20)
    threading.Timer(0.2, may_go_on.set).start()

    def is_free():
        assert buffer._set.stores["obs"].changing.acquire(timeout=10)

    child = forked(is_free)
    saving.join()
    assert exit_status(child) == 0
    check_equal_rings(buffer, obscodec.load(tmp_path))


def test_a_lock_that_an_interrupt_left_goes_with_its_folder(tmp_path):
    obscodec.save(ring(9), tmp_path)
    left = FolderLock(tmp_path)  # and an exception came before the context began
    with pytest.raises(obscodec.SnapshotError, match="is being written by somebody else"):
        obscodec.save(ring(9), tmp_path)
    del left
    obscodec.save(ring(9), tmp_path)
