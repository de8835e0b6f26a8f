"""Blocks of frames, each a patch of the one before it."""

from obscodec.codecs.formats.delta_rle.blocks import (
    NO_VERSIONS,
    copy_frames,
    read_blocks,
    read_versions,
)
from obscodec.codecs.formats.delta_rle.patch import (
    are_equal,
    encode_patch,
    frame_room,
    runs_bound,
)
from obscodec.codecs.formats.delta_rle.references import MAX_REFERENCES, encode_block, encode_first
from obscodec.codecs.lz4_kernel import encode_lz4
from obscodec.codecs.statuses import check
from obscodec.codecs.varint import MAX_VARINT_NBYTES
from obscodec.codecs.varint_kernels import write_varint

__all__ = [
    "MAX_REFERENCES",
    "MAX_VARINT_NBYTES",
    "NO_VERSIONS",
    "are_equal",
    "check",
    "copy_frames",
    "encode_block",
    "encode_first",
    "encode_lz4",
    "encode_patch",
    "frame_room",
    "read_blocks",
    "read_versions",
    "runs_bound",
    "write_varint",
]
