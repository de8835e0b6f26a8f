"""How tests share processes, and what they need of the system: where it is lacking, they are skipped, and say so."""

import os
import platform
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_HAS = {
    "fork": hasattr(os, "fork"),
    "/proc": Path("/proc/self/statm").exists(),
    "signals at any time": hasattr(signal, "setitimer"),
    "limits of a process": find_spec("resource") is not None,
    "the simulated GPU": sys.platform == "linux" and shutil.which("g++") is not None,
}
_ON_A_GPU = {"cuda", "device"}  # fixtures


os.environ["RLLIB_TEST_NO_JAX_IMPORT"] = "1"  # RLlib imports JAX wherever it is installed
_MOST_PROCESSES = 4  # some take 6 GB each
_told: set[str] = set()  # changes that a test has failed for


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, if it is installed, counts the processes
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Unless tests are named: leave slow ones out, and run each file in one of several processes, without ``-s``."""
    options = config.option
    if hasattr(config, "workerinput"):
        options.markexpr = config.workerinput["markexpr"]
        return
    # Where all processes, later ones, too, find the GPU kernels that one of them has compiled.
    os.environ.setdefault("CUDA_ON_CPU_FOLDER", str(config.rootpath / "build" / "cuda_on_cpu"))
    takes_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if takes_all and "slow" not in options.markexpr:
        options.markexpr = f"{options.markexpr} and not slow"
    if takes_all and options.capture != "no" and getattr(options, "numprocesses", 0) is None:
        options.numprocesses, options.maxprocesses, options.dist = "auto", _MOST_PROCESSES, "loadfile"


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """Tell another process which marks to leave out: it reads the command line itself."""
    node.workerinput["markexpr"] = node.config.option.markexpr


def _changes() -> list[str]:
    """What changes the process for all tests that follow; a test that needs it starts a process of its own."""
    ray = sys.modules.get("ray")  # torchrl imports it
    found = {
        "imports jax, which warns of each fork": "jax" in sys.modules,
        "starts ray": ray is not None and ray.is_initialized(),
    }
    return [change for change, is_made in found.items() if is_made]


def pytest_collection_finish() -> None:
    """Refuse files of tests that change the process when they are collected."""
    if found := _changes():
        raise pytest.UsageError(f"a file of tests {' and '.join(found)}: do so in a process of its own")


def pytest_runtest_teardown() -> None:
    """Let a test fail that has changed the process."""
    if found := [change for change in _changes() if change not in _told]:
        _told.update(found)
        pytest.fail(f"the test {' and '.join(found)}: do so in a process of its own")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that this system can't run."""
    needed = [what for mark in item.iter_markers("needs") for what in mark.args]
    if "obscodec-cupy" in item.path.parts or _ON_A_GPU & set(getattr(item, "fixturenames", ())):
        needed.append("the simulated GPU")
    for what in needed:
        if not _HAS[what]:
            pytest.skip(f"needs {what}, which {platform.system()} {platform.release()} does not have here")


@pytest.fixture(autouse=True)
def choices_are_made_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a store choose and train codecs in the call that is due, as if there were no other thread: tests know when.

    Not in tests that are marked ``in_background``, nor in processes that tests start.
    """
    if request.node.get_closest_marker("in_background") is None and find_spec("obscodec") is not None:
        from obscodec.frames.sealer import TRAINER
        from obscodec.stores.auto.looks import LOOKER
        from obscodec.stores.auto.move import MOVER

        for thread in (MOVER, LOOKER, TRAINER):
            monkeypatch.setattr(thread, "put", _no_thread)


def _no_thread(job: object) -> None:
    raise RuntimeError("can't start new thread")
