"""What needs processes of its own: forks beside threads, and appends without memory."""

from pathlib import Path

import pytest
from new_python import run_python

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.needs("fork")
@pytest.mark.parametrize("codec", ["delta-rle", "auto"])
@pytest.mark.parametrize("kind", ["sample", "delete", "append", "save"])
def test_forks_beside_threads(kind, codec):
    """A process may be forked while other threads sample, append and save; the child ends, and has whole steps."""
    program = HERE / "fork_beside_threads.py"
    assert run_python(program, kind, 10, codec, timeout=200) == "all children ended\n"


@pytest.mark.slow
@pytest.mark.needs("limits of a process", "/proc")
@pytest.mark.parametrize("kind", ["delta-rle", "stacks", "zstd:1", "pred", "auto", "deciding", "floats", "limited"])
def test_an_append_without_memory_is_undone_in_a_new_process(kind):
    """Also in one that has never undone an append."""
    assert run_python(HERE / "append_without_memory.py", kind, timeout=300) == "all is there\n"


MAKES_STORES = """
import numpy as np
from obscodec import AutoStore, FrameStore, Layout
from obscodec.kernels import kernels_here
from obscodec.stores.narrow.narrow import Narrow
from obscodec.stores.narrow.narrow_store import NarrowStore

def show(*_):
    names = kernels_here()
    print(*sorted({name.rpartition(".")[2] for name, _ in names.loaded | names.compiled}))

bytes_, floats = Layout((8, 8), np.uint8), Layout((8, 8), np.float32)
show(AutoStore(bytes_))
show(store := FrameStore(bytes_))
show(store.step_writer(2))
show(store.guard())
show(NarrowStore(Narrow(np.dtype(np.float32), 8, (("/", 2),)), FrameStore(bytes_), FrameStore(floats)))
"""


def test_what_undoes_a_change_is_loaded_before_the_first_change():
    """A step that can't be undone stays where the next one goes, so the programs above would not tell."""
    loaded = [set(line.split()) for line in run_python("-c", MAKES_STORES).splitlines()]
    assert [sorted(now - before) for before, now in zip([set(), *loaded], loaded, strict=False)] == [
        ["leave"],
        ["give_back_frames", "reclaim", "release_stacks"],
        ["undo_step"],
        ["hand_over"],
        ["part_narrow"],
    ]
