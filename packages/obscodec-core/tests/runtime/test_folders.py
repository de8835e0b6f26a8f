"""A temporary folder is removed by the process that made it."""

import os
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest
from forked import exit_status, forked
from obscodec.runtime import temporary_folder


def test_it_goes_with_the_context():
    with suppress(KeyError), temporary_folder() as folder:
        (folder / "part").mkdir()
        (folder / "part" / "file").touch()
        raise KeyError
    assert not folder.exists()


@pytest.mark.needs("fork")
def test_a_forked_process_that_leaves_the_context_leaves_the_folder():
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        assert exit_status(forked(stack.close)) == 0
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.needs("fork")
def test_a_forked_process_that_ends_leaves_the_folder():
    script = """
import atexit
from forked import exit_status, forked
from obscodec.runtime import temporary_folder
with temporary_folder() as folder:
    print(exit_status(forked(atexit._run_exitfuncs)), folder.is_dir())
print(folder.exists())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "0 True\nFalse\n", done.stderr
