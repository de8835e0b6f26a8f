"""Run by ``test_allocation_faults.py``: buffers of the core whose allocations fail; prints how many did."""

import sys

import numpy as np
from failing_allocator import at_every_allocation
from obscodec import AutoStore, Field, Layout, RingBuffer, TensorArray
from obscodec.arrays import write_buffer
from obscodec.codecs.formats.images.groups.books import books_from, built_in
from obscodec.runtime import says_memory_error

N_STEPS, N_ENVS, SHAPE = 6, 2, (3, 40, 40)
N_WAITING = 4  # steps that wait in six rows: observations are the next ones of the steps before


class Player:
    """Observations of two environments: stacks of three frames."""

    def __init__(self, dtype: str) -> None:
        self.rng, self.dtype = np.random.default_rng(0), np.dtype(dtype)
        self.frames = self.rng.integers(256, size=(N_ENVS, 3, 40, 40), dtype=np.uint8)

    def step(self) -> np.ndarray:
        new = self.frames[:, -1:].copy()
        new[:, 0, self.rng.integers(40), self.rng.integers(40)] += 1
        self.frames = np.concatenate([self.frames[:, 1:], new], axis=1)
        return self.frames.copy() if self.dtype == np.uint8 else (self.frames / 255).astype(self.dtype)


def check(buffer: RingBuffer, steps: list[dict[str, np.ndarray]], what: str) -> None:
    assert buffer._n_appended == len(steps), what
    found = buffer[:]
    for name in found:
        expected = np.stack([step[name] for step in steps[-N_STEPS:]])
        np.testing.assert_array_equal(found[name], expected, err_msg=what)


def appended(codec: str, dtype: str, decide_after: int | None) -> int:
    """Steps that are appended, each to its end or not at all; samples are right or refused."""
    options = {"codec": codec, "decide_after": decide_after, "block_frames": 4}
    fields = {
        "obs": Field(SHAPE, dtype, **options),
        "next_obs": Field(SHAPE, dtype, shares="obs"),
        "action": Field((), np.int64),
    }
    write_buffer._MAX_NBYTES = 0  # six rows may wait
    buffer, player, steps, n_failed = RingBuffer(N_STEPS, fields, n_envs=N_ENVS), Player(dtype), [], 0
    obs, given = player.step(), {}

    def prepare_one():
        nonlocal obs
        given.update(obs=obs, next_obs=player.step(), action=player.rng.integers(100, size=N_ENVS))
        obs = given["next_obs"]
        return lambda: buffer.append(**given)

    def prepare():
        buffer.stats()  # which stores what waits
        for _ in range(N_WAITING):  # so that the next one finds no room
            prepare_one()()
            steps.append(dict(given))
        return prepare_one()

    for _ in range(3):  # so that all is compiled, and full
        prepare()()
        steps.append(dict(given))
    buffer.sample(64, 0)
    for _ in range(3):
        for error in at_every_allocation(prepare):
            n_failed += bool(error)
            if buffer._n_appended > len(steps):
                steps.append(dict(given))
            check(buffer, steps, error)
        if buffer._n_appended > len(steps):
            steps.append(dict(given))
        check(buffer, steps, "at the end")
    buffer.stats()  # so that samples are decoded
    for error in at_every_allocation(lambda: lambda: buffer.sample(64, 0)):
        n_failed += bool(error)
        check(buffer, steps, error)
    return n_failed


def decided() -> int:
    """Stores that decide while allocations fail: on the same tensors, one after the other."""
    n_failed, player = 0, Player("u1")
    player.frames[:] = 0  # fast codecs suffice: with those for images, all of it takes many minutes
    tensors = np.concatenate([player.step() for _ in range(20)])
    store = AutoStore(Layout(SHAPE, np.uint8), decide_after=30)
    array = TensorArray.zeros((40,), store)
    array[:] = tensors  # compiles
    stores = []

    def prepare():
        array = TensorArray.zeros((40,), AutoStore(Layout(SHAPE, np.uint8), decide_after=30))
        array[:28] = tensors[:28]
        stores.append(array)
        return lambda: array.__setitem__(slice(28, 34), tensors[28:34])

    for error in at_every_allocation(prepare, step=7):
        n_failed += bool(error)
        array = stores.pop()
        found = array[:]
        np.testing.assert_array_equal(found[:28], tensors[:28], err_msg=error)
        assert not found[28:34].any() or (found[28:34] == tensors[28:34]).all(), error
        array[28:] = tensors[28:]
        np.testing.assert_array_equal(array[:], tensors, err_msg=error)
        array.clear()
        assert array.store.stats().n_tensors == 0, error
    return n_failed


def new_books() -> int:
    """Books of pred that are made after a training; stores do without them if there is no memory."""
    books, made = built_in(), []
    make = says_memory_error(lambda: made.append(books_from(books.lengths, books.classes)))
    n_failed = sum(map(bool, at_every_allocation(lambda: make)))
    assert all(of.dictionary() == books.dictionary() and (of.codes == books.codes).all() for of in made)
    return n_failed


if __name__ == "__main__":
    kind = sys.argv[1]
    kinds = {
        "delta-rle": lambda: appended("delta-rle", "u1", 8),
        "delta-rle|zstd:3": lambda: appended("delta-rle|zstd:3", "u1", 8),
        "zstd:1": lambda: appended("zstd:1", "u1", 8),
        "pred": lambda: appended("pred", "u1", 8),
        "palette": lambda: appended("palette", "u1", 8),
        "undecided": lambda: appended("auto", "u1", 100_000),
        "floats": lambda: appended("delta-rle", "f4", 8),
        "decided": decided,
        "books": new_books,
    }
    print(kinds[kind]())
