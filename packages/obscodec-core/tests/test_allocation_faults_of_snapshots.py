"""A failed allocation while a buffer is saved, loaded or made a state of is MemoryError, and harms nothing."""

from pathlib import Path

import pytest
from failing_allocator import run_with

SCRIPT = Path(__file__).with_name("allocation_faults_of_snapshots.py")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["save", "load", "state", "flush", "restore"])
@pytest.mark.parametrize("codec", ["delta-rle|lz4", "zstd:1"])
def test_each_allocation_of_a_snapshot_may_fail(what, codec, tmp_path):
    assert int(run_with(SCRIPT, what, codec, folder=tmp_path)) > 2  # a flush takes few: others come in the background
