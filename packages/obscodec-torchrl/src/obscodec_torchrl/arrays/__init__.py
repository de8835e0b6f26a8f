"""Compressed arrays as torch needs them: strided views, torch's indices, batches that are drawn or written.

They turn indices of torch into ids. They never know samplers, writers or checkpoints.
"""

from obscodec_torchrl.arrays.indexing import steps_of
from obscodec_torchrl.arrays.new_tensors import NewTensors, append_together, interleaved_envs
from obscodec_torchrl.arrays.views import DrawnArray, PartArray, strided_view, strides_of

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
