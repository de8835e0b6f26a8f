"""How the blocks of a FrameStore are encoded and read.

A stored block is ``varint version``, then its bytes. Version 0 is what every coder can read: patches (``delta-rle``) or
the frames as they are. Others are those of the codec that compressed it further, which learns while it works.
"""

import numpy as np

from obscodec.codecs import BytesCodec, Codec, new_codec
from obscodec.errors import SpecError
from obscodec.frames.block_coder import BlockCoder
from obscodec.frames.codec_coder import CodecCoder
from obscodec.frames.patch_coder import PATCHES, PatchCoder
from obscodec.layout import Layout


def new_coder(spec: str, frame: Layout, block_frames: int) -> BlockCoder[BytesCodec] | BlockCoder[Codec]:
    """The coder that ``spec`` names, for blocks of ``block_frames`` frames of the layout ``frame``.

    Raises:
        SpecError: the spec names no codec, or one that can't stand there.
    """
    block_codec = new_codec(spec, Layout((block_frames, *frame.shape), frame.dtype))
    if block_codec.spec == PATCHES:
        return PatchCoder(None, block_frames, block_codec.bound())
    if not block_codec.spec.startswith(f"{PATCHES}|"):
        return CodecCoder(block_codec)
    tail = new_codec(block_codec.spec.removeprefix(f"{PATCHES}|"), Layout((0,), np.uint8))
    if not isinstance(tail, BytesCodec):
        raise SpecError(f"{spec!r} compresses patches more than once, use one codec behind {PATCHES!r}")
    inner_bound = new_codec(PATCHES, block_codec.layout).bound()
    return PatchCoder(tail, block_frames, inner_bound)
