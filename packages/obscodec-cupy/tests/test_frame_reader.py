"""A store on the device equals one on the CPU: the same ids for the same program, and the same tensors."""

from __future__ import annotations

import numpy as np
import pytest
from atari_frames import frames
from obscodec import FrameStore, Layout
from obscodec_cupy import backend

FRAME = Layout((84, 84), np.uint8)


def read(store, ids) -> np.ndarray:
    """What the device reads."""
    at = backend.device(store.device)
    out = at.empty((len(ids), *store.layout.shape), store.layout.dtype)
    store.read_into(np.asarray(ids, np.int64), out)
    return at.download(out)


@pytest.mark.parametrize("heap", ["device", "pinned"])
@pytest.mark.parametrize("codec", ["delta-rle", "raw"])
def test_frames_are_read_where_they_are(cuda, codec, heap):
    played = frames("MsPacman", 320, 0)[:40]
    store, on_cpu = FrameStore(FRAME, codec=codec, device=cuda, heap=heap), FrameStore(FRAME, codec=codec)
    for first in range(0, 40, 7):
        ids = store.append(played[first : first + 7])
        np.testing.assert_array_equal(ids, on_cpu.append(played[first : first + 7]))
        np.testing.assert_array_equal(read(store, ids), played[first : first + 7])
        np.testing.assert_array_equal(store.read(ids), played[first : first + 7])
