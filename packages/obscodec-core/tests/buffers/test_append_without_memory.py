"""An append that has no memory is refused and undone, also in a process that has never undone one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("limits of a process"), pytest.mark.needs("/proc")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta-rle", "stacks", "zstd:1", "pred", "auto", "deciding", "floats", "limited"])
def test_an_append_without_memory_is_undone_in_a_new_process(kind):
    program = Path(__file__).with_name("append_without_memory.py")
    path = os.pathsep.join([str(program.parents[1]), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, program, kind],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "all is there\n"


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
    ran = subprocess.run([sys.executable, "-c", MAKES_STORES], capture_output=True, text=True, check=True)
    loaded = [set(line.split()) for line in ran.stdout.splitlines()]
    assert [sorted(now - before) for before, now in zip([set(), *loaded], loaded, strict=False)] == [
        ["leave"],
        ["give_back_frames", "reclaim", "release_stacks"],
        ["undo_step"],
        ["hand_over"],
        ["part_narrow"],
    ]
