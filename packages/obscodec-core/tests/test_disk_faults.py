"""A disk that is full at any call leaves the snapshot before; the buffer is as it was, and is saved next time."""

import subprocess
import sys
from pathlib import Path

import pytest
from new_python import run_python

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the calls of a disk are replaced as Linux does it")
def test_each_call_of_a_save_may_fail(tmp_path):
    library = tmp_path / "failing_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "failing_disk.c", "-ldl"], check=True)
    assert int(run_python(HERE / "disk_faults.py", LD_PRELOAD=str(library))) > 30
