"""What another device must offer, and how it is found."""

from obscodec.devices.backends import Backend, backend, check_place, codec, decoding_device
from obscodec.devices.frame_reader import FrameReader

__all__ = [
    "Backend",
    "FrameReader",
    "backend",
    "check_place",
    "codec",
    "decoding_device",
]
