"""A short pass through the fuzz targets: kept cases, and inputs that are changed at random; see ``run.py``."""

import os
import sys
from pathlib import Path

import pytest
from new_python import run_python
from targets import SHARES

EXECUTIONS = os.environ.get("FUZZ_EXECUTIONS", "250")  # of each target


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is fenced and limited as Linux does it")
def test_what_strangers_may_send_is_read_or_refused(tmp_path):
    """In a process of its own, which may die of it, and which has little memory."""
    options = "--plain", "--child", "--executions", EXECUTIONS, "--folder", tmp_path
    assert run_python(Path(__file__).with_name("run.py"), "all", *options, MALLOC_PERTURB_="165") == ""
    assert len(list(tmp_path.glob("*/counts"))) == len(SHARES)
