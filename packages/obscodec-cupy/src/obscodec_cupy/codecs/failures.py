"""What the codes mean by which kernels say that a stream or an id is bad."""

from typing import Final

from obscodec import CorruptStream, SlotError

from obscodec_cupy.codecs import rle

_FIRST_OF_RLE: Final = 48
# As in kernels/errors.cuh, and up to 20 as in patch.py and blocks.py of obscodec/codecs/formats/delta_rle; tests
# compare them.
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
    34: "it has 4 GiB or more, which are not read on a device",
    **{_FIRST_OF_RLE + code: explanation for code, explanation in rle.EXPLANATIONS.items()},
}
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
