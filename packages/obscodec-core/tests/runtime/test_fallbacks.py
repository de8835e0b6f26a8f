"""What some systems lack is taken away in a fresh process: buffers hold, spill, save and load the same."""

import sys
import textwrap
from pathlib import Path

import pytest
from new_python import run_python

# Stands for msvcrt of Windows where this one is not: the same calls and errors, by locks of this system.
_MSVCRT = """
import fcntl
LK_NBLCK = 2
def locking(descriptor, mode, nbytes):
    assert (mode, nbytes) == (LK_NBLCK, 1)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None
"""

_LACKS = {
    "macOS": """
        take_away(mmap, "MADV_HUGEPAGE")
        take_away(os, "sched_getaffinity")
        sys.platform = "darwin"
    """,
    "Windows": """
        take_away(mmap, "MAP_PRIVATE", "MAP_SHARED", "MAP_ANONYMOUS", "MADV_HUGEPAGE", "MADV_RANDOM")
        take_away(mmap, "PROT_READ", "PROT_WRITE")
        take_away(os, "fork", "register_at_fork", "sched_getaffinity", "O_NOFOLLOW", "O_NONBLOCK", "pread", "pwrite")
        take_away(signal, "SIGALRM", "SIGKILL", "setitimer", "pthread_kill", "alarm")
        for module in ("fcntl", "resource", "grp", "pwd"):
            sys.modules[module] = None
        sys.platform = "win32"
    """,
}

_WORK = """
import ctypes, mmap, os, pathlib, signal, subprocess, sys, tempfile, threading
import numba, numpy as np, xxhash, zstandard, lz4, ml_dtypes, safetensors
sys.modules.pop("msvcrt", None)
if "msvcrt" not in sys.builtin_module_names:
    sys.path.insert(0, sys.argv[2])
    import msvcrt  # while it finds what it stands on

def take_away(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

of_this_system = sys.platform
{lacks}
import obscodec, obscodec.buffers, obscodec.runtime, obscodec.snapshots.folder_lock as folder_lock
sys.platform = of_this_system  # others may need it
from obscodec import Field, RingBuffer
from obscodec.runtime import as_threads, give_back_free_memory, in_file, is_in_file, new_huge_chunk

chunk = new_huge_chunk(5 << 20)
chunk[:] = 3
give_back_free_memory()
assert chunk.all() and as_threads(None) >= 1

folder = pathlib.Path(sys.argv[1])
copy = in_file(np.arange(100_000, dtype=np.uint8), folder)
assert is_in_file(copy) and not is_in_file(chunk) and copy[257] == 1
copy[0] = 9  # as private as any memory
part = copy[5:9]
del copy
assert part.tolist() == [5, 6, 7, 8]
del part
assert not [*folder.iterdir()]

frames = np.random.default_rng(0).integers(256, size=(1500, 84, 84), dtype=np.uint8)
buffer = RingBuffer(1500, {{"frame": Field((84, 84), np.uint8, "raw")}}, max_bytes=4 << 20, spill=folder / "spill")
snapshot = obscodec.Snapshot(folder / "saved")
for i, frame in enumerate(frames):
    buffer.append(frame=frame)
    if i % 600 == 599:
        snapshot.write(buffer)
snapshot.wait()
spilled = buffer.sample(64, 0)["frame"]
obscodec.save(buffer, folder / "whole")
for is_mapped in False, True:
    loaded = obscodec.load(folder / "whole", mmap=is_mapped, spill=folder / "again")
    assert (loaded.sample(64, 0)["frame"] == spilled).all()
assert len(obscodec.load(folder / "saved", spill=folder / "again")) == 1200
assert all((frame == frames).all(axis=(1, 2)).any() for frame in spilled)

with folder_lock.FolderLock(folder / "saved"):
    try:
        snapshot.write(buffer)
        snapshot.wait()
    except obscodec.SnapshotError as error:
        assert "is being written by somebody else" in str(error), error
    else:
        raise AssertionError("two write into one folder")
snapshot.write(buffer)
snapshot.wait()
print("msvcrt" in vars(folder_lock), hasattr(os, "fork"))
"""


@pytest.mark.parametrize("system", _LACKS)
def test_without_what_a_system_lacks_a_buffer_does_the_same(system: str, tmp_path: Path) -> None:
    stands_in, folder, locks = tmp_path / "modules", tmp_path / "folder", tmp_path / "locks"
    for each in (stands_in, folder, locks):
        each.mkdir()
    (stands_in / "msvcrt.py").write_text(_MSVCRT)
    code = _WORK.format(lacks=textwrap.dedent(_LACKS[system]))
    said = run_python("-c", code, folder, stands_in, TMPDIR=str(locks), TEMP=str(locks))
    is_windows = system == "Windows" or sys.platform == "win32"
    assert said.split() == [str(is_windows), str(not is_windows)]
    assert len([*locks.glob("obscodec-*.lock")]) == (2 if is_windows else 0)
