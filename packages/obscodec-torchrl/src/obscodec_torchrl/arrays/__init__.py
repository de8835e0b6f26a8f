"""Compressed arrays as torch needs them: strided views, torch's indices, batches that are drawn or written.

They turn indices of torch into ids. They never know samplers, writers or checkpoints.
"""

from obscodec_torchrl.arrays.drawn_array import DrawnArray
from obscodec_torchrl.arrays.geometry import strided_view, strides_of
from obscodec_torchrl.arrays.indexing import steps_of
from obscodec_torchrl.arrays.interleaved_envs import interleaved_envs
from obscodec_torchrl.arrays.new_tensors import NewTensors, append_together
from obscodec_torchrl.arrays.part_array import PartArray

__all__ = [
    "DrawnArray",
    "NewTensors",
    "PartArray",
    "append_together",
    "interleaved_envs",
    "steps_of",
    "strided_view",
    "strides_of",
]
