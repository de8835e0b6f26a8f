"""Frames by id, each stored once, in blocks.

It compares frames, fills blocks and counts references. It never knows what an observation is made of, nor who has an
id, but for the rows of ids that a step writes.
"""

from obscodec.frames.block_coder import BlockCoder
from obscodec.frames.coder_for import new_coder
from obscodec.frames.frame_log import NO_BLOCKS, FrameLog, FullBlocks
from obscodec.frames.kernels.first_use import announce
from obscodec.frames.kernels.stacks import interleave
from obscodec.frames.kernels.staging import NEEDED, ROOM, ROOM_NBYTES, stage_blocks
from obscodec.frames.stack_table import StackTable
from obscodec.frames.step_writer import StepWriter

__all__ = [
    "NEEDED",
    "NO_BLOCKS",
    "ROOM",
    "ROOM_NBYTES",
    "BlockCoder",
    "FrameLog",
    "FullBlocks",
    "StackTable",
    "StepWriter",
    "announce",
    "interleave",
    "new_coder",
    "stage_blocks",
]
