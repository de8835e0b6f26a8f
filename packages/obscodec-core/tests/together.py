"""Functions in several threads at once, each in one of its own."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE_S = 60


def together(*functions: Callable[[], object]) -> None:
    """Call each function once, and raise the first error."""
    _join(*_started(functions))


@contextmanager
def meanwhile(*functions: Callable[[], object], seconds: float = 0) -> Iterator[threading.Event]:
    """Call functions again and again while the block runs, and for some seconds after it; threads switch often.

    The first error ends all calls, which the event that the block gets tells, and is raised at the end.
    """
    stop = threading.Event()

    def again_and_again(function: Callable[[], object]) -> None:
        try:
            function()
            while not stop.is_set():
                function()
        finally:
            stop.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    started = _started([lambda function=function: again_and_again(function) for function in functions])
    try:
        yield stop
        stop.wait(seconds)
    finally:
        stop.set()
        for thread in started[0]:
            thread.join(_PATIENCE_S)
        sys.setswitchinterval(before)
    _join(*started)


def _started(functions: list[Callable[[], object]]) -> tuple[list[threading.Thread], list[BaseException]]:
    raised: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads, raised


def _join(threads: list[threading.Thread], raised: list[BaseException]) -> None:
    for thread in threads:
        thread.join(_PATIENCE_S)
    if raised:
        raise raised[0]
    assert not any(thread.is_alive() for thread in threads)
