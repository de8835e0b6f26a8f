"""The options of compressed buffers as types, so that type checkers and editors know them."""

import os

from obscodec.buffers import BufferKeywords


class CompressedKeywords(BufferKeywords[str], total=False):
    """What a compressed buffer takes in addition to the arguments of SB3's buffer."""

    threads: int | None
    spill: str | os.PathLike[str] | None


class ReplayKeywords(CompressedKeywords, total=False):
    """What a replay buffer takes that samples as SB3 does."""

    prefetch: bool
