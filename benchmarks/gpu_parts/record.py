"""The result file of a part."""

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class GpuLost(BaseException):  # not an Exception, which the parts record and go on
    """The GPU refuses all work of this process from now on, as it does after an access outside of memory."""


class Record:
    """What a part found, as JSON. The file is written anew after each entry, so a crash loses none.

    Args:
        path: of the file.
        about: facts that hold for all rows.
        is_usable: whether the GPU still takes work of this process; asked after a failure.
        resumed: go on with the file of a process that has lost the GPU.

    Attributes:
        n_starts: how many processes have written this file.
    """

    def __init__(
        self, path: Path, about: dict[str, object], is_usable: Callable[[], bool], *, resumed: bool = False
    ) -> None:
        self._path = path
        self._is_usable = is_usable
        self._lists: dict[str, list[dict[str, object]]] = {"rows": [], "failures": [], "left_out": []}
        self.n_starts = 1
        if resumed:
            content = json.loads(path.read_text(encoding="utf-8"))
            self._lists = {name: content[name] for name in self._lists}
            self.n_starts += content["n_starts"]
        self._content = about | {"n_starts": self.n_starts}
        self._write()

    @property
    def n_failures(self) -> int:
        """How many failures there are by now."""
        return len(self._lists["failures"])

    def is_done(self, what: str) -> bool:
        """Whether there is an entry of this check or test, maybe by a process that has lost the GPU since."""
        entries = (entry for entries in self._lists.values() for entry in entries)
        return any(what in (entry.get("check"), entry.get("test"), entry.get("what")) for entry in entries)

    def require_gpu(self) -> None:
        """Make sure, after a failure, that the GPU takes more work.

        Raises:
            GpuLost: it does not.
        """
        if not self._is_usable():
            raise GpuLost

    def row(self, **figures: object) -> None:
        """Add a measurement, or a check that went well."""
        self._add("rows", figures)

    def failure(self, what: str, why: str) -> None:
        """Add something that is wrong."""
        self._add("failures", {"what": what, "why": why})

    def left_out(self, what: str, why: str) -> None:
        """Add something that this machine can't do, such as a comparison with a package that is not installed."""
        self._add("left_out", {"what": what, "why": why})

    @contextmanager
    def check(self, what: str) -> Iterator[None]:
        """Record whether the block ends without an error; an error does not leave it.

        A row is ``{"check": what, "equal": True}``. The whole traceback is printed.

        Raises:
            GpuLost: see :meth:`require_gpu`.
        """
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.failure(what, f"{type(error).__name__}: {error}"[:2000])
            self.require_gpu()
        else:
            self.row(check=what, equal=True)

    def end(self) -> int:
        """The exit code of the part."""
        if not self._lists["rows"] and not self._lists["left_out"] and not self.n_failures:
            self.failure("the part", "it has measured nothing")
        print(*(f"{name}: {len(entries)}" for name, entries in self._lists.items()), sep=", ")
        for failure in self._lists["failures"]:
            print(f"{failure['what']}: {failure['why']}".splitlines()[0][:300])
        return int(self.n_failures > 0)

    def _add(self, name: str, entry: dict[str, object]) -> None:
        self._lists[name].append(entry)
        print(name, json.dumps(entry), flush=True)
        self._write()

    def _write(self) -> None:
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._content | self._lists, indent=1) + "\n", encoding="utf-8")
        part.replace(self._path)
