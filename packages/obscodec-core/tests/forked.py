"""Work in a forked process, which ends without the exit handlers and finalizers that it has from the tests' process."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable


def forked(work: Callable[[], object], seconds: int = 60) -> int:
    """Do ``work`` in a new process, for some seconds at most, and return its id, for :func:`exit_status`."""
    with warnings.catch_warnings():
        # Python 3.12 and later warn of threads, which the new process lacks.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)  # a deadlock ends the process
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def exit_status(child: int) -> int:
    """Wait for a process: 0 if it did its work, 1 if an exception ended it, -n if signal n did."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
