"""A failed allocation is MemoryError, and leaves what is stored as it was."""

from pathlib import Path

import pytest
from failing_allocator import run_with

SCRIPT = Path(__file__).with_name("allocation_faults.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["delta-rle", "delta-rle|zstd:3", "zstd:1", "pred", "palette", "undecided", "floats", "decided", "books"]
)
def test_each_allocation_of_a_buffer_may_fail(kind, tmp_path):
    assert int(run_with(SCRIPT, kind, folder=tmp_path)) > 20
