"""A process may be forked while other threads sample and add; the child ends, and has whole items."""

import os
import subprocess
import sys
from pathlib import Path

import forks
import pytest

pytestmark = pytest.mark.needs("fork")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sample", "add"])
def test_forks_beside_threads(kind):
    program = Path(__file__).with_name("fork_beside_threads_sb3.py")
    path = os.pathsep.join([str(Path(forks.__file__).parent), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, program, kind, "20"],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("all children ended\n")
