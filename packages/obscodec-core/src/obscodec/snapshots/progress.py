"""Progress: a bar for what takes more than a second, if somebody looks and rich is installed."""

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_PATIENCE_S = 1.0


class Progress:
    """A context that counts bytes. After a second, a bar appears on a terminal.

    Args:
        what: what happens, such as ``"save"``.
        total: how many bytes there will be.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._began = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._is_seen = sys.stderr is not None and sys.stderr.isatty()

    def advance(self, nbytes: int) -> None:
        """Count bytes that are done."""
        self._done += nbytes
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._is_seen and time.monotonic() - self._began > _PATIENCE_S:
            self._is_seen = False  # tried once
            with suppress(ImportError):
                self._bar = _new_bar()
                self._bar.start()
                self._task = self._bar.add_task(self._what, total=self._total, completed=self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _new_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True)
