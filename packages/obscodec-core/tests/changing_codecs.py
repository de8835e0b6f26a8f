"""Stores that take another codec whenever they look again, which is often."""

from dataclasses import replace
from itertools import cycle

import pytest
from obscodec import AutoStore
from obscodec.frames import block_queue
from obscodec.runtime import Job
from obscodec.stats import Choice, Look, Trial
from obscodec.stores.auto import auto_store, looks, plan, succession
from obscodec.stores.auto.looks import LOOKER
from obscodec.stores.auto.move import MOVER

_CODECS = ("zstd:1", 1), ("delta-rle", 4), ("raw", 1), ("delta-rle|zstd:3", 2), ("rle", 1)


def change_codecs_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next stores change their codec again and again, in tests that are marked ``in_background``."""
    codecs = cycle(_CODECS)

    def choose(*_: object, **__: object) -> Choice:
        trial = Trial(*next(codecs), 1.0, 1.0, True)
        return Choice(trial, (trial,), "it is its turn")

    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(plan, "pays", lambda *_: True)
    monkeypatch.setattr(succession, "_ROOM", 64)
    monkeypatch.setattr(auto_store, "_LEAST_NEWEST", 2)
    monkeypatch.setattr(looks, "_FACTOR", 1e-9)  # any size is another one
    monkeypatch.setattr(looks, "_LATER", 0)
    monkeypatch.setattr(block_queue, "_MANY_BLOCKS", (2, 2))


def change_codec(store: AutoStore, spec: str, block_frames: int) -> None:
    """Have a store that has decided take another codec now, in the thread of looks, which may be at work."""
    plan, trial = store._members[-1].plan, Trial(spec, block_frames, 1.0, 1.0, True)
    choice = Choice(trial, (trial,), "a test says so")
    plan = replace(plan, spec=spec, block_frames=block_frames)
    job = Job(lambda: store._succeed(plan, Look(choice, trial, True)))
    try:
        LOOKER.put(job)
    except RuntimeError:  # choices are made at once
        job.run()
    assert job.result()


def finish() -> None:
    """Wait for all moves and looks that have begun."""
    for thread in (MOVER, LOOKER):
        thread.finish()
