"""A pickle is read by the version that wrote it, and refused by others before they look into it."""

import pickle
import re

import numpy as np
import obscodec
import pytest
from obscodec import Field, FrameStore, Layout, Prioritized, RingBuffer, SnapshotError, TensorArray
from obscodec.state import versioned

LAYOUT = Layout((12, 12), np.uint8)
MESSAGE = (
    "a pickle was written by obscodec 0.0.7, and here is {here}: only the same version reads a pickle. Unpickle it "
    "where that version is installed, save it there with obscodec.save, or with the method save of a buffer, and load "
    "that here with load, which reads what every earlier version has saved"
)


def ring():
    buffer = RingBuffer(20, {"x": Field(LAYOUT.shape, np.uint8, "raw"), "n": Field((), np.int64)})
    buffer.append(x=np.ones(LAYOUT.shape, np.uint8), n=3)
    return buffer


MADE = {
    "ring": ring,
    "priorities": lambda: Prioritized(20),
    "store": lambda: FrameStore(LAYOUT),
    "auto store": lambda: obscodec.AutoStore(LAYOUT),
    "array": lambda: TensorArray.zeros((3,), FrameStore(LAYOUT)),
}


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", MADE)
def test_another_version_is_refused(name, protocol, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(obscodec, "__version__", "0.0.7")
        pickled = pickle.dumps(MADE[name](), protocol)
        assert type(pickle.loads(pickled)) is type(MADE[name]())
    with pytest.raises(SnapshotError, match=f"^{re.escape(MESSAGE.format(here=obscodec.__version__))}$"):
        pickle.loads(pickled)


class Renamed:
    """What an earlier version had, and this one has not."""

    def __init__(self):
        self.seen = []

    def __reduce_ex__(self, protocol):
        return versioned(super().__reduce_ex__(protocol))


def test_nothing_is_read_before_the_version(monkeypatch):
    """An earlier version may have had another class: the text says what to do all the same."""
    with monkeypatch.context() as earlier:
        earlier.setattr(obscodec, "__version__", "0.0.7")
        pickled = pickle.dumps(Renamed())
    monkeypatch.delitem(globals(), "Renamed")
    with pytest.raises(SnapshotError, match=r"a pickle was written by obscodec 0\.0\.7"):
        pickle.loads(pickled)


def test_a_pickle_of_many_has_each_version_once():
    pickled = pickle.dumps([make() for make in MADE.values()])
    assert pickled.count(obscodec.__version__.encode()) == 1
