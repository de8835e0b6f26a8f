"""Frames by id, each stored once, in blocks."""

from obscodec.frames.block_coder import BlockCoder
from obscodec.frames.coder_for import new_coder
from obscodec.frames.device_frames import DeviceFrames
from obscodec.frames.frame_log import MIN_BLOCKS, Blocks
from obscodec.frames.kernels.first_use import announce
from obscodec.frames.kernels.stacks import expand_stacks, interleave
from obscodec.frames.open_blocks import OpenBlocks
from obscodec.frames.stack_table import ListedStacks
from obscodec.frames.transfer import adopt

__all__ = [
    "MIN_BLOCKS",
    "BlockCoder",
    "Blocks",
    "DeviceFrames",
    "ListedStacks",
    "OpenBlocks",
    "adopt",
    "announce",
    "expand_stacks",
    "interleave",
    "new_coder",
]
