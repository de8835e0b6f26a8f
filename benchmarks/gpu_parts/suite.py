"""The tests for GPUs, by pytest in this process; a result is written after each test."""

import re
import sys
from importlib.util import find_spec
from typing import Any

from gpu_parts import ROOT
from gpu_parts.machine import Machine, SimulatedGpu
from gpu_parts.record import Record

# Where the tests find what they import, as pyproject.toml says; `gpu_folder.py` carries the files that they import.
_CORE = "packages/obscodec-core/tests"
PATHS = ("benchmarks", "examples", "packages/obscodec-cupy/tests", _CORE, f"{_CORE}/codecs", "tests")
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError).*")
# In the place of pyproject.toml: there, warnings are errors, which other versions of numpy and torch have more of.
_OPTIONS = [
    "-c",
    "/dev/null",
    "--rootdir",
    str(ROOT),
    "--import-mode=importlib",
    "-p",
    "no:cacheprovider",
    "-ra",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
_OPTIONS += [
    "--continue-on-collection-errors",
    "-o",
    "markers=gpu: needs a GPU",
    "--durations=20",
    "-v",
    "-o",
    "faulthandler_timeout=120",
]


def run(machine: Machine, record: Record, patterns: list[str]) -> None:
    """A row for each test that passed, of the files and folders that match a pattern such as ``tests/test_cuda_*``.

    On the simulated GPU, only the first test of the first file runs.
    """
    try:
        import pytest
    except ModuleNotFoundError as error:
        record.left_out("all tests", str(error))
        return
    if find_spec("torch") is None and any(pattern.startswith("tests/") for pattern in patterns):
        record.left_out("all tests", "torch is not installed, and their fixtures need it")
        return
    sys.path += [str(ROOT / path) for path in PATHS]
    _allow_slow_examples()
    # The fixtures open the simulated GPU themselves, in the tests that are not marked.
    paths, marker, most = sorted(path for pattern in patterns for path in ROOT.glob(pattern)), "gpu", 0
    if isinstance(machine, SimulatedGpu):
        paths, marker, most = paths[:1], "not gpu", 1
    pytest.main([*_OPTIONS, "-m", marker, *map(str, paths)], plugins=[_Recorder(record, most)])


def _allow_slow_examples() -> None:
    """Let an example of hypothesis take long: the first one compiles kernels."""
    try:
        from hypothesis import settings
    except ModuleNotFoundError:
        return  # the tests that import it are left out
    settings.register_profile("gpu", deadline=None, derandomize=True)
    settings.load_profile("gpu")


class _Recorder:
    """A plugin of pytest that stops it after the first ``most`` tests; 0 for all."""

    def __init__(self, record: Record, most: int) -> None:
        self._record = record
        self._most = most

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the first tests only."""
        if self._most:
            del items[self._most :]

    def pytest_collectreport(self, report: Any) -> None:
        """Leave out a file that imports something which is not installed."""
        if report.failed:
            missing = _MISSING.findall(report.longreprtext)
            (self._record.left_out if missing else self._record.failure)(
                report.nodeid, missing[-1] if missing else report.longreprtext[-2000:]
            )

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take down a test that has ended, and what else fails or is skipped around it."""
        if report.failed:
            self._record.failure(f"{report.nodeid}, {report.when}", report.longreprtext[-2000:])
        elif report.skipped:
            self._record.left_out(report.nodeid, str(report.longrepr)[-300:])
        elif report.when == "call":
            self._record.row(test=report.nodeid, seconds=round(report.duration, 2))
