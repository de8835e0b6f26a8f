"""The coder of the blocks of a FrameStore, by the spec of its codec."""

import numpy as np

from obscodec.codecs import BytesCodec, new_codec
from obscodec.errors import SpecError
from obscodec.frames.block_coder import Coder
from obscodec.frames.codec_coder import CodecCoder
from obscodec.frames.patch_coder import PATCHES, PatchCoder
from obscodec.layout import Layout


def new_coder(spec: str, frame: Layout, block_frames: int) -> Coder:
    """The coder that ``spec`` names, for blocks of ``block_frames`` frames of the layout ``frame``.

    Raises:
        SpecError: the spec names no codec, or compresses patches more than once.
    """
    block_codec = new_codec(spec, Layout((block_frames, *frame.shape), frame.dtype))
    first, _, rest = block_codec.spec.partition("|")
    if first != PATCHES:
        return CodecCoder(block_codec)
    tail = new_codec(rest, Layout((0,), np.uint8)) if rest else None
    if not (tail is None or isinstance(tail, BytesCodec)):
        raise SpecError(f"{spec!r} compresses patches more than once, use one codec behind {PATCHES!r}")
    return PatchCoder(tail, new_codec(PATCHES, block_codec.layout).read_bound(), block_codec.layout.nbytes)
