"""What SB3 may assign to its arrays: what numpy takes, and nothing that is no number."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obscodec import DTypeError, ShapeError
from obscodec_sb3.assignable import check_assignable

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
