"""The command ``obscodec warm``: what it says, and where compiled kernels are kept."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import obscodec
import obscodec.cli.warm as cli
import obscodec.warming as warming
import pytest
from counted_kernels import COUNTED
from obscodec.kernels import KernelNames
from obscodec.warming import Warmed

NOT_KEPT = (
    "numba finds no writable folder for compiled kernels, so each process compiles them anew, for half a minute or "
    "more: set NUMBA_CACHE_DIR to a folder that this user can write"
)


def run(*arguments, code=None, **env):
    command = [sys.executable, *(["-m", "obscodec"] if code is None else ["-c", code]), *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (2, "compiled 2 kernels in 1.5 s, the others were there: /kernels\n"),
        (0, "all 3 kernels that buffers call are compiled already: /kernels\n"),
    ],
)
def test_it_says_what_it_did(monkeypatch, capsys, n, said):
    new, old = ({(f"{of} {i}", "()") for i in range(count)} for of, count in (("new", n), ("old", 3)))
    monkeypatch.setattr(cli, "warm", lambda *_: Warmed(KernelNames(new, old, set()), "/kernels", 1.5))
    assert cli.run_warm(None) == 0
    assert capsys.readouterr().out == said


def test_it_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(warming, "PARTS", (partial(time.sleep, 0.01), partial(time.sleep, 0.02)))
    monkeypatch.setattr(warming, "entry_points", lambda group: [])
    monkeypatch.setattr(warming.time, "perf_counter", lambda: 1.2)
    assert cli.run_warm(1) == 0
    assert capsys.readouterr().err == "".join(f"obscodec compiles: {n} of 2 parts, 0 s\n" for n in range(3))


def test_it_ends_with_the_error_of_a_part(monkeypatch):
    monkeypatch.setattr(warming, "PARTS", (partial(int, "a broken part"), partial(time.sleep, 0.1)))
    monkeypatch.setattr(warming, "entry_points", lambda group: [])
    with pytest.raises(ValueError, match="a broken part"):
        warming.warm(1, print)


@pytest.mark.slow
def test_another_processor_is_another_cache(tmp_path):
    """Numba keeps machine code for one processor, so an image for several needs the name of what all have."""
    used = "import numpy, obscodec; obscodec.decode(obscodec.encode(numpy.zeros(9, 'u1'), 'rle'))"
    program = f"{COUNTED}\n{used}\nprint(len(compiled) > 1)"
    here = {"NUMBA_CACHE_DIR": str(tmp_path)}
    variables = [here, here, here | {"NUMBA_CPU_NAME": "generic"}, here | {"NUMBA_CPU_NAME": "generic"}]
    assert [run(code=program, **of).stdout for of in variables] == ["True\n", "False\n"] * 2


@pytest.fixture
def unwritable(tmp_path):
    """A copy of the package with files in the places of the folders that numba would write; root may write all else."""
    copy = tmp_path / "obscodec"
    shutil.copytree(Path(obscodec.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    file = tmp_path / "file"
    file.touch()
    below = str(file / "folder")
    return {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": below, "HOME": below, "XDG_CACHE_HOME": below}


def test_where_nothing_can_be_kept_it_exits(unwritable):
    ran = run("warm", **unwritable)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"nothing was compiled: {NOT_KEPT}\n")


@pytest.mark.slow
def test_where_nothing_can_be_kept_kernels_work_and_one_line_says_so(unwritable):
    program = """
        import numpy as np
        from obscodec import FrameStore, Layout

        for _ in range(2):
            store, frames = FrameStore(Layout((8, 8), np.uint8)), np.ones((1, 8, 8), np.uint8)
            store.append(frames)
    """
    ran = run(code=textwrap.dedent(program), **unwritable)
    assert (ran.returncode, ran.stderr) == (0, f"obscodec is compiling its kernels: {NOT_KEPT}\n")
