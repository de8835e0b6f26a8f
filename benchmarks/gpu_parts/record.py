"""The result file of a part."""

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Record:
    """What a part found, as JSON. The file is written anew after each entry, so a crash loses none.

    Args:
        path: of the file.
        about: facts that hold for all rows.

    Attributes:
        n_failures: how many entries say that something is wrong.
    """

    def __init__(self, path: Path, about: dict[str, object]) -> None:
        self._path = path
        self._content: dict[str, object] = dict(about)
        self._lists: dict[str, list[dict[str, object]]] = {"rows": [], "failures": [], "left_out": []}
        self._write()

    @property
    def n_failures(self) -> int:
        """How many failures there are by now."""
        return len(self._lists["failures"])

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

        A row is ``{"check": what, "ok": True}``. The whole traceback is printed.
        """
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.failure(what, f"{type(error).__name__}: {error}"[:2000])
        else:
            self.row(check=what, ok=True)

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
