"""Who waits for a compiler is told, and only then."""

import builtins
import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import pytest
from numba.core.caching import IndexDataCacheFile
from obscodec.kernels import compiler, kernels_here
from obscodec.kernels.compiler import compiled

PROGRAM = textwrap.dedent(
    """
    import numpy as np
    from obscodec import FrameStore, Layout

    for _ in range(2):
        FrameStore(Layout((8, 8), np.uint8)).append(np.ones((1, 8, 8), np.uint8))
    """
)
LINE = (
    "obscodec is compiling its kernels for this machine: half a minute or more, the first time only; "
    "`python -m obscodec warm` compiles all kernels ahead\n"
)


@pytest.fixture(autouse=True)
def beside_the_source(monkeypatch):
    """Kernels of these tests are kept beside their source, though whoever runs the tests has another folder for all."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")


@pytest.mark.slow
def test_the_first_use_says_why_it_takes_long(tmp_path):
    said = []
    for _ in range(2):
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        said.append(subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True).stderr)
    assert said == [LINE, ""]


def kernel_in(folder, text="x + 1"):
    """A kernel whose source lies in a folder."""
    file = folder / "kernel.py"
    file.write_text(f"def kernel(x):\n    return {text}")
    namespace = {"__name__": "kernel"}
    exec(builtins.compile(file.read_text(), str(file), "exec"), namespace)
    return compiled(namespace["kernel"])


@pytest.mark.parametrize("refused", ["_save_index", "_save_data"])
def test_a_full_disk_costs_time_and_a_line(refused, tmp_path, monkeypatch, caplog):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert kernel_in(tmp_path, "x + 1")(1) == 2  # an older kernel, whose file a later one may not take
    os.utime(tmp_path / "kernel.py", (0, 0))
    monkeypatch.setattr(compiler, "_kernels", [])
    monkeypatch.setattr(compiler, "_unkept", set())
    with monkeypatch.context() as patched:
        patched.setattr(IndexDataCacheFile, refused, full)
        kernel = kernel_in(tmp_path, "x + 2")
        assert (kernel(1), kernel(1.0)) == (3, 3.0)
    (line,) = caplog.messages
    assert line == (
        f"obscodec compiles its kernels, and can't keep them in {tmp_path / '__pycache__'} "
        "([Errno 28] No space left on device), so each process compiles them anew, for half "
        "a minute or more: make room there, or set NUMBA_CACHE_DIR to another folder"
    )
    assert {name for name, _ in kernels_here().unkept} == {"kernel.kernel"}
    assert len(kernels_here().unkept) == 2
    assert kernel_in(tmp_path, "x + 2")(1) == 3  # now it is kept
    later = kernel_in(tmp_path, "x + 2")
    assert (later(1), later.stats.cache_misses) == (3, {})


def test_a_file_that_can_not_be_read_is_made_anew(tmp_path, monkeypatch):
    def refused(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    assert kernel_in(tmp_path)(1) == 2
    monkeypatch.setattr(IndexDataCacheFile, "_load_index", refused)
    assert kernel_in(tmp_path)(1) == 2


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", bytes(1000), None])
def test_a_damaged_file_is_made_anew(kind, content, tmp_path):
    assert kernel_in(tmp_path)(1) == 2
    (file,) = tmp_path.glob(f"__pycache__/*.{kind}")
    file.write_bytes(file.read_bytes()[:-10] if content is None else content)
    assert kernel_in(tmp_path)(1) == 2
    later = kernel_in(tmp_path)
    assert (later(1), later.stats.cache_misses) == (2, {})


def test_a_damaged_file_that_can_not_be_removed_costs_time(tmp_path, monkeypatch, caplog):
    def refused(*arguments, **options):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    assert kernel_in(tmp_path)(1) == 2
    (index,) = tmp_path.glob("__pycache__/*.nbi")
    index.write_bytes(b"")
    monkeypatch.setattr(compiler, "_unkept", set())
    monkeypatch.setattr(Path, "unlink", refused)
    assert kernel_in(tmp_path)(1) == 2
    assert "can't keep them in" in caplog.text


def test_a_kernel_for_other_types_is_not_taken(tmp_path):
    """Of two processes that both wrote the first file of a kernel, one wrote the index last, the other this file."""
    of_ints, of_floats = tmp_path / "ints", tmp_path / "floats"
    for folder, number in ((of_ints, 1), (of_floats, 1.5)):
        folder.mkdir()
        assert kernel_in(folder)(number) == number + 1
    (written,), (overwritten,) = of_ints.glob("__pycache__/*.nbc"), of_floats.glob("__pycache__/*.nbc")
    overwritten.write_bytes(written.read_bytes())
    assert kernel_in(of_floats)(1.5) == 2.5
    later = kernel_in(of_floats)
    assert (later(1.5), later.stats.cache_misses) == (2.5, {})
