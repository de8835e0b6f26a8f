"""A step is added, or the buffer stays as it was: whatever exception comes, at any line, or for want of memory."""

import os
from pathlib import Path

import pytest
from failing_allocator import run_with
from faults import at_every_line
from replay_in_parallel import Play

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "7"))
OPTIONS = [("delta-rle", 8), ("zstd:1", 8), ("auto", 100_000)]


@pytest.mark.parametrize(("codec", "decide_after"), OPTIONS)
def test_a_step_that_is_interrupted_is_added_or_not(codec, decide_after):
    play, n_interrupts = Play(codec=codec, decide_after=decide_after), 0
    for _ in range(30):
        play.prepare()()
        play.stored()
    for _ in range(4):
        for where in at_every_line(play.prepare, STEP):
            n_interrupts += 1
            play.check(where)
    assert n_interrupts > 300 // STEP


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "decide_after"), OPTIONS)
def test_each_allocation_of_a_step_may_fail(codec, decide_after, tmp_path):
    script = Path(__file__).with_name("allocation_faults_sb3.py")
    assert int(run_with(script, codec, str(decide_after), folder=tmp_path)) > 1  # a step takes few
