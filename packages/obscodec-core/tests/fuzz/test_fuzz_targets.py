"""A short pass through the fuzz targets: kept cases, and inputs that are changed at random; see ``run.py``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from targets import SHARES

EXECUTIONS = os.environ.get("FUZZ_EXECUTIONS", "250")  # of each target


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is fenced and limited as Linux does it")
def test_what_strangers_may_send_is_read_or_refused(tmp_path):
    """In a process of its own, which may die of it, and which has little memory."""
    command = [sys.executable, Path(__file__).with_name("run.py"), "all", "--plain", "--child"]
    done = subprocess.run(
        [*command, "--executions", EXECUTIONS, "--folder", tmp_path],
        env={**os.environ, "MALLOC_PERTURB_": "165"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[-3000:] + done.stderr[-3000:]
    assert len(list(tmp_path.glob("*/counts"))) == len(SHARES)
