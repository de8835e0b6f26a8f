"""Run TorchRL's own replay-buffer tests with CompressedStorage, every leaf compressed, in place of LazyTensorStorage.

    python packages/obscodec-torchrl/tests/torchrl_suite.py CHECKOUT [options of pytest]

CHECKOUT is a folder with TorchRL's repository at the installed version. A test counts if it makes a LazyTensorStorage,
in this process or in another. ``torchrl_suite.txt``, beside this file, lists the tests that are known to fail, each
with its reason; the run fails if another one does, or if one of them passes. Those that fail by chance are marked with
``not run:``. The packages that TorchRL's tests ask for are in the dependency group ``suite``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import torchrl.data
from obscodec_torchrl import CompressedStorage, storage

MADE = "TORCHRL_SUITE_MADE"  # names the file in which each storage that is made leaves a byte
KNOWN = Path(__file__).with_suffix(".txt")
STOCK = torchrl.data.LazyTensorStorage


class LazyTensorStorage(CompressedStorage):
    """Stands in for the class of this name; what its options tell TorchRL's own, they do not tell ours."""

    def __init__(
        self,
        max_size: int,
        *,
        device: str = "cpu",
        ndim: int = 1,
        compilable: bool = False,
        consolidated: bool = False,
        shared_init: bool = False,
        cleanup_memmap: bool = True,
    ) -> None:
        with Path(os.environ[MADE]).open("ab") as file:
            file.write(b".")
        storage._MIN_NBYTES = 0  # every leaf is compressed
        super().__init__(max_size, codec="delta-rle", device=device, ndim=ndim)


class Suite:
    """A plugin that puts the stand-in into TorchRL and compares what fails with what is known to."""

    def __init__(self, known: set[str], left_out: set[str]) -> None:
        self.known = known
        self.left_out = left_out
        self.outcomes: dict[str, str] = {}
        self.touched: set[str] = set()

    def pytest_sessionstart(self) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("torchrl.") and vars(module).get("LazyTensorStorage") is STOCK:
                module.LazyTensorStorage = LazyTensorStorage  # type: ignore[attr-defined]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.left_out]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        made = Path(os.environ[MADE])
        before = made.stat().st_size
        result = yield
        if made.stat().st_size > before:
            self.touched.add(item.nodeid)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self.outcomes[report.nodeid] = report.outcome
        if report.failed and report.nodeid not in self.known:
            print(f"\n{report.nodeid}: {report.longreprtext.strip().splitlines()[-1]}", flush=True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        failed = {node for node, outcome in self.outcomes.items() if outcome == "failed" and node in self.touched}
        passed = {node for node, outcome in self.outcomes.items() if outcome == "passed" and node in self.touched}
        for text, nodes in {"fail, but should pass": failed - self.known, "pass now": self.known & passed}.items():
            print(f"\n{len(nodes)} tests {text}:", *sorted(nodes), sep="\n  ")
        print(f"{len(passed)} tests that make a LazyTensorStorage pass, {len(failed)} fail")
        print("all tests:", dict(Counter(self.outcomes.values())))
        session.exitstatus = pytest.ExitCode(int(bool((failed - self.known) | (self.known & passed))))


def listed() -> tuple[set[str], set[str]]:
    """The tests that are known to fail, and those that are not run."""
    lines = [line for line in KNOWN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    left_out = {line.removeprefix("not run:").strip() for line in lines if line.startswith("not run:")}
    return {line.strip() for line in lines if not line.startswith("not run:")}, left_out


if __name__ == "__main__":
    checkout, *options = sys.argv[1:]
    folder = Path(checkout) / "test" / "rb"
    sys.path.insert(0, str(folder.parent))
    arguments = [str(folder), f"--rootdir={checkout}", "-q", "-p", "no:cacheprovider", *options]
    with tempfile.NamedTemporaryFile() as made:
        os.environ[MADE] = made.name
        sys.exit(pytest.main(arguments, plugins=[Suite(*listed())]))
