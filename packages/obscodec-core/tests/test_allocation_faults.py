"""A failed allocation is MemoryError, and leaves what is stored, and snapshots, as they were."""

from pathlib import Path

import pytest
from failing_allocator import run_with

HERE = Path(__file__).parent
KINDS = "delta-rle", "zstd:1", "undecided"
OTHERS = "delta-rle|zstd:3", "pred", "palette", "floats", "decided", "books"  # seldom change


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.long) for kind in OTHERS)])
def test_each_allocation_of_a_buffer_may_fail(kind, tmp_path):
    assert int(run_with(HERE / "allocation_faults.py", kind, folder=tmp_path)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("what", ["save", "load", "state", "flush", "restore"])
@pytest.mark.parametrize("codec", ["delta-rle|lz4", pytest.param("zstd:1", marks=pytest.mark.long)])
def test_each_allocation_of_a_snapshot_may_fail(what, codec, tmp_path):
    program = HERE / "allocation_faults_of_snapshots.py"
    assert int(run_with(program, what, codec, folder=tmp_path)) > 2  # a flush takes few: others are in the background
