"""Settings that stored data depend on can't be assigned, and say what to do instead; copies have them, too."""

import copy
import pickle
import re

import numpy as np
import pytest
from obscodec import AutoStore, Field, FrameStore, Layout, Mixture, Prioritized, RingBuffer, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.fixed import Fixed
from obscodec.heap import SlotHeap
from obscodec.stores.narrow.find_narrow import find_narrow
from obscodec.stores.narrow.narrow_store import NarrowStore

FRAME, STACK = Layout((8, 8), np.uint8), Layout((4, 8, 8), np.uint8)
FLOATS = Layout((8, 8), np.float32)


def ring():
    fields = {"obs": Field((8, 8), np.uint8), "done": Field((), bool), "valid": Field((), bool)}
    return RingBuffer(30, fields, 2, {"obs": 3}, "done", pad="edge", mask="valid")


def narrow_store():
    narrow = find_narrow(np.arange(64, dtype=np.float32).reshape(1, 8, 8) / 2)
    return NarrowStore(narrow, FrameStore(Layout((8, 8), narrow.code_dtype)), FrameStore(FLOATS))


MADE = {
    "RingBuffer": (ring, "capacity fields n_envs stack episode_end pad mask max_bytes spill threads"),
    "Mixture": (lambda: Mixture({ring(): 1}), "buffers shares"),
    "Prioritized": (lambda: Prioritized(30), "capacity alpha eps"),
    "FrameStore": (
        lambda: FrameStore(STACK, frame_stack=4),
        "layout device block_frames frame_stack codec recent first_id max_bytes heap",
    ),
    "AutoStore": (lambda: AutoStore(FRAME), "layout device options"),
    "NarrowStore": (narrow_store, "layout device narrow codes wide"),
    "TensorArray": (lambda: TensorArray.zeros((3,), FrameStore(FRAME)), "store shape dtype layout"),
    "WriteBuffer": (lambda: WriteBuffer(FrameStore(FRAME), 2), "store n_envs min_rows row_shape dtype"),
    "SlotHeap": (lambda: SlotHeap(9), "max_bytes"),
}
CASES = [(kind, name) for kind, (_, names) in MADE.items() for name in names.split()]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_setting_stays(kind, name):
    made = MADE[kind][0]()
    before = getattr(made, name)
    with pytest.raises(AttributeError) as raised:
        setattr(made, name, 900)
    if isinstance(vars(type(made)).get(name, Fixed("")), Fixed):  # else it is a property, such as the shape
        assert str(raised.value).startswith(f"{name} of a {kind} can't be changed, it is ")
        assert re.search(r": (make another|with_envs makes a buffer|resized makes a buffer) ", str(raised.value))
        with pytest.raises(AttributeError, match=rf"^{name} of a {kind} can't be deleted$"):
            delattr(made, name)
    assert getattr(made, name) == before


@pytest.mark.parametrize("rebuild", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_the_settings_and_keep_them(rebuild):
    made = rebuild(ring())
    assert (made.capacity, made.n_envs, dict(made.stack), made.pad) == (30, 2, {"obs": 3}, "edge")
    with pytest.raises(
        AttributeError, match=r"^capacity of a RingBuffer can't be changed, it is 30: resized makes a b"
    ):
        made.capacity = 900


def test_the_mappings_of_a_buffer_are_read_only():
    made = ring()
    for mapping in (made.stack, made.fields):
        with pytest.raises(TypeError):
            mapping["obs"] = 9
