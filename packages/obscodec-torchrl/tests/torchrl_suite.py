"""Run TorchRL's own tests with CompressedStorage in place of LazyTensorStorage, every leaf compressed.

    python packages/obscodec-torchrl/tests/torchrl_suite.py CHECKOUT [--codecs CODEC ...] [--results FOLDER] [of pytest]

CHECKOUT is a folder with TorchRL's repository at the installed version. Run are its tests of replay buffers, offline
data and trainers, and of all others those that name a LazyTensorStorage; a test counts if it makes one, in this process
or in another. They run with the stock class first, then those that make one with each codec; those of which FOLDER has
results already are not run again. Stores decide after 4 tensors and have blocks of 4 frames, and each test that gives
one enough for a full block, and reads it, has to encode such blocks, and to decode them.

``torchrl_suite.txt``, beside this file, lists the tests that are known to fail, each with its reason. The run fails if
a test fails with ours that passes with the stock class and is not listed, or if one that is listed passes. ``reads
nothing:`` stands before tests, without their parameters, that do not decode what they wrote. The packages that these
tests ask for are in the dependency group ``suite``.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torchrl.data
from obscodec_torchrl import CompressedStorage

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from coding_counts import CodingCounts, coded

STOCK = torchrl.data.LazyTensorStorage
NAME = STOCK.__name__
MADE = "TORCHRL_SUITE_MADE"  # names the file in which each storage that is made leaves a byte
CODEC = "TORCHRL_SUITE_CODEC"  # names the codec, or the stock class
KNOWN = Path(__file__).with_suffix(".txt")
CODECS = ("delta-rle", "zstd:1", "auto")
WHOLE = ("rb", "test_offline_to_online.py", "test_trainer.py")  # where storages are made in other files, too
DECIDING = {"decide_after": 4, "block_frames": 4}
NOTHING_LEFT = pytest.ExitCode.NO_TESTS_COLLECTED


class LazyTensorStorage(STOCK if os.environ.get(CODEC) == "stock" else CompressedStorage):  # type: ignore[misc]
    """Stands in for the class of this name, in worker processes, too: they import this file."""

    def __init__(self, *args: Any, **options: Any) -> None:
        with Path(os.environ[MADE]).open("ab") as file:
            file.write(b".")
        if isinstance(self, CompressedStorage):
            options |= {"codec": os.environ[CODEC], "min_nbytes": 0, **DECIDING}
        super().__init__(*args, **options)


class Suite:
    """A plugin that puts the stand-in into TorchRL, and notes what each test does.

    Args:
        results: the file to which a line goes for each test.
        wanted: the tests that are run, None for all that may make a storage.
        done_before: but for these.
    """

    def __init__(self, results: Path, wanted: set[str] | None, done_before: set[str]) -> None:
        self.results = results
        self.wanted = wanted
        self.done_before = done_before
        self.counts = CodingCounts(**DECIDING)
        self.current: dict[str, Any] = {}

    def pytest_sessionstart(self) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("torchrl.") and vars(module).get(NAME) is STOCK:
                setattr(module, NAME, LazyTensorStorage)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = [x for x in items if (makes_one(x) if self.wanted is None else x.nodeid in self.wanted)]
        items[:] = [item for item in wanted if item.nodeid not in self.done_before]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        made = Path(os.environ[MADE])
        before = made.stat().st_size
        self.current = {"test": item.nodeid, "outcome": "skipped", "error": ""}
        self.counts.taken()
        result = yield
        self.current |= {"made": made.stat().st_size > before, **self.counts.taken()}
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.current) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self.current["outcome"] = report.outcome
        if report.failed:
            self.current["error"] = report.longreprtext.strip().splitlines()[-1]


def makes_one(item: pytest.Item) -> bool:
    """Whether a test may make a LazyTensorStorage: all of some files, and those that name it, or what names it."""
    assert isinstance(item, pytest.Function)
    if is_whole(item.path):
        return True
    source = inspect.getsource(item.function)
    return any(name in source for name in (NAME, *namers(item.module), *namers(item.cls)))


def is_whole(path: Path) -> bool:
    return path.name in WHOLE or path.parent.name in WHOLE


def namers(owner: ModuleType | type | None) -> list[str]:
    """The functions of a module or a class of tests, tests apart, whose source names a LazyTensorStorage."""
    functions = [] if owner is None else [of for of in vars(owner).values() if inspect.isfunction(of)]
    return [of.__name__ for of in functions if not of.__name__.startswith("test") and NAME in inspect.getsource(of)]


def run(checkout: Path, codec: str, folder: Path, options: list[str]) -> dict[str, dict[str, Any]]:
    """What each test did that made a storage, with a codec or with the stock class; in a process of its own."""
    with tempfile.NamedTemporaryFile() as made:
        command = [sys.executable, __file__, str(checkout), "--results", str(folder), "--only", codec, *options]
        env = {MADE: made.name, CODEC: codec, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}  # Ray would start with uv, too
        done = subprocess.run(command, env=os.environ | env, check=False)
    if done.returncode:
        sys.exit(
            f"the tests with {codec} broke off with status {done.returncode}: run them again, {folder} has the first"
        )
    return {test: of for test, of in results_of(folder, codec).items() if of["made"]}


def run_here(checkout: Path, codec: str, folder: Path, options: list[str]) -> int:
    """:func:`run` in this process, for the tests that have no results yet; the exit status, 0 if all were run."""
    tests = checkout / "test"
    sys.path.insert(0, str(tests))
    wanted = None if codec == "stock" else {test for test, of in results_of(folder, "stock").items() if of["made"]}
    left_out = listed("not run:") | results_of(folder, codec).keys()
    paths = [path for path in sorted(tests.rglob("test_*.py")) if is_whole(path) or NAME in path.read_text("utf-8")]
    options = [f"--rootdir={checkout}", "-q", "-p", "no:cacheprovider", "--timeout=300", *options]
    status = pytest.main([*map(str, paths), *options], plugins=[Suite(file_of(folder, codec), wanted, left_out)])
    return 0 if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, NOTHING_LEFT) else int(status)


def file_of(folder: Path, codec: str) -> Path:
    return folder / f"{codec.replace(':', '-')}.jsonl"


def results_of(folder: Path, codec: str) -> dict[str, dict[str, Any]]:
    """What each test did, as far as they were run."""
    file = file_of(folder, codec)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {result["test"]: result for result in map(json.loads, lines)}


def listed(mark: str) -> set[str]:
    """The tests in ``torchrl_suite.txt`` with a mark before them; ``""`` for those that are known to fail."""
    lines = [line.strip() for line in KNOWN.read_text(encoding="utf-8").splitlines()]
    return {line.removeprefix(mark).strip() for line in lines if line.startswith(mark or "test/")}


def compare(codec: str, stock: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]]) -> tuple[bool, set[str]]:
    """Whether all is as it should be with a codec, and the tests that read nothing; prints what is not, and counts."""
    known = listed("")
    failed, failed_stock = (with_outcome(of, "failed") for of in (ours, stock))
    passed, (enough, both, summary) = with_outcome(ours, "passed"), coded(ours)
    unread = (enough & passed) - both
    reading = {node for node in enough & passed if function_of(node) not in listed("reads nothing:")}
    wrong = {
        "fails, and passes with the stock class": failed - failed_stock - known,
        "is known to fail, and passes": passed & known,
        "has enough for a block, and does not encode and decode one": unread & reading,
    }
    for text, nodes in wrong.items():
        for node in sorted(nodes):
            print(f"{codec}: {node} {text}", ours[node]["error"])
    both_fail = len(failed & failed_stock)
    print(f"{codec}: {len(passed)} pass, {len(failed)} fail, {both_fail} of them with the stock class, too; {summary}")
    print(f"{codec}: of {len(reading)} that read what they wrote {len(reading & both)} encode blocks and decode some")
    return not any(wrong.values()) and len(both) > 0, set(map(function_of, unread))


def function_of(node: str) -> str:
    """A test without its parameters."""
    return node.partition("[")[0]


def with_outcome(results: dict[str, dict[str, Any]], outcome: str) -> set[str]:
    return {node for node, result in results.items() if result["outcome"] == outcome}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path)
    given, options = parser.parse_known_args()
    if given.only:
        sys.exit(run_here(given.checkout, given.only, given.results, options))
    else:
        with tempfile.TemporaryDirectory() as fresh:
            folder = given.results or Path(fresh)
            folder.mkdir(exist_ok=True)
            stock = run(given.checkout, "stock", folder, options)
            print(f"stock: {len(stock)} tests make one,", dict(Counter(of["outcome"] for of in stock.values())))
            done = [compare(codec, stock, run(given.checkout, codec, folder, options)) for codec in given.codecs]
            for test in listed("reads nothing:").difference(*(unread for _, unread in done)):
                print(f"{test} is known to read nothing, and does")
                done.append((False, set()))
        sys.exit(not all(good for good, _ in done))
