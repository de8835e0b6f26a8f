"""Run by ``test_faults.py``: a replay buffer whose allocations fail while it is saved; prints how many did."""

import sys
import tempfile
from pathlib import Path

import numpy as np
from failing_allocator import at_every_allocation, choose_in_the_caller
from obscodec_sb3 import CompressedReplayBuffer
from replay_in_parallel import NAMES, Play


def content(buffer: CompressedReplayBuffer) -> dict[str, bytes]:
    return {name: np.asarray(getattr(buffer, name)[:]).tobytes() for name in NAMES}


if __name__ == "__main__":
    choose_in_the_caller()
    play, step, n_failed = Play(codec=sys.argv[1], decide_after=8), int(sys.argv[2]), 0
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
    print(n_failed)
