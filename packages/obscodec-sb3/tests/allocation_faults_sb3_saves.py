"""Run by ``test_faults.py``: replay buffers whose allocations fail while they are saved; prints how many."""

import sys
import tempfile
from pathlib import Path

import numpy as np
from failing_allocator import at_every_allocation, choose_in_the_caller
from obscodec_sb3 import CompressedReplayBuffer
from replay_in_parallel import NAMES, Play


def content(buffer: CompressedReplayBuffer) -> dict[str, bytes]:
    return {name: np.asarray(getattr(buffer, name)[:]).tobytes() for name in NAMES}


def n_failed_of(codec: str, step: int) -> int:
    play, n_failed = Play(codec=codec, decide_after=8), 0
    for _ in range(11):
        play.prepare()()
        play.stored()
    with tempfile.TemporaryDirectory() as folder:
        play.buffer.save(folder)
        contents = [content(play.buffer)]
        for _ in range(3):
            play.prepare()()
            play.stored()
        contents.append(content(play.buffer))
        play.buffer.save(Path(folder) / "of" / "its" / "own")
        for error in at_every_allocation(lambda: lambda: play.buffer.save(folder), step, spare_torch=True):
            n_failed += bool(error)
            assert content(CompressedReplayBuffer.load(folder, continue_episodes=True)) in contents, error
            assert content(play.buffer) == contents[1], error
        assert content(CompressedReplayBuffer.load(folder, continue_episodes=True)) == contents[1]
        play.prepare()()
        play.check("at the end")
    return n_failed


if __name__ == "__main__":
    choose_in_the_caller()
    for option in sys.argv[2:]:  # in one process, which takes seconds to load torch
        print(f"{option}: {n_failed_of(option, int(sys.argv[1]))}")
