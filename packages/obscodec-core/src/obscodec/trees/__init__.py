"""States as JSON values and arrays, for files and messages.

It never knows what a state means.
"""

from obscodec.trees.array_file import format_arrays, parse_arrays
from obscodec.trees.tree import Arrays, Tree, flatten, unflatten

__all__ = ["Arrays", "Tree", "flatten", "format_arrays", "parse_arrays", "unflatten"]
