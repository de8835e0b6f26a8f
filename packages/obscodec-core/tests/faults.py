"""Exceptions that come at any line of our code: what Ctrl-C, or a handler of SIGTERM or SIGALRM that raises, does."""

import dis
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

_OURS = ("obscodec", "obscodec_cupy", "obscodec_rllib", "obscodec_sb3", "obscodec_torchrl")
# Their folders, in the checkout or where a wheel was installed.
_SOURCES = tuple(f"{Path(found.origin or '').parent}{os.sep}" for found in map(find_spec, _OURS) if found)
NUMPY = f"{Path(np.__file__).parent}{os.sep}"


class Interrupt(BaseException):
    """Nobody catches this by accident."""


@cache
def _is_between(code: CodeType, at: int) -> bool:
    """Whether no signal handler is called before the instruction at an offset, though a trace function is.

    So it is with the end of a ``with`` block, regular or by an exception, before its ``__exit__``, and with what stands
    for ``try:`` alone: an exception there would not find its handler.
    """
    instructions = [i for i in dis.get_instructions(code) if i.offset >= at][:4]
    begin = instructions[0].opname == "SWAP"  # below it is what is returned
    leaves_with = [(i.opname, i.argval) for i in instructions[begin : begin + 3]] == [("LOAD_CONST", None)] * 3
    is_thrown_out = [i.opname for i in instructions[:2]] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]
    return leaves_with or is_thrown_out or instructions[0].opname == "NOP"


def _is_swallowed(frame: FrameType | None) -> bool:
    """Whether Python itself drops an exception that is raised here: in what a destructor calls."""
    while frame is not None and frame.f_code.co_filename.startswith(_SOURCES):
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class _Tracer:
    """Counts the lines of some sources that run, and raises before the one with the number ``at``.

    It does not keep what it raises. All frames have their tracer: those of the traceback would be in a cycle, which
    Python 3.11 never frees where a list comprehension reads a generator.
    """

    def __init__(self, at: int, raised: type[BaseException], sources: tuple[str, ...]) -> None:
        self.at, self.raised, self.sources = at, raised, sources
        self.n_lines = 0
        self.place = ""

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        ours = code.co_filename.startswith(self.sources)
        return self._line if ours and not _is_swallowed(frame) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and not _is_between(frame.f_code, frame.f_lasti):
            if self.n_lines == self.at:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                self.n_lines += 1
                raise self.raised("by a test")
            self.n_lines += 1
        return self._line


def interrupted(
    call: Callable[[], object], at: int, raised: type[BaseException] = Interrupt, more_sources: tuple[str, ...] = ()
) -> str | None:
    """Run ``call``, and raise something before the line ``at`` of our code that it runs, or of other folders, too.

    Returns:
        Where that was, None if the call ran fewer lines and ended as usual.
    """
    tracer, before = _Tracer(at, raised, _SOURCES + more_sources), sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    except raised:
        if not tracer.place:
            raise
    finally:
        sys.settrace(before)
    return tracer.place or None


def at_every_line(
    prepare: Callable[[], Callable[[], object]],
    step: int = 1,
    raised: type[BaseException] = Interrupt,
    more_sources: tuple[str, ...] = (),
) -> Iterator[str]:
    """Interrupt a call at its first line, at its second one, and so on to its end.

    Args:
        prepare: gives the call, anew for each line; what it prepares is not interrupted.
        step: how many lines to go on each time, from one of the first ones.
        raised: what is raised there.
        more_sources: further folders whose lines count, such as ``NUMPY``.

    Yields:
        Where the call was interrupted, after that; at the end ``""``, when it ran to its end.
    """
    at = np.random.default_rng(step).integers(step)
    while place := interrupted(prepare(), at, raised, more_sources):
        yield place
        at += step
    yield ""


def at_any_time(call: Callable[[], object], n: int = 300) -> Iterator[None]:
    """Interrupt a call that is made again and again, by a signal that comes each time a microsecond later."""

    def interrupt(*_: object) -> None:
        nonlocal n_interrupts
        n_interrupts += 1
        raise Interrupt

    n_interrupts, before = 0, signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # hypothesis has it call a function, and what is raised there is lost
    try:
        for i in range(n):
            with suppress(Interrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + i * 1e-6)
                while n_interrupts == i:
                    call()
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
