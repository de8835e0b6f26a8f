"""What stores say of calls that they refuse; StoreContract has the laws."""

import re

import numpy as np
import pytest
from obscodec import AutoStore, DTypeError, FrameStack, FrameStore, Layout, ShapeError, SlotError
from obscodec.stores import Narrow, Store
from obscodec.stores.narrow.narrow_store import NarrowStore

FRAME, STACK = Layout((6, 5), np.uint8), Layout((4, 6, 5), np.uint8)
PIXELS = Narrow(np.dtype(np.float32), 8, (("/", 255),), np.dtype(np.float32))


def narrow_store() -> NarrowStore:
    layouts = FRAME, Layout(FRAME.shape, np.float32)
    return NarrowStore(PIXELS, *(FrameStore(layout, codec="zstd:1", block_frames=1) for layout in layouts))


STORES = {
    "numbers": lambda: FrameStore(Layout((), np.uint8)),
    "frames": lambda: FrameStore(FRAME),
    "stacks": lambda: FrameStore(STACK, frame_stack=4),
    "stacks of the last axis": lambda: FrameStore(Layout((6, 5, 4), np.uint8), frame_stack=FrameStack(4, axis=-1)),
    "undecided": lambda: AutoStore(FRAME),
    "decided": lambda: AutoStore(FRAME, decide_after=4),
    "narrow": narrow_store,
}
NO_CAST = "convert the array, nothing is cast here"
OR_TOO_OFTEN = ", or is released more often than it was given out"
TOO_OFTEN = f"is of no frame in this store{OR_TOO_OFTEN}"
OF_CODES = "ids of narrow tensors are twice those among the codes: id 4 is of no frame in this store"
OF_WIDE = "ids of wide tensors are twice those among the wide ones, plus 1: id 2 is of no frame in this store"
A_FRAME, A_STACK = (np.ones((2, *layout.shape), np.uint8) for layout in (FRAME, STACK))
CALLS = [
    ("numbers", "append", (np.array(3, np.uint8),), ShapeError, "items have shape (n), got ()"),
    ("frames", "release", ([1000],), SlotError, f"id 1000 {TOO_OFTEN}"),
    ("frames", "release", ([-1],), SlotError, f"id -1 {TOO_OFTEN}"),
    ("frames", "read", ([1000],), SlotError, "id 1000 is of no frame in this store"),
    ("frames", "read", ([-5],), SlotError, "id -5 is of no frame in this store"),
    ("frames", "read", ([2**40],), SlotError, f"id {2**40} is of no frame in this store"),
    ("frames", "read", ([[0]],), ShapeError, "ids have shape (n,), got (1, 1)"),
    ("frames", "read", ([0], np.empty((2, 6, 5), np.uint8)), ShapeError, "out has shape (1, 6, 5), got (2, 6, 5)"),
    ("frames", "read", ([0], np.empty((1, 6, 5), np.int8)), DTypeError, "out has dtype uint8, got int8"),
    ("frames", "read", ([0.5],), SlotError, "ids are integers, got float64"),
    ("frames", "append", (A_FRAME[:, 1:],), ShapeError, "items have shape (n, 6, 5), got (2, 5, 5)"),
    ("frames", "append", (A_FRAME.astype("i1"),), DTypeError, f"items have dtype uint8, got int8: {NO_CAST}"),
    ("frames", "append", (A_FRAME, [0, 1, 2]), ShapeError, "2 tensors have 2 sequences or one for all, got (3,)"),
    ("frames", "append", (A_FRAME, [0, -1]), ShapeError, "sequences are numbers from 0 on, got -1"),
    ("stacks", "read", ([10**6],), SlotError, "id 1000000 is of no stack in this store"),
    ("stacks", "release", ([0, 10**6],), SlotError, "id 1000000 is of no stack in this store"),
    ("stacks", "read", ([0, 1],), SlotError, "id 1 is of no stack in this store"),
    ("stacks", "release", ([3],), SlotError, "id 3 is of no stack in this store"),
    ("stacks", "append", (A_STACK[:, 1:],), ShapeError, "items have shape (n, 4, 6, 5), got (2, 3, 6, 5)"),
    ("stacks of the last axis", "append", (A_STACK,), ShapeError, "items have shape (n, 6, 5, 4), got (2, 4, 6, 5)"),
    ("undecided", "append", (A_STACK,), ShapeError, "items have shape (n, 6, 5), got (2, 4, 6, 5)"),
    ("undecided", "append", (A_FRAME.astype("f4"),), DTypeError, f"items have dtype uint8, got float32: {NO_CAST}"),
    ("undecided", "read", ([100_000],), SlotError, "id 100000 is of no tensor in this store"),
    ("undecided", "release", ([100_000],), SlotError, "id 100000 is of no tensor in this store"),
    ("decided", "read", ([100_000],), SlotError, "id 100000 is of no frame in this store"),
    ("decided", "release", ([100_000],), SlotError, f"id 100000 {TOO_OFTEN}"),
    ("narrow", "append", (A_FRAME[0],), ShapeError, "items have shape (n, 6, 5), got (6, 5)"),
    ("narrow", "append", (A_FRAME,), DTypeError, f"items have dtype float32, got uint8: {NO_CAST}"),
    ("narrow", "read", ([2, 8],), SlotError, OF_CODES),
    ("narrow", "read", ([2, 5],), SlotError, OF_WIDE),
    ("narrow", "release", ([2, 8, 3],), SlotError, f"{OF_CODES}{OR_TOO_OFTEN}"),
    ("narrow", "release", ([2, 5],), SlotError, f"{OF_WIDE}{OR_TOO_OFTEN}"),
    ("narrow", "release", ([2, 3, 3],), SlotError, f"{OF_WIDE.replace('id 2', 'id 1')}{OR_TOO_OFTEN}"),
]


@pytest.mark.parametrize(("kind", "call", "arguments", "error", "text"), CALLS)
def test_a_refused_call_changes_nothing(kind, call, arguments, error, text):
    store: Store = STORES[kind]()
    tensors = np.random.default_rng(0).integers(1, 256, size=(4, *store.layout.shape), dtype=np.uint8)
    if kind == "narrow":  # three tensors, and a wide one
        tensors = tensors.astype(np.float32) / 255
        tensors[1] += np.float32(1e-3)
    ids = store.append(tensors)
    before = store.stats()
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        getattr(store, call)(*arguments)
    after = store.stats()
    assert (after.n_tensors, after.live_bytes) == (before.n_tensors, before.live_bytes)
    np.testing.assert_array_equal(store.read(ids), tensors)
    store.release(ids)
    assert store.stats().n_tensors == 0
