"""What has no memory is refused and undone, also in a process that has never undone anything."""

import os
import subprocess
import sys
from pathlib import Path

import limited_memory
import pytest

pytestmark = [pytest.mark.needs("limits of a process"), pytest.mark.needs("/proc")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta-rle", "auto"])
def test_what_has_no_memory_is_undone_in_a_new_process(kind):
    program = Path(__file__).with_name("extend_without_memory.py")
    path = os.pathsep.join([str(Path(limited_memory.__file__).parent), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, program, kind],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("all is there\n")
