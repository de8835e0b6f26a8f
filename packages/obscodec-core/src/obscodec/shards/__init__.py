"""Buffers in processes of their own, on one machine or several: owners, which writers fill and learners draw from.

It moves steps and batches between processes, and knows who has what. It never knows how a step is stored.
"""

from obscodec.shards.owner import Owner
from obscodec.shards.shards import Drawn, Shards, Where
from obscodec.shards.writer import Waiting, Writer

__all__ = ["Drawn", "Owner", "Shards", "Waiting", "Where", "Writer"]
