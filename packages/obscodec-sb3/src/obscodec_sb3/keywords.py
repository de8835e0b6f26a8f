"""The options of compressed buffers as types, so that type checkers and editors know them."""

import os

from obscodec.buffers import BufferKeywords


class CompressedKeywords(BufferKeywords[str], total=False):
    """What a compressed buffer takes in addition to the arguments of SB3's buffer."""

    threads: int | None
    spill: str | os.PathLike[str] | None


class PrefetchKeywords(CompressedKeywords, total=False):
    """What a buffer takes that gives batches as SB3's own do."""

    prefetch: bool
