"""A process may be forked while other threads sample and append; the child ends, and has whole steps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("fork")


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["delta-rle", "auto"])
@pytest.mark.parametrize("kind", ["sample", "delete", "append"])
def test_forks_beside_threads(kind, codec):
    program = Path(__file__).with_name("fork_beside_threads.py")
    path = os.pathsep.join([str(program.parents[1]), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, program, kind, "10", codec],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "all children ended\n"
