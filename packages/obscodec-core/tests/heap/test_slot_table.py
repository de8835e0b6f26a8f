"""SlotTable: what it says of slots, and which of them it saw change."""

from __future__ import annotations

import numpy as np
from obscodec.heap.slot_table import SlotTable


def entries(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(rows, np.uint32)


def filled() -> SlotTable:
    """Five streams in three chunks."""
    table = SlotTable(10)
    table.set(np.array([7, 2, 5, 3]), entries((1, 40, 9), (1, 0, 40), (3, 0, 0), (1, 20, 4)))
    table.set(np.array([0]), entries((2, 2**32 - 1, 2**32 - 1)))
    return table


def test_slots_are_found_where_they_were_set() -> None:
    table = filled()
    expected = [[1, 0, 2, 3, 1], [40, 0, 2**32 - 1, 0, 40], [9, 0, 2**32 - 1, 0, 9]]
    assert table.find(np.array([7, 9, 0, 5, 7])).tolist() == expected
    assert table.holds(np.array([5, 1, 0, 9])).tolist() == [True, False, True, False]  # 5 holds an empty stream
    assert table.held().tolist() == [0, 2, 3, 5, 7]
    assert SlotTable(3).held().tolist() == []


def test_the_slots_of_a_chunk_come_in_the_order_of_their_offsets() -> None:
    assert filled().in_chunk(1).tolist() == [2, 3, 7]
    table = SlotTable(4)
    table.set(np.array([3, 0, 1]), entries((1, 0, 5), (1, 9, 1), (1, 5, 4)))
    assert table.in_chunk(1).tolist() == [3, 1, 0]
    assert table.in_chunk(2).tolist() == []


def test_cleared_slots_hold_nothing() -> None:
    table = filled()
    table.clear(np.array([2, 9, 0]))
    assert table.held().tolist() == [3, 5, 7]
    assert table.find(np.array([2, 0])).tolist() == [[0, 0]] * 3


def test_a_table_that_grows_keeps_its_slots() -> None:
    table = filled()
    before = table.find(np.arange(10))
    table.grow(5000)
    assert table.n_slots == 5000
    np.testing.assert_array_equal(table.find(np.arange(10)), before)
    table.set(np.array([4999]), entries((4, 1, 1)))
    assert table.held().tolist() == [0, 2, 3, 5, 7, 4999]


def test_slots_that_were_never_used_cost_nothing() -> None:
    table = SlotTable(10**9)
    assert table.nbytes == 0
    table.set(np.array([9, 4]), entries((1, 0, 1), (1, 1, 1)))
    assert table.nbytes == 10 * 12
    table.clear(np.array([9]))
    assert table.nbytes == 10 * 12


def test_slots_are_changed_since_the_last_look() -> None:
    table = filled()
    table.watch()
    assert table.changed().tolist() == [0, 2, 3, 5, 7]  # all that hold a stream
    assert table.changed().tolist() == []
    table.set(np.array([8, 1, 8]), entries((1, 0, 1), (1, 1, 1), (1, 2, 1)))
    table.clear(np.array([5]))
    assert table.changed().tolist() == [1, 5, 8]
    assert table.changed().tolist() == []
