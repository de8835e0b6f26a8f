"""A failed allocation is MemoryError, and leaves what is stored, and snapshots, as they were."""

from pathlib import Path

import pytest
from failing_allocator import run_with

HERE = Path(__file__).parent
KINDS = "delta-rle", "delta-rle|zstd:3", "zstd:1", "pred", "palette", "undecided", "floats", "decided", "books"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_allocation_of_a_buffer_may_fail(kind, tmp_path):
    assert int(run_with(HERE / "allocation_faults.py", kind, folder=tmp_path)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("what", ["save", "load", "state", "flush", "restore"])
@pytest.mark.parametrize("codec", ["delta-rle|lz4", "zstd:1"])
def test_each_allocation_of_a_snapshot_may_fail(what, codec, tmp_path):
    program = HERE / "allocation_faults_of_snapshots.py"
    assert int(run_with(program, what, codec, folder=tmp_path)) > 2  # a flush takes few: others are in the background
