"""Run by ``test_faults.py``: a replay buffer whose allocations fail; prints how many did."""

import sys

from failing_allocator import at_every_allocation, choose_in_the_caller
from replay_in_parallel import Play

if __name__ == "__main__":
    choose_in_the_caller()
    play, n_failed = Play(codec=sys.argv[1], decide_after=int(sys.argv[2])), 0
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
    for error in at_every_allocation(lambda: lambda: play.buffer.sample(64), spare_torch=True):
        n_failed += bool(error)
        play.check(error)
    print(n_failed)
