"""Forks while other threads work: each child must end by itself, and find what it looks for."""

import faulthandler
import os
import sys
import threading
import time

_PATIENCE_S = 30


def fork_beside(threads, in_child, n_forks):
    """Fork so many times while functions run, each again and again in a thread of its own.

    Args:
        threads: the functions.
        in_child: called in each child; returns whether all is well there.
        n_forks: how many.
    """
    may_end, failed = threading.Event(), []

    def work(function):
        try:
            while not may_end.is_set():
                function()
        except BaseException as error:
            failed.append(error)

    working = [threading.Thread(target=work, args=(function,), daemon=True) for function in threads]
    for thread in working:
        thread.start()
    for turn in range(n_forks):
        time.sleep(0.0005 * (turn % 7))
        child = os.fork()
        if child == 0:
            _end_child(in_child)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, f"fork {turn}"
    may_end.set()
    for thread in working:
        thread.join()
    assert not failed, failed


def _end_child(in_child):
    faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)  # a deadlock ends it
    try:
        os._exit(0 if in_child() else 3)
    except BaseException as error:
        sys.stderr.write(f"child: {error!r}\n")
        os._exit(1)
