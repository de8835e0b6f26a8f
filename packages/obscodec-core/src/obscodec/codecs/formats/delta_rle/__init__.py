"""Blocks of frames, each a patch of the one before it."""

from obscodec.codecs.formats.delta_rle.blocks import (
    FEW_FRAMES,
    LEFT_OVER,
    NO_SUCH_REFERENCE,
    OTHER_VERSION,
    check,
    copy_frames,
    first_bytes,
    read_blocks,
    sections,
)
from obscodec.codecs.formats.delta_rle.patch import (
    MAX_VARINT_NBYTES,
    OK,
    apply_patch,
    check_patch,
    encode_patch,
    first_difference,
    frame_room,
    runs_bound,
    write_varint,
)
from obscodec.codecs.formats.delta_rle.reference_frames import MAX_REFERENCES
from obscodec.codecs.formats.delta_rle.references import encode_first

__all__ = [
    "FEW_FRAMES",
    "LEFT_OVER",
    "MAX_REFERENCES",
    "MAX_VARINT_NBYTES",
    "NO_SUCH_REFERENCE",
    "OK",
    "OTHER_VERSION",
    "apply_patch",
    "check",
    "check_patch",
    "copy_frames",
    "encode_first",
    "encode_patch",
    "first_bytes",
    "first_difference",
    "frame_room",
    "read_blocks",
    "runs_bound",
    "sections",
    "write_varint",
]
