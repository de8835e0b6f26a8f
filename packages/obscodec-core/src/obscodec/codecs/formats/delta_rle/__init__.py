"""Blocks of frames, each a patch of the one before it."""

from obscodec.codecs.formats.delta_rle.blocks import (
    NO_PATCHES,
    NO_VERSIONS,
    copy_frames,
    read_blocks,
    read_versions,
    sections,
)
from obscodec.codecs.formats.delta_rle.patch import (
    apply_patch,
    are_equal,
    check_patch,
    encode_patch,
    frame_room,
    runs_bound,
)
from obscodec.codecs.formats.delta_rle.references import MAX_REFERENCES, encode_block, encode_first
from obscodec.codecs.lz4_kernel import encode_lz4
from obscodec.codecs.statuses import FEW_FRAMES, LARGE, LEFT_OVER, NO_SUCH_REFERENCE, OK, OTHER_VERSION, check
from obscodec.codecs.varint import MAX_VARINT_NBYTES
from obscodec.codecs.varint_kernels import write_varint

__all__ = [
    "FEW_FRAMES",
    "LARGE",
    "LEFT_OVER",
    "MAX_REFERENCES",
    "MAX_VARINT_NBYTES",
    "NO_PATCHES",
    "NO_SUCH_REFERENCE",
    "NO_VERSIONS",
    "OK",
    "OTHER_VERSION",
    "apply_patch",
    "are_equal",
    "check",
    "check_patch",
    "copy_frames",
    "encode_block",
    "encode_first",
    "encode_lz4",
    "encode_patch",
    "frame_room",
    "read_blocks",
    "read_versions",
    "runs_bound",
    "sections",
    "write_varint",
]
