"""Recorded data as they lie: files and folders of episodes, read one after the other.

This is the one place that knows their layouts. It never knows what becomes of the arrays.
"""

from obscodec.recordings.layouts import ENDINGS, Part, parts_in
from obscodec.recordings.reading import episodes
from obscodec.recordings.stored import Array, told

__all__ = ["ENDINGS", "Array", "Part", "episodes", "parts_in", "told"]
