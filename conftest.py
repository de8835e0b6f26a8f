"""What a test needs of the system: a test with the mark ``needs`` is skipped where that is lacking, and says so."""

import os
import platform
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

_HAS = {
    "fork": hasattr(os, "fork"),
    "/proc": Path("/proc/self/statm").exists(),
    "signals at any time": hasattr(signal, "setitimer"),
    "limits of a process": find_spec("resource") is not None,
    "the simulated GPU": sys.platform == "linux" and shutil.which("g++") is not None,
}
_ON_A_GPU = {"cuda", "device"}  # fixtures


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that this system can't run."""
    needed = [what for mark in item.iter_markers("needs") for what in mark.args]
    if "obscodec-cupy" in item.path.parts or _ON_A_GPU & set(getattr(item, "fixturenames", ())):
        needed.append("the simulated GPU")
    for what in needed:
        if not _HAS[what]:
            pytest.skip(f"needs {what}, which {platform.system()} {platform.release()} does not have here")
