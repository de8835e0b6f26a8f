"""Lossless image and video codecs that textured images are compared with, one thread each."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from typing import Any

import numpy as np
import zstandard
from textured_frames import BLOCK_FRAMES, Frame

_ZSTD_WINDOW_LOG = 23  # as much as a block of 16 colour frames has


@dataclass(frozen=True)
class Peer:
    """A codec.

    Attributes:
        name: with its options.
        block_frames: how many frames it encodes together.
        encode: the streams of a block ``u8[block_frames, height, width, 3]``, without the last axis if it is grey.
        decode: a block from its streams, and from what has its shape.
    """

    name: str
    block_frames: int
    encode: Callable[[Frame], list[bytes]]
    decode: Callable[[list[bytes], Frame], Frame]


def peers() -> list[Peer]:
    """All of them. Each imports its package when it is called first."""
    return [
        _still("WebP lossless", _webp, _from_webp),
        _still("PNG", _png, _from_png),
        _still("JPEG XL e7", _jpegxl, _from_jpegxl),
        _still("JPEG-LS", _jpegls, _from_jpegls),
        _still("QOI", _qoi, _from_qoi),
        Peer("FFV1", BLOCK_FRAMES, _ffv1, _from_ffv1),
        _zstd(3, 1),
        _zstd(3, BLOCK_FRAMES),
        _zstd(19, BLOCK_FRAMES),
    ]


def _still(name: str, encode: Callable[[Frame], bytes], decode: Callable[[bytes], Any]) -> Peer:
    """A codec of single images, which may have three equal colours instead of grey."""

    def from_streams(streams: list[bytes], like: Frame) -> Frame:
        decoded = np.asarray(decode(streams[0]))
        return decoded[None, ..., 0] if decoded.ndim == like.ndim else decoded[None]

    return Peer(name, 1, lambda block: [encode(block[0])], from_streams)


def _zstd(level: int, block_frames: int) -> Peer:
    """Raw blocks; matches reach back over all of a block."""
    parameters = zstandard.ZstdCompressionParameters.from_level(level, window_log=_ZSTD_WINDOW_LOG)
    compressor, decompressor = zstandard.ZstdCompressor(compression_params=parameters), zstandard.ZstdDecompressor()

    def from_streams(streams: list[bytes], like: Frame) -> Frame:
        return np.frombuffer(decompressor.decompress(streams[0]), np.uint8).reshape(like.shape)

    return Peer(
        f"zstd:{level} on raw blocks", block_frames, lambda block: [compressor.compress(block.data)], from_streams
    )


def _in_colour(frame: Frame) -> Frame:
    return frame if frame.ndim == 3 else np.repeat(frame[..., None], 3, axis=-1)


def _webp(frame: Frame) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.webp_encode(_in_colour(frame), level=75, lossless=True, method=4))


def _from_webp(stream: bytes) -> Any:
    import imagecodecs

    return imagecodecs.webp_decode(stream)[..., :3]


def _png(frame: Frame) -> bytes:
    from PIL import Image

    file = BytesIO()
    Image.fromarray(frame).save(file, "png")
    return file.getvalue()


def _from_png(stream: bytes) -> Any:
    from PIL import Image

    return Image.open(BytesIO(stream))


def _jpegxl(frame: Frame) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.jpegxl_encode(frame, lossless=True, effort=7, numthreads=1))


def _from_jpegxl(stream: bytes) -> Any:
    import imagecodecs

    return imagecodecs.jpegxl_decode(stream, numthreads=1)


def _jpegls(frame: Frame) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.jpegls_encode(frame))


def _from_jpegls(stream: bytes) -> Any:
    import imagecodecs

    return imagecodecs.jpegls_decode(stream)


def _qoi(frame: Frame) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.qoi_encode(_in_colour(frame)))


def _from_qoi(stream: bytes) -> Any:
    import imagecodecs

    return imagecodecs.qoi_decode(stream)


def _ffv1(block: Frame) -> list[bytes]:
    """The parameters, then a packet for each frame; contexts are kept from frame to frame."""
    import av

    grey = block.ndim == 3
    encoder = _codec_context("w", block)
    encoder.time_base, encoder.gop_size = Fraction(1, 25), len(block)
    encoder.options = {"coder": "1", "context": "1"}
    encoder.open()
    packets = []
    for at, image in enumerate(block):
        frame = av.VideoFrame.from_ndarray(image, format="gray" if grey else "rgb24")
        frame = frame if grey else frame.reformat(format="bgr0")
        frame.pts = at
        packets += encoder.encode(frame)
    packets += encoder.encode(None)
    return [bytes(encoder.extradata or b""), *map(bytes, packets)]


def _from_ffv1(streams: list[bytes], like: Frame) -> Frame:
    import av

    decoder = _codec_context("r", like)
    parameters, *packets = streams
    if parameters:
        decoder.extradata = parameters
    frames = [frame for packet in packets for frame in decoder.decode(av.Packet(packet))] + decoder.decode(None)
    return np.stack([frame.to_ndarray(format="gray" if like.ndim == 3 else "rgb24") for frame in frames])


def _codec_context(mode: str, block: Frame) -> Any:
    import av

    context: Any = av.CodecContext.create("ffv1", mode)
    context.height, context.width = block.shape[1:3]
    context.pix_fmt = "gray" if block.ndim == 3 else "bgr0"
    context.thread_count = 1
    return context
