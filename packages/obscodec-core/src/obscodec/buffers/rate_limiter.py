"""RateLimiter: keeps what actors insert and what learners draw in a ratio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import TIMEOUT_MAX, Condition
from time import monotonic
from typing import Any, Literal
from weakref import WeakSet

import numpy as np

from obscodec.arguments import as_count, as_number, says_arguments, warn
from obscodec.errors import RateLimited, ShapeError
from obscodec.fixed import Fixed
from obscodec.runtime import PicklableLock

_Call = Literal["insert", "sample"]
_ARTICLE = {"insert": "an insert", "sample": "a sample"}
_WARN_AFTER_S = 60.0
_NO_LOCK = nullcontext()
_INSTEAD = "make another RateLimiter, from n_inserted and n_sampled on"


@dataclass(eq=False)
class _Waiting:
    """A call that waits."""

    call: _Call
    since: float


@says_arguments
class RateLimiter:
    """Lets each step be drawn ``samples_per_insert`` times on average: whoever is ahead waits for the others.

    A ``RingBuffer`` with a limiter asks it by itself. Other buffers, and actors on several machines, call
    :meth:`insert` before they add steps, and :meth:`sample` before they draw some; both may be called by any number of
    threads. Until ``min_size`` steps are inserted, samples wait. From then on, a call waits while its side is ahead by
    more than ``tolerance``, and then may go ahead by its own size, so that one side or the other can always go on.

    Args:
        samples_per_insert: how often each step is drawn, on average: also known as the replay ratio. More than 0.
        min_size: how many steps to insert before the first sample. They do not count for the ratio.
        tolerance: how many drawn steps one side may be ahead of the other before it waits, in steps that are drawn. 0
            lets actors and learners take turns.
        timeout: for how many seconds a call waits before it fails; None for any time, with a warning after a minute.
        n_inserted: how many steps are inserted already, such as those of a buffer that is loaded.
        n_sampled: how many steps are drawn already.

    Attributes:
        n_inserted: the steps that were inserted, those of running calls included.
        n_sampled: the steps that were drawn.
        insert_waited_s: for how many seconds inserts have waited, of calls that have ended.
        sample_waited_s: the same of samples.

    Raises:
        ShapeError: a number is out of range.
        DTypeError: an argument has another type.

    Example:
        >>> from obscodec import Field, RateLimiter, RingBuffer
        >>> limiter = RateLimiter(samples_per_insert=8, min_size=100, timeout=0.01)
        >>> buffer = RingBuffer(1000, {"reward": Field((), "float32")}, limiter=limiter)
        >>> buffer.extend(reward=[1.0] * 100)
        >>> batch = buffer.sample(32)
        >>> buffer.sample(32)
        Traceback (most recent call last):
        obscodec.errors.RateLimited: a sample of 32 steps has waited for 0.01 s: 4 more steps must be inserted first; \
100 are inserted, 32 drawn, and 8 samples per insert allowed
    """

    samples_per_insert: Fixed[float] = Fixed(_INSTEAD)
    min_size: Fixed[int] = Fixed(_INSTEAD)
    tolerance: Fixed[float] = Fixed(_INSTEAD)
    timeout: Fixed[float | None] = Fixed(_INSTEAD)

    def __init__(
        self,
        samples_per_insert: float,
        *,
        min_size: int = 1,
        tolerance: float = 0,
        timeout: float | None = None,
        n_inserted: int = 0,
        n_sampled: int = 0,
    ) -> None:
        self.samples_per_insert = as_number("samples_per_insert", samples_per_insert)
        if not self.samples_per_insert:
            raise ShapeError("samples_per_insert must be more than 0: a learner that draws nothing needs no limiter")
        self.min_size = as_count("min_size", min_size)
        self.tolerance = as_number("tolerance", tolerance)
        self.timeout = None if timeout is None else as_number("timeout", timeout)
        self.n_inserted = as_count("n_inserted", n_inserted, 0)
        self.n_sampled = as_count("n_sampled", n_sampled, 0)
        self.insert_waited_s = self.sample_waited_s = 0.0
        self._changed = Condition(PicklableLock())
        self._waiting = WeakSet[_Waiting]()  # weak, so that none stays whose call was interrupted at any line
        self._has_stopped = False

    def insert(self, n: int = 1) -> float:
        """Wait until steps may be inserted, and count them.

        Args:
            n: how many steps.

        Returns:
            For how many seconds it has waited.

        Raises:
            RateLimited: it has waited for ``timeout`` seconds. Nothing is counted.
        """
        return self._begin("insert", as_count("n", n, 0))

    def sample(self, n: int = 1) -> float:
        """Wait until steps may be drawn, and count them. See :meth:`insert`."""
        return self._begin("sample", as_count("n", n, 0))

    @contextmanager
    def turn(self, call: _Call, n: int, lock: AbstractContextManager[Any] = _NO_LOCK) -> Iterator[None]:
        """Insert or sample in a ``with`` block, with a lock: nothing is counted if the block fails."""
        self._begin(call, n)
        try:
            with lock:
                yield
        except BaseException:
            self.count(call, -n)
            raise

    def count(self, call: _Call, n: int) -> None:
        """Count steps without waiting, or take them back."""
        with self._changed:
            if call == "insert":
                self.n_inserted += n
            else:
                self.n_sampled += n
            if self._waiting:
                self._changed.notify_all()

    def stop(self) -> None:
        """Let all calls go on that wait now, and no later one wait: the end of a training."""
        with self._changed:
            self._has_stopped = True
            self._changed.notify_all()

    def waiting(self) -> dict[str, tuple[int, float]]:
        """Who waits now: for ``"insert"`` and ``"sample"`` how many calls, and for how many seconds the first one."""
        with self._changed:
            now, found = monotonic(), [*self._waiting]
        since = {call: [of.since for of in found if of.call == call] for call in ("insert", "sample")}
        return {call: (len(of), now - min(of, default=now)) for call, of in since.items()}

    def _begin(self, call: _Call, n: int) -> float:
        with self._changed:
            if self._may(call):
                self.count(call, n)
                return 0.0
            waiting = _Waiting(call, monotonic())
            try:
                self._waiting.add(waiting)
                self._wait(call, n, waiting.since)
                self.count(call, n)
            finally:
                self._waiting.discard(waiting)
                waited = monotonic() - waiting.since
                if call == "insert":
                    self.insert_waited_s += waited
                else:
                    self.sample_waited_s += waited
            return waited

    def _wait(self, call: _Call, n: int, began: float) -> None:
        end = inf if self.timeout is None else began + self.timeout
        told = began + _WARN_AFTER_S
        while not self._may(call):
            now = monotonic()
            if now >= end:
                raise RateLimited(self._missing(call, n, self.timeout))
            if now >= told:
                told, what = inf, self._missing(call, n, _WARN_AFTER_S)
                warn(f"{what}. It goes on waiting; append and sample in threads or processes of their own")
            self._changed.wait(min(min(end, told) - now, TIMEOUT_MAX))

    def _may(self, call: _Call) -> bool:
        if self._has_stopped:
            return True
        if self.n_inserted < self.min_size:
            return call == "insert"
        return self._ahead(call) <= self.tolerance

    def _ahead(self, call: _Call) -> float:
        """By how many drawn steps inserts, or samples, are ahead."""
        ahead = self.samples_per_insert * (self.n_inserted - self.min_size) - self.n_sampled
        return ahead if call == "insert" else -ahead

    def _missing(self, call: _Call, n: int, waited_s: float | None) -> str:
        """What a call waits for."""
        ahead = self._ahead(call) - self.tolerance
        if call == "insert":
            needed = f"{np.ceil(ahead):,.0f} more steps must be drawn first"
        else:
            missing = max(self.min_size - self.n_inserted, ahead / self.samples_per_insert)
            needed = f"{np.ceil(missing):,.0f} more steps must be inserted first"
        done = f"{self.n_inserted:,} are inserted, {self.n_sampled:,} drawn"
        allowed = f"{self.samples_per_insert:g} samples per insert allowed"
        return f"{_ARTICLE[call]} of {n:,} steps has waited for {waited_s:g} s: {needed}; {done}, and {allowed}"

    def __repr__(self) -> str:
        waiting = [
            f"{n} {call} call{'s' * (n != 1)} waiting for {s:.3g} s" for call, (n, s) in self.waiting().items() if n
        ]
        parts = [
            f"{self.samples_per_insert:g} samples per insert",
            f"{self.n_inserted:,} inserted, waited {self.insert_waited_s:.3g} s",
            f"{self.n_sampled:,} drawn, waited {self.sample_waited_s:.3g} s",
            *waiting,
        ]
        return f"RateLimiter({'; '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        options = {
            name: getattr(self, name) for name in ("min_size", "tolerance", "timeout", "n_inserted", "n_sampled")
        }
        return partial(type(self), self.samples_per_insert, **options), ()
