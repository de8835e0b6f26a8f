"""Filters, by examples that their documents show."""

from __future__ import annotations

import numpy as np
import pytest
from obscodec import Layout
from obscodec.codecs import Filter
from obscodec.codecs.formats.bitpack import BitPack
from obscodec.codecs.formats.delta import Delta
from obscodec.codecs.formats.shuffle import Shuffle


def applied(tested: Filter, rows: list[list[int]]) -> list[list[int]]:
    """What the filter makes of rows; undoing it must give them back."""
    taken = np.array(rows, np.uint8)
    given = np.empty((len(rows), tested.target.nbytes), np.uint8)
    tested.apply(taken, given)
    back = np.empty_like(taken)
    tested.undo(given, back)
    assert np.array_equal(back, taken)
    return given.tolist()


def test_shuffle_puts_first_bytes_first() -> None:
    assert applied(Shuffle(Layout((3,), "uint16")), [[1, 2, 3, 4, 5, 6], [0] * 6]) == [[1, 3, 5, 2, 4, 6], [0] * 6]
    assert Shuffle(Layout((3, 5), "float32")).target == Layout((4, 15), "uint8")


def test_shuffle_leaves_bytes_alone() -> None:
    assert applied(Shuffle(Layout((3,), "int8")), [[1, 2, 3]]) == [[1, 2, 3]]


def test_bitpack_begins_with_the_lowest_bit() -> None:
    assert applied(BitPack(Layout((10,), "bool")), [[1, 0, 0, 0, 0, 0, 0, 1, 0, 1]]) == [[0b10000001, 0b10]]
    assert BitPack(Layout((3, 5), "bool")).target == Layout((2,), "uint8")


def test_delta_goes_along_the_first_axis_and_wraps() -> None:
    assert applied(Delta(Layout((3,), "uint8")), [[5, 3, 255], [0, 255, 0]]) == [[5, 254, 252], [0, 255, 1]]
    assert applied(Delta(Layout((2, 2), "uint8")), [[1, 2, 11, 22]]) == [[1, 2, 10, 20]]
    assert applied(Delta(Layout((2,), "uint16")), [[255, 0, 0, 1]]) == [[255, 0, 1, 0]]


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0)])
def test_items_without_neighbours(shape: tuple[int, ...]) -> None:
    layout = Layout(shape, "uint8")
    assert applied(Delta(layout), [[7] * layout.nbytes] * 2) == [[7] * layout.nbytes] * 2
