"""What needs processes of its own: forks beside threads, and appends without memory."""

from pathlib import Path

import pytest
from new_python import run_python

HERE = Path(__file__).parent
KINDS = "stacks", "auto", "floats"
OTHERS = "delta-rle", "zstd:1", "pred", "deciding", "limited"  # which these have parts of


@pytest.mark.slow
@pytest.mark.needs("fork")
@pytest.mark.parametrize("codec", [pytest.param("delta-rle", marks=pytest.mark.long), "auto"])
@pytest.mark.parametrize("kind", ["sample", "delete", "append", "save"])
def test_forks_beside_threads(kind, codec):
    """A process may be forked while other threads sample, append and save; the child ends, and has whole steps."""
    program = HERE / "fork_beside_threads.py"
    assert run_python(program, kind, 6, codec, timeout=200) == "all children ended\n"


@pytest.mark.slow
@pytest.mark.needs("limits of a process", "/proc")
@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.long) for kind in OTHERS)])
def test_an_append_without_memory_is_undone_in_a_new_process(kind):
    """Also in one that has never undone an append."""
    assert run_python(HERE / "append_without_memory.py", kind, timeout=300) == "all is there\n"


SHOWS_KERNELS = """
import numpy as np
from obscodec import AutoStore, Field, FrameStore, Layout, RingBuffer
from obscodec.kernels import kernels_here

def show(*_):
    names = kernels_here()
    print(*sorted({name.rpartition(".")[2] for name, _ in names.loaded | names.compiled}))

"""
MAKES_STORES = """
show()
show(store := FrameStore(Layout((8, 8), np.uint8)))
show(store.step_writer(2))
show(store.guard())
"""
HAS_FIRST_TENSORS = """
store = AutoStore(Layout((8, 8), np.uint8))
ids = store.append(np.ones((9, 8, 8), np.uint8))
with store.guard():
    store.release(ids[:3])
store.release(ids[5:])
show(store.read(ids[3:5]), store.stats())
ring = RingBuffer(4, {"obs": Field((4, 84, 84), np.uint8), "next_obs": Field((4, 84, 84), np.uint8, shares="obs")})
for k in range(6):
    ring.append(obs=np.full((4, 84, 84), k, np.uint8), next_obs=np.full((4, 84, 84), k + 1, np.uint8))
show(ring.sample(2, 0), ring.stats())
"""


def loaded_by(program: str) -> list[set[str]]:
    """The kernels that a process has at each ``show`` of a program."""
    return [set(line.split()) for line in run_python("-c", SHOWS_KERNELS + program).splitlines()]


def test_what_undoes_a_change_is_loaded_before_the_first_change():
    """A step that can't be undone stays where the next one goes, so the programs above would not tell."""
    loaded = loaded_by(MAKES_STORES)
    assert [sorted(now - before) for before, now in zip([set(), *loaded], loaded, strict=False)] == [
        [],
        ["give_back_frames", "reclaim", "release_stacks"],
        ["undo_step"],
        [],
    ]


def test_first_tensors_need_no_kernel():
    """Else the first calls would wait for a compiler."""
    assert loaded_by(HAS_FIRST_TENSORS) == [set(), set()]
