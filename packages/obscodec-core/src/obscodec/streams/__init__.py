"""Compiled loops that write and read streams: varints, LZ4 blocks, and frames as patches of each other.

They work on memory of the caller, and check what they read. They never know ids, stores or the spec of a codec.
"""

from obscodec.streams.blocks import NO_PATCHES, NO_VERSIONS, copy_frames, read_blocks, read_versions
from obscodec.streams.lz4 import N_HEADS, encode_lz4, index_dictionary
from obscodec.streams.patch import are_equal, encode_patch, first_difference, frame_scratch, runs_bound
from obscodec.streams.reference_frames import MAX_REFERENCES, add_references, encode_block, encode_first
from obscodec.streams.varints import read_varint, write_varint

__all__ = [
    "MAX_REFERENCES",
    "NO_PATCHES",
    "NO_VERSIONS",
    "N_HEADS",
    "add_references",
    "are_equal",
    "copy_frames",
    "encode_block",
    "encode_first",
    "encode_lz4",
    "encode_patch",
    "first_difference",
    "frame_scratch",
    "index_dictionary",
    "read_blocks",
    "read_varint",
    "read_versions",
    "runs_bound",
    "write_varint",
]
