"""Break chosen lines one by one, and see which test notices: ``uv run just mutants [PART OF A NAME ...]``.

``mutants.py --ids [FOLDER]`` prints the tests, of a folder, that should notice all mutants.

``mutants.toml`` lists the lines. Each is broken in a copy of the checkout, and the tests that are named there are run
from that copy. A mutant that they do not notice has survived: then a test is missing.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
TIMEOUT_S = 300
PASSED, FAILED = 0, 1  # exit statuses of pytest
OPTIONS = ("-x", "-v", "--tb=short", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--hypothesis-seed=0")


class Mutant(NamedTuple):
    """A line that is broken.

    Attributes:
        kind: what of the project is attacked.
        name: what goes wrong, in plain words.
        file: where the line is.
        line: the text that stands there, once.
        change: the text that takes its place.
        tests: the files of tests, or single tests, that should notice.
    """

    kind: str
    name: str
    file: str
    line: str
    change: str
    tests: list[str]

    def applied(self, text: str) -> str:
        """The content of the file with the line broken."""
        if text.count(self.line) != 1:
            sys.exit(f"{self.name}: its line stands {text.count(self.line)} times in {self.file}, not once")
        return text.replace(self.line, self.change)


def mutants(path: Path = LIST) -> list[Mutant]:
    """All that are listed."""
    kinds = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Mutant(kind, name, **fields) for kind, named in kinds.items() for name, fields in named.items()]


class Copy:
    """A copy of the files that git tracks, in which tests import the packages of the copy.

    Numba keeps compiled kernels, but does not notice that a kernel has changed whose code ends up in another file. So
    tests of a changed kernel get a folder of their own for that.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        self.sources = sorted(folder.glob("packages/*/src"))
        self.kernels = folder / "kernels"
        for package in [path for source in self.sources for path in source.iterdir() if path.is_dir()]:
            code = f"import {package.name}; print({package.name}.__file__)"
            found = subprocess.run([sys.executable, "-c", code], env=self._env(), capture_output=True, text=True)
            if not Path(found.stdout.strip()).is_relative_to(folder):
                sys.exit(f"{package.name} is imported from {found.stdout.strip()}, not from {folder}: {found.stderr}")

    def _env(self) -> dict[str, str]:
        path = os.pathsep.join(map(str, self.sources))
        return {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(self.kernels)}

    @contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """Let the line of a mutant be broken as long as the block runs."""
        file, kernels = self.folder / mutant.file, self.kernels
        text, status = file.read_text(encoding="utf-8"), file.stat()
        file.write_text(mutant.applied(text), encoding="utf-8")
        with tempfile.TemporaryDirectory() as fresh:
            if re.search("^@(compiled|inlined)", text, re.MULTILINE):
                self.kernels = Path(fresh)
            try:
                yield
            finally:
                self.kernels = kernels
                file.write_text(text, encoding="utf-8")
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # by which numba knows its kernels

    def run(self, tests: Iterable[str], timeout_s: float | None = None) -> tuple[int | None, str]:
        """Run tests up to the first that fails; the status of pytest, None if it took too long, and what it said."""
        with tempfile.TemporaryFile("w+") as said:
            command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._env(), stdout=said, stderr=said, start_new_session=True
            )
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            said.seek(0)
            return status, said.read()


def noticed_by(status: int | None, said: str) -> str:
    """The test that noticed a mutant, and in which way if it did not just fail; nothing if the mutant survived."""
    if status == PASSED:
        return ""
    if status == FAILED:
        return next(iter(re.findall(r"^(?:FAILED|ERROR) \S*/(.+?)(?: - .*)?$", said, re.MULTILINE)))
    at = re.findall(r"^\S*/(\S+?::.+?) *(?: [A-Z]+ .*)?$", said, re.MULTILINE)
    if at and status is None:
        return f"{at[-1]}, by no end in {TIMEOUT_S} s"
    if at and status is not None and status < 0:
        return f"{at[-1]}, by {signal.Signals(-status).name}"
    sys.exit(f"pytest ended with status {status}:\n{said}")


def ids(folder: str = "") -> list[str]:
    """The tests in a folder that should notice all mutants, each once."""
    found = dict.fromkeys(test for mutant in mutants() for test in mutant.tests if test.startswith(folder))
    return [test for test in found if "::" not in test or test.partition("::")[0] not in found]


def main(parts: list[str]) -> int:
    """Try the mutants whose names have one of some parts, all without any; 1 if one survived."""
    chosen = [mutant for mutant in mutants() if not parts or any(part in mutant.name for part in parts)]
    if not chosen:
        sys.exit(f"no mutant is named {' or '.join(parts)}: the names are in {LIST}")
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        status, said = copy.run(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
        if status != PASSED:
            sys.exit(f"the tests do not pass as things are:\n{said}")
        print("| mutant | noticed by | seconds |\n| --- | --- | --- |", flush=True)
        for mutant in chosen:
            began = time.monotonic()
            with copy.broken(mutant):
                status, said = copy.run(mutant.tests, TIMEOUT_S)
            noticed = noticed_by(status, said)
            survived += [] if noticed else [mutant.name]
            print(f"| {mutant.name} | {noticed or 'SURVIVED'} | {time.monotonic() - began:.0f} |", flush=True)
    print(f"\n{len(chosen) - len(survived)} of {len(chosen)} mutants were noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ids"]:
        print(*ids(*sys.argv[2:]), sep="\n")
    else:
        sys.exit(main(sys.argv[1:]))
