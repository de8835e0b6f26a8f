"""Run by ``test_faults.py``: replay buffers whose allocations fail; prints how many did."""

import sys

from failing_allocator import at_every_allocation, choose_in_the_caller
from replay_in_parallel import Play

if __name__ == "__main__":
    choose_in_the_caller()
    for option in sys.argv[1:]:  # in one process, which takes seconds to load torch
        codec, decide_after = option.split("/")
        play, n_failed = Play(codec=codec, decide_after=int(decide_after)), 0
        for _ in range(30):
            play.prepare()()
            play.stored()
        play.buffer.stats()  # so that all is compiled
        for _ in range(2):
            for error in at_every_allocation(play.prepare):
                n_failed += bool(error)
                play.check(error)
            play.check("at the end")
        play.buffer.sample(64)
        for error in at_every_allocation(lambda buffer=play.buffer: lambda: buffer.sample(64), spare_torch=True):
            n_failed += bool(error)
            play.check(error)
        print(f"{option}: {n_failed}")
