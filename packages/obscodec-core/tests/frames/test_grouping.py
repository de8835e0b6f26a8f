import pkgutil
from importlib import import_module
from typing import get_args, get_type_hints

import numpy as np
import obscodec
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher
from obscodec.frames.kernels.counts import count_known
from obscodec.frames.kernels.grouping import group


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 1 << 13), st.integers(0, 300), st.integers(0, 2**32))
def test_frames_are_sorted_by_block_and_place(block_frames, n_frames, n, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, n_frames, n)
    order, places, blocks, starts = np.empty((4, n + 1), np.int64)
    n_blocks = group(ids, block_frames, order[:n], places, blocks, starts)
    order, places, blocks, starts = order[:n], places[:n], blocks[:n_blocks], starts[: n_blocks + 1]
    assert sorted(order.tolist()) == list(range(n))
    assert ids[order].tolist() == sorted(ids.tolist())
    assert (blocks.repeat(np.diff(starts)) * block_frames + places).tolist() == sorted(ids.tolist())
    assert blocks.tolist() == sorted(set((ids // block_frames).tolist()))
    assert starts[-1] == n


@given(st.integers(0, 9), st.sampled_from([-1, -(2**62), 5, 40, 41, 2**62]))
def test_the_first_unknown_frame_is_named(at, unknown):
    counts = np.full(41, 3, np.int32)
    counts[[0, 5, 40]] = 0, 1, 0  # 0 is the frame of zeros, 5 has only its place among the recent ones
    ids = np.array([7, 0, 39, 7, 0, 1, 2, 3, 4, 6])
    assert count_known(ids, counts) == 10
    ids[at] = ids[9] = unknown
    assert count_known(ids, counts) == at


def test_kernels_give_numbers():
    """Numba runs Python code to hand an array over, and says SystemError of a KeyboardInterrupt there."""
    names = [module.name for module in pkgutil.walk_packages(obscodec.__path__, "obscodec.")]
    given = {
        f"{name}.{kernel}": get_type_hints(made.py_func)["return"]
        for name in names
        for kernel, made in vars(import_module(name)).items()
        if isinstance(made, Dispatcher) and made.targetoptions.get("inline") != "always"
    }
    assert "obscodec.streams.blocks.read_blocks" in given
    numbers = {int, bool, np.uint64, np.uintp, type(None)}
    assert not {name: what for name, what in given.items() if not {*(get_args(what) or [what])} <= numbers}
