"""What ``benchmarks/gpu_parts`` does on a real GPU only, without one: names, and the order of what is timed."""

import operator
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_parts.machine import Gpu, Sizes

PARTS = Path(__file__).parents[1] / "benchmarks" / "gpu_parts"


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_every_name_is_there(library: str) -> None:
    found = re.findall(rf"\b_?{library}((?:\.[a-zA-Z]\w*)+)", "".join(p.read_text() for p in PARTS.glob("*.py")))
    names = {name[1:] for name in found if not name.startswith(".__")}
    assert "cuda.synchronize" in names or "cuda.set_allocator" in names
    for name in names:
        operator.attrgetter(name)(import_module(library))


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


@pytest.mark.parametrize(("clock", "n_late"), [(900, 0), (1e9, 5)], indirect=["clock"])
def test_more_is_filled_where_the_call_came_too_late(clock: Clock, n_late: int) -> None:
    """A time with the CPU in it is not told."""
    times = Gpu(Sizes(rounds=5), pool=True).timed({"way": lambda: None})
    assert times["way"].pop("n_late") == n_late
    assert bool(times["way"]) == (n_late == 0)
