"""FrameLog: a pickle has all parts as they were at one moment."""

import copy
import pickle
import pkgutil
import threading
from dataclasses import replace
from importlib import import_module
from typing import get_args, get_type_hints

import numpy as np
import obscodec
import pytest
from numba.core.dispatcher import Dispatcher
from obscodec import FrameStore, Layout

FRAME = Layout((8, 9), "uint8")


def noise(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, (n, *FRAME.shape), np.uint8)


def words(n: int, seed: int) -> np.ndarray:
    """Frames that a dictionary helps with."""
    made = np.random.default_rng(9).integers(0, 256, (12, 9), np.uint8)
    return made[np.random.default_rng(seed).integers(12, size=(n, 8))]


class Lock:
    """As soon as it is free, another thread goes on, and the pickler goes through the parts only then."""

    def __init__(self, store, go_on):
        self.store, self.go_on = store, go_on

    def __enter__(self):
        pass

    def __exit__(self, *error):
        self.store.log.lock = threading.Lock()
        self.go_on(self.store)


@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|zstd:1", "zstd:1", "raw"])
@pytest.mark.parametrize("rebuild", [lambda state: pickle.loads(pickle.dumps(state)), copy.deepcopy])
def test_what_another_thread_appends_while_a_log_is_pickled_is_not_in_the_pickle(codec, rebuild):
    store = FrameStore(FRAME, codec=codec, block_frames=4, recent=2)
    frames, sequences = words(40, 0), np.repeat([0, 1], [19, 21])
    ids = store.append(frames, sequences)
    store.release(ids[:9])
    ids, frames, before = ids[9:], frames[9:], store.stats()

    def go_on(store):
        store.release(ids)  # blocks go, and their numbers are used again
        for seed in range(1, 9):
            store.append(words(60, seed), [0] * 60)  # enough to train a dictionary
            store.append(noise(30, seed), [seed] * 30)
        store.log._held = ids[:1].copy()  # in the middle of an append

    store.log.lock = Lock(store, go_on)
    state = store.log.state()
    store = FrameStore(**store.arguments())
    store.log.restore(rebuild(state))
    assert replace(store.stats(), reserved_bytes=before.reserved_bytes) == before
    np.testing.assert_array_equal(store.read(ids), frames)
    more = words(30, 7)
    added = store.append(more, sequences[:30] * 0 + 1)
    np.testing.assert_array_equal(store.read(added), more)
    np.testing.assert_array_equal(store.read(ids), frames)
    store.release(ids)
    store.release(added)
    assert store.stats().n_tensors == 0


def test_listed_stacks_are_of_the_moment_of_their_frames():
    store = FrameStore(Layout((2, *FRAME.shape), "uint8"), frame_stack=2, block_frames=4)
    pairs = noise(40, 0).reshape(20, 2, *FRAME.shape)
    stacks = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(40, 2, *FRAME.shape)  # each pair, then turned round
    ids = store.append(stacks)
    assert (ids < 0).any()
    before = store.stats()

    def go_on(store):
        store.release(ids)
        store.append(noise(400, 1).reshape(200, 2, *FRAME.shape))

    store.log.lock = Lock(store, go_on)
    copied = pickle.loads(pickle.dumps(store))
    assert replace(copied.stats(), reserved_bytes=before.reserved_bytes) == before
    np.testing.assert_array_equal(copied.read(ids), stacks)
    copied.release(ids)
    assert copied.stats().n_tensors == 0


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
