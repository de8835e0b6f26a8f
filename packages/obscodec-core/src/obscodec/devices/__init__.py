"""What another device must offer, and how it is found."""

from obscodec.devices.backends import Backend, backend, check_place, codec, decoding_device
from obscodec.devices.frame_reader import FrameChanges, FrameForm, FrameReader, ListedChanges

__all__ = [
    "Backend",
    "FrameChanges",
    "FrameForm",
    "FrameReader",
    "ListedChanges",
    "backend",
    "check_place",
    "codec",
    "decoding_device",
]
