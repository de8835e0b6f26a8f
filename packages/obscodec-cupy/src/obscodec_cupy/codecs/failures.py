"""What the codes mean by which kernels say that a stream or an id is bad."""

from typing import Final

from obscodec import CorruptStream, SlotError

from obscodec_cupy.device.status import EXPLANATIONS

_BAD_ID: Final = 32


def check_failure(word: int) -> None:
    """Raise what kernels that read a store of frames reported.

    Args:
        word: u64, see ``kernels/failure.cuh``; its numbers are those of blocks, or of samples for an id.

    Raises:
        CorruptStream: a block is damaged.
        SlotError: an id, or the place of one, was out of range.

    Example:
        >>> check_failure(0)
    """
    if word == 0:
        return
    number, code = word >> 32 ^ 0xFFFFFFFF, word & 0xFFFFFFFF
    if code == _BAD_ID:
        raise SlotError(f"sample {number} of a batch asks for a tensor that the store does not have")
    raise CorruptStream(f"block {number} can't be decoded: {EXPLANATIONS[code]}")
