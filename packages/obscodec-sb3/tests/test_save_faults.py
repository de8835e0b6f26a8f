"""A save for which there is too little memory leaves the snapshot before, and the buffer as it was."""

import os
from pathlib import Path

import pytest
from failing_allocator import run_with

STEP = os.environ.get("OBSCODEC_FAULT_STEP", "40")


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["delta-rle|lz4", "auto"])
def test_each_allocation_of_a_save_may_fail(codec, tmp_path):
    script = Path(__file__).with_name("allocation_faults_sb3_saves.py")
    assert int(run_with(script, codec, STEP, folder=tmp_path)) > 5
