"""Verdicts: what kernels found wrong with the streams and ids that they read, in one word that the host looks at later.

The word is 0 as long as all is well. It keeps the error of the lowest number, of a block or an item, so that it does
not depend on which thread block came first.
"""

from __future__ import annotations

from typing import Final

from obscodec import CorruptStream, SlotError

BAD_ID: Final = 32

EXPLANATIONS: Final = {
    1: "its runs end inside a varint",
    2: "a varint is longer than it needs to be, or than 9 bytes",
    3: "a run reaches beyond the end of the frame",
    4: "it has fewer literals than its runs need",
    16: "it is a patch of a reference frame that does not exist",
    17: "its runs reach beyond its end",
    18: "it holds more than its frames need",
    19: "it is of a version that this store does not have",
    20: "it has fewer frames than are wanted of it",
    33: "it lies outside of its buffer",
    34: "it has 4 GiB or more, which the device does not read",
}


def check(word: int, kind: str) -> None:
    """Raise what a word of verdicts says.

    Args:
        word: u64, as kernels wrote it.
        kind: what their numbers count, ``"block"`` or ``"item"``.

    Raises:
        CorruptStream: a stream is damaged; the number and what is wrong are named.
        SlotError: an id, or an index of an id, was out of range.

    Example:
        >>> check(0, "block")
    """
    if word == 0:
        return
    number, code = word >> 32 ^ 0xFFFFFFFF, word & 0xFFFFFFFF
    if code == BAD_ID:
        raise SlotError(f"sample {number} of a batch asks for an id or an index that the store does not have")
    raise CorruptStream(f"{kind} {number}: {EXPLANATIONS[code]}")
