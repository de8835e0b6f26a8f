"""What another device must offer, and how it is found."""

from obscodec.devices.backends import Backend, backend, check_place, codec, decoding_device
from obscodec.devices.frame_reader import FrameChanges, FrameForm, FrameReader, ListedChanges
from obscodec.devices.tensor_coder import TensorCoder

__all__ = [
    "Backend",
    "FrameChanges",
    "FrameForm",
    "FrameReader",
    "ListedChanges",
    "TensorCoder",
    "backend",
    "check_place",
    "codec",
    "decoding_device",
]
