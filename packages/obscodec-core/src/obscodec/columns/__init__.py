"""Columns: arrays of what an environment says at each step, such as rewards, actions and flags."""

from obscodec.columns.column import Column
from obscodec.columns.items import N_WORDS, find_items, swap_row
from obscodec.columns.reader import ColumnReader

__all__ = ["N_WORDS", "Column", "ColumnReader", "find_items", "swap_row"]
