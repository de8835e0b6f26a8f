"""A RingBuffer on a device gives what one on the CPU gives."""

import re

import numpy as np
import pytest
from obscodec import Field, Layout, RingBuffer, ShapeError
from obscodec.buffers import BufferOptions
from obscodec_cupy.device import opened
from stores_in_pairs import walk

FRAME = Layout((20, 20), np.uint8)


def rings(cuda: str, n_envs: int, heap: str = "device") -> list[RingBuffer]:
    """One on the CPU, and one on the device."""
    made = []
    for place in ({}, {"buffer_device": cuda, "heap": heap}):
        fields = BufferOptions(codec={"frame": "delta-rle"}, **place).fields_of(
            {"frame": FRAME, "reward": Layout((), np.float32), "done": Layout((), bool)}
        )
        fields["following"] = Field(FRAME.shape, FRAME.dtype, shares="frame")
        made.append(RingBuffer(70, fields, n_envs, stack={"frame": 3}, pad="zeros", episode_end="done"))
    return made


@pytest.mark.parametrize(
    ("n_envs", "frames_are", "heap"),
    [
        (1, "on the CPU", "device"),
        (1, "there", "pinned"),
        (1, "both", "device"),
        (2, "on the CPU", "pinned"),
        (2, "there", "device"),
        (2, "both", "pinned"),
    ],
)
def test_a_ring_on_a_device_gives_what_one_on_the_cpu_gives(cuda, n_envs, frames_are, heap):
    there = opened.device(cuda)
    buffers = rings(cuda, n_envs, heap)
    played = walk(301 * n_envs, FRAME).reshape(301, n_envs, *FRAME.shape)
    for i in range(300):
        step = {"reward": np.full(n_envs, i), "done": np.full(n_envs, i % 40 == 39)}
        frames = {"frame": played[i], "following": played[i + 1]}
        if n_envs == 1:  # the axis may be missing
            frames = {name: frame[0] for name, frame in frames.items()}
        buffers[0].append(**step, **frames)
        names = {"on the CPU": [], "there": ["frame", "following"], "both": ["following"]}[frames_are]
        buffers[1].append(**step, **frames | {name: there.upload(frames[name]) for name in names})
        if i % 25 == 24:
            expected, found = (buffer.sample(9, i) for buffer in buffers)
            for name, array in expected.items():
                given = found[name] if isinstance(found[name], np.ndarray) else there.download(found[name])
                np.testing.assert_array_equal(given, array, strict=True)
            assert not isinstance(found["frame"], np.ndarray)
    assert there.download(buffers[1][-1]["frame"]).tobytes() == buffers[0][-1]["frame"].tobytes()


def test_a_refused_step_changes_nothing(cuda):
    there = opened.device(cuda)
    _, buffer = rings(cuda, 2)
    rest = {"reward": np.zeros(2), "done": np.zeros(2, bool)}
    frames = there.upload(walk(2, FRAME))
    buffer.append(**rest, frame=frames, following=frames)
    text = "field 'following': expected shape (2, 20, 20), got (1, 20, 20)"
    with pytest.raises(ShapeError, match=re.escape(text)):
        buffer.append(**rest, frame=frames, following=frames[:1])
    assert len(buffer) == 1
