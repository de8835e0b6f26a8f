"""Memory in files: it reads as it was written, and goes with its last reader."""

import mmap
import re
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from forked import exit_status, forked
from new_python import run_python
from obscodec.runtime import in_file, is_in_file, new_chunk, temporary_folder


def test_a_copy_in_a_file_has_the_same_bytes_and_leaves_no_name(tmp_path):
    content = np.random.default_rng(0).integers(256, size=100_001, dtype=np.uint8)
    copy = in_file(content, tmp_path)
    assert copy.dtype == np.uint8
    assert copy.flags.c_contiguous
    assert copy.ctypes.data % mmap.PAGESIZE == 0
    np.testing.assert_array_equal(copy, content)
    assert not [*tmp_path.iterdir()]
    assert is_in_file(copy)
    assert not is_in_file(content)
    assert not is_in_file(new_chunk(10))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process maps")
def test_a_copy_goes_with_the_last_array_that_views_it_and_keeps_no_file_open(tmp_path):
    def mapped():
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    n_files = len([*Path("/proc/self/fd").iterdir()])
    copies = [in_file(np.full(5000, i, np.uint8), tmp_path) for i in range(50)]
    view = copies[7][1000:2000]
    assert mapped() == 50
    assert len([*Path("/proc/self/fd").iterdir()]) == n_files
    del copies
    assert mapped() == 1
    assert (view == 7).all()
    del view
    assert mapped() == 0


def test_a_folder_that_is_not_there_is_named(tmp_path):
    folder = str(tmp_path / "none")
    text = f"[Errno 2] 3 bytes can't be moved to a file in {folder!r}: No such file or directory"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(text)}; make room there, or choose another folder$"):
        in_file(np.zeros(3, np.uint8), folder)


_FULL = """
import resource, sys
import numpy as np
from obscodec.heap import SlotHeap
from obscodec.segments import Segments

heap, streams = SlotHeap(100), [bytes([i]) * 30_000 for i in range(100)]
heap.put(range(100), Segments.of(streams))
before = heap.stats()
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    heap.spill(sys.argv[1], 1 << 30)
except OSError as error:
    print(error)
assert heap.stats() == before
assert [bytes(stream) for stream in heap.get(range(100))] == streams
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit for files stands for a full disk")
def test_a_full_disk_leaves_the_heap_as_it_was(tmp_path):
    said = f"can't be moved to a file in {str(tmp_path)!r}: File too large; make room there, or choose another folder"
    assert re.fullmatch(rf"\[Errno 27\] \d+ bytes {re.escape(said)}\n", run_python("-c", _FULL, tmp_path))


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
    assert run_python("-c", script) == "0 True\nFalse\n"
