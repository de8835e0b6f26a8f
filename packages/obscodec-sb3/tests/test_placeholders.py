"""Arrays that SB3 allocates without memory."""

import re

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from obscodec import DTypeError, Layout, ShapeError, TensorArray
from obscodec_sb3 import CompressedDictReplayBuffer, compressed
from obscodec_sb3.assignable import check_assignable
from obscodec_sb3.placeholders import placeholder_layouts
from stable_baselines3.common.buffers import ReplayBuffer

IMAGE = spaces.Box(0, 255, (40, 40), np.uint8)


@pytest.mark.parametrize("shape", [(40, 40), (3,), ()])
def test_a_placeholder_tells_the_layout_of_its_items(shape):
    placeholder = np.zeros((10, 2, 0, *shape), np.uint8)
    assert placeholder_layouts({"obs": placeholder}, {"obs": shape}) == {"obs": Layout(shape, np.uint8)}
    assert placeholder_layouts({"obs": placeholder}, {"other": shape}) is None
    assert placeholder_layouts({"obs": placeholder}, {"obs": (0, *shape)}) is None
    assert placeholder_layouts({"obs": "text"}, {"obs": shape}) is None


def test_compressed_arrays_take_the_places_of_placeholders():
    space = spaces.Dict(image=IMAGE, vector=spaces.Box(-1, 1, (3,)))
    buffer = CompressedDictReplayBuffer(20, space, spaces.Discrete(2), "cpu", n_envs=2)
    for name, kind, shape in (("image", TensorArray, (40, 40)), ("vector", np.ndarray, (3,))):
        for array in (buffer.observations[name], buffer.next_observations[name]):
            assert isinstance(array, kind)
            assert (array.shape, array.dtype) == ((10, 2, *shape), space[name].dtype)


class WithMean(ReplayBuffer):
    """A buffer with an array of observations that is no ``[buffer_size, n_envs, *obs_shape]``."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.mean = np.zeros((1, *self.obs_shape), np.float32)


def test_a_placeholder_of_another_shape_is_refused():
    text = r"^mean is float32 \(1, 0, 40, 40\), expected \[buffer_size, n_envs, \*obs_shape\]$"
    with pytest.raises(TypeError, match=text):
        compressed(WithMean)(20, IMAGE, spaces.Discrete(2), "cpu", n_envs=2)


SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(SHAPES, SHAPES, st.booleans())
def test_what_numpy_assigns_can_be_assigned(given_shape, shape, as_list):
    value = np.zeros(given_shape)
    try:
        np.empty(shape)[...] = value
    except ValueError:
        text = f"expected rewards of shape {shape}, got {given_shape}"
        with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
            check_assignable("rewards", value, np.empty((5, *shape)))
    else:
        check_assignable("rewards", value.tolist() if as_list and value.size else value, np.empty((5, *shape)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "actions must be numbers that int64 can hold, got 'a'"),
        (None, "actions must be numbers that int64 can hold, got None"),
        ([2**70, 1], "actions must be numbers that int64 can hold, got [1180591620717411303424, 1]"),
        ([[1, 2], [3]], "expected an array, or numbers in lists of equal lengths, got [[1, 2], [3]]"),
    ],
)
def test_what_is_no_number_is_refused(value, text):
    array = np.zeros((5, 2), np.int64)
    with pytest.raises(DTypeError, match=f"^{re.escape(text)}$"):
        check_assignable("actions", value, array)
    assert not array.any()
