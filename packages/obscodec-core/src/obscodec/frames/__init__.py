"""Frames by id, each stored once, in blocks.

It compares frames, fills blocks and counts references. It never knows what an observation is made of, nor who has an
id, but for the rows of ids and of columns that a step writes.
"""

from obscodec.frames.coder_for import new_coder
from obscodec.frames.frame_log import FrameLog, LogClosed, Newest
from obscodec.frames.kernels.staging import NEEDED, ROOM, ROOM_NBYTES, stage_blocks
from obscodec.frames.kernels.steps import MAX_COLUMNS
from obscodec.frames.portion import Portion, Received, Sent
from obscodec.frames.step_writer import HasLog, StepWriter
from obscodec.frames.watched_log import Copied, WatchedLog

__all__ = [
    "MAX_COLUMNS",
    "NEEDED",
    "ROOM",
    "ROOM_NBYTES",
    "Copied",
    "FrameLog",
    "HasLog",
    "LogClosed",
    "Newest",
    "Portion",
    "Received",
    "Sent",
    "StepWriter",
    "WatchedLog",
    "new_coder",
    "stage_blocks",
]
