"""What ``benchmarks/gpu_parts`` does on a real GPU only, without one: names, and the order of what is timed."""

import json
import operator
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cupy
import pytest
import torch
from gpu_parts.machine import Gpu, Sizes

PARTS = Path(__file__).parents[1] / "benchmarks" / "gpu_parts"


@pytest.mark.parametrize("module", [cupy, torch], ids=lambda module: module.__name__)
def test_every_name_is_there(module: Any) -> None:
    found = re.findall(
        rf"\b_?{module.__name__}((?:\.[a-zA-Z]\w*)+)", "".join(p.read_text() for p in PARTS.glob("*.py"))
    )
    names = {name[1:] for name in found if not name.startswith(".__")}
    assert "cuda.synchronize" in names or "cuda.set_allocator" in names
    for name in names:
        operator.attrgetter(name)(module)


class Clock:
    """Stands for a GPU: the fills before a call last 100 µs each, and the CPU needs some time to queue the call."""

    def __init__(self, queued_after_us: float) -> None:
        self.queued_after_us = queued_after_us
        self.log: list[str] = []
        self.n_fills = 0

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.n_fills = 0

    def empty(self, *args: object, **options: object) -> Any:
        clock = self

        class Filled:
            def fill_(self, value: int) -> None:
                clock.log.append("fill")
                clock.n_fills += 1

        return Filled()

    def event(self, **options: object) -> Any:
        clock = self

        class Event:
            def record(self) -> None:
                clock.log.append("event")

            def query(self) -> bool:
                return clock.n_fills * 100 <= clock.queued_after_us

            def elapsed_time(self, end: object) -> float:
                return 0.007

        return Event()


@pytest.fixture
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(request.param)
    monkeypatch.setattr(torch, "empty", clock.empty)
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    monkeypatch.setattr(torch.cuda, "synchronize", clock.synchronize)
    return clock


@pytest.mark.parametrize("clock", [300], indirect=True)
def test_the_gpu_is_busy_while_a_call_is_queued(clock: Clock) -> None:
    times = Gpu(Sizes(rounds=5), pool=True).timed({"way": lambda: clock.log.append("call")})
    assert times == {"way": {"median_us": 7.0, "mean_us": 7.0, "p90_us": 7.0, "least_us": 7.0, "n_late": 0}}
    rounds = " ".join(clock.log).split("synchronize fill")
    assert set(rounds[1:]) == {
        " fill fill fill event call event synchronize ",
        " fill fill fill event call event synchronize",
    }


@pytest.mark.parametrize("clock", [900], indirect=True)
def test_more_is_filled_where_the_call_came_too_late(clock: Clock) -> None:
    times = Gpu(Sizes(rounds=5), pool=True).timed({"way": lambda: None})
    assert times["way"]["n_late"] == 0  # 4, 8, then 16 fills: all in the rounds that do not count
    assert clock.log[-20:].count("fill") == 16


@pytest.mark.parametrize("clock", [1e9], indirect=True)
def test_a_time_with_the_cpu_in_it_is_not_told(clock: Clock) -> None:
    assert Gpu(Sizes(rounds=5), pool=True).timed({"way": lambda: None}) == {"way": {"n_late": 5}}


LOSING = """
import builtins, sys
from pathlib import Path
from gpu_parts import __main__, codecs, suite

class Machine:
    def is_usable(self):
        return not hasattr(builtins, "lost")

def run(machine, record):
    for i in range(6):
        if not record.is_done(f"check {i}"):
            with record.check(f"check {i}"):
                if i in (2, 4):
                    builtins.lost = True
                assert machine.is_usable()

codecs.run, suite.ROOT = run, Path(__file__).parent
__main__.opened = lambda **options: Machine()
sys.exit(__main__.main())
"""
TESTS = """
import builtins, pytest

@pytest.mark.gpu
@pytest.mark.parametrize("i", range(6))
def test_lost(i):
    if i in (2, 4):
        builtins.lost = True
    assert not hasattr(builtins, "lost")
"""


@pytest.mark.parametrize("names", [["codecs"], ["suite", "test_losing.py"]], ids=" ".join)
def test_another_process_goes_on_where_one_has_lost_the_gpu(names: list[str], tmp_path: Path) -> None:
    (tmp_path / "losing.py").write_text(LOSING)
    (tmp_path / "test_losing.py").write_text(TESTS)
    command = [sys.executable, tmp_path / "losing.py", *names, "--file", tmp_path / "result.json"]
    paths = {"PYTHONPATH": str(PARTS.parent)}
    ended = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, timeout=60)
    result = json.loads((tmp_path / "result.json").read_text())
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert (len(result["rows"]), len(result["failures"]), result["n_starts"]) == (4, 2, 3), ended.stdout
