"""Run by ``test_faults.py``: buffers with a ``CompressedStorage`` whose allocations fail; prints how many."""

import sys

from extended_rows import Rows
from failing_allocator import at_every_allocation, choose_in_the_caller

if __name__ == "__main__":
    choose_in_the_caller()
    for option in sys.argv[1:]:  # in one process, which takes seconds to load torch
        codec, decide_after = option.split("/")
        rows, n_failed = Rows(codec=codec, decide_after=int(decide_after)), 0
        for _ in range(10):  # so that all is compiled
            rows.prepare()()
            rows.check("before")
            rows.buffer.sample()
        for call in (rows.prepare, lambda buffer=rows.buffer: buffer.sample):
            for error in at_every_allocation(call, step=2, spare_torch=True):
                n_failed += bool(error)
                rows.check(error)
        rows.check_end()
        print(f"{option}: {n_failed}")
