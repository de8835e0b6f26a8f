"""The command ``obscodec warm``: what it compiles, no later process compiles."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import obscodec
import pytest
from counted_kernels import COUNTED

BUFFERS = textwrap.dedent(
    """
    import numpy as np
    from obscodec import Field, Prioritized, RingBuffer, decode, encode

    frames = np.zeros((600, 84, 84), np.uint8)
    frames[np.arange(600), np.arange(600) % 84, 5] = 200
    fields = {"frame": Field((84, 84), np.uint8), "reward": Field((), np.float32), "done": Field((), bool)}
    for n_envs, more in ((1, {}), (2, {"max_bytes": 4 << 20})):
        buffer = RingBuffer(400, fields, n_envs, {"frame": 4}, "done", pad="edge", **more)
        priorities = Prioritized(400 * n_envs)
        for i, frame in enumerate(frames):
            done = np.full(n_envs, i % 90 == 0)
            buffer.append(frame=frame[None].repeat(n_envs, 0), reward=np.ones(n_envs), done=done)
        buffer.sample(256, p=priorities)
        buffer.sequences(8, 10)
    decode(encode(frames[:4]))
    for spec in ("delta-rle", "delta-rle|lz4:4", "rle", "zstd:3"):
        decode(encode(frames[:4], spec))
    """
)
NOT_KEPT = (
    "numba finds no folder to keep compiled kernels in that it can write, so each process compiles them anew, for 10 "
    "to 30 seconds: set NUMBA_CACHE_DIR to a folder that this user can write"
)


def run(*arguments, code=None, **env):
    command = [sys.executable, *(["-m", "obscodec"] if code is None else ["-c", code]), *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """A folder of compiled kernels, made where the command line's packages are missing, and what was printed."""
    folder = str(tmp_path_factory.mktemp("warmed"))
    code = "import sys; sys.modules['typer'] = None; from obscodec.cli import main; main()"
    # A file, since a process that is spawned imports what was started, and its name must be there.
    program = Path(folder) / "program.py"
    program.write_text(f"if __name__ == '__main__':\n    {code}\n")
    ran = subprocess.run(
        [sys.executable, program, "warm"], env={**os.environ, "NUMBA_CACHE_DIR": folder}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return folder, ran.stdout


def test_it_says_what_it_did(warmed):
    folder, said = warmed
    found = re.search(r"compiled (\d+) kernels in \d+\.\d s, the others were there: (.*)\n$", said)
    assert found is not None
    assert int(found[1]) > 50
    assert found[2] == folder


def test_no_later_process_compiles(warmed):
    ran = run(code=f"{COUNTED}\n{BUFFERS}\nprint(compiled)", NUMBA_CACHE_DIR=warmed[0])
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


@pytest.mark.slow
def test_a_second_time_nothing_is_compiled(warmed):
    ran = run("warm", "--processes", "1", NUMBA_CACHE_DIR=warmed[0])
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(rf"all \d\d+ kernels that buffers call are compiled already: {warmed[0]}\n", ran.stdout)


@pytest.mark.slow
def test_another_processor_is_another_cache(warmed):
    """Numba keeps machine code for one processor, so an image for several needs the name of what all have."""
    used = "import numpy, obscodec; obscodec.decode(obscodec.encode(numpy.zeros(9, 'u1'), 'rle'))"
    program = f"{COUNTED}\n{used}\nprint(len(compiled) > 1)"
    generic = {"NUMBA_CACHE_DIR": warmed[0], "NUMBA_CPU_NAME": "generic"}
    said = [run(code=program, **generic).stdout for _ in range(2)]
    assert said == ["True\n", "False\n"]


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
    assert (ran.returncode, ran.stderr) == (0, f"obscodec compiles its kernels: {NOT_KEPT}\n")
