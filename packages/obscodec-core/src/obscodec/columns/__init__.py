"""Columns: actions, rewards and flags of all steps, in a byte each.

A column turns numbers into codes and back, bit for bit. It never knows what a number means, nor where an episode ends.
"""

from obscodec.columns.coded_array import CodedArray
from obscodec.columns.column import Column
from obscodec.columns.items import N_WORDS, find_items, swap_row
from obscodec.columns.reader import ColumnReader

__all__ = ["N_WORDS", "CodedArray", "Column", "ColumnReader", "find_items", "swap_row"]
