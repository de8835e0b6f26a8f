"""Run by ``test_allocation_faults.py``: buffers of the core whose allocations fail; prints how many did."""

import sys

import numpy as np
from appending import DEPTH, Appending, Player
from failing_allocator import at_every_allocation, choose_in_the_caller
from obscodec import AutoStore, Layout, TensorArray
from obscodec.arrays import write_buffer
from obscodec.codecs.formats.images.groups.books import books_from, built_in
from obscodec.runtime import says_memory_error

SHAPE = DEPTH, 40, 40


def appended(codec: str, dtype: str, decide_after: int | None) -> int:
    """Steps that are appended, each to its end or not at all; samples are right or refused."""
    write_buffer._MAX_NBYTES = 0  # six rows may wait
    player, n_failed = Player(0, dtype, side=40), 0
    appending = Appending(player, 6, codec=codec, decide_after=decide_after, block_frames=4)
    for _ in range(3):  # so that all is compiled, and full
        appending.prepare()()
        appending.check("before")
    appending.buffer.sample(64, 0)
    for _ in range(3):
        for error in at_every_allocation(appending.prepare):
            n_failed += bool(error)
            appending.check(error)
        appending.check("at the end")
    appending.buffer.stats()  # so that samples are decoded
    for error in at_every_allocation(lambda: lambda: appending.buffer.sample(64, 0)):
        n_failed += bool(error)
        appending.check(error)
    return n_failed


def decided() -> int:
    """Stores that decide while allocations fail: on the same tensors, one after the other."""
    n_failed, player = 0, Player(0, side=40, p_new=0)  # fast codecs suffice: with those for images, it takes minutes
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
    choose_in_the_caller()
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
