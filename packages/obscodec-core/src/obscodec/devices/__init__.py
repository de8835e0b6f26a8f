"""What another device must offer, and how it is found.

It is the only way from the core to a GPU, and never imports a library of one.
"""

from obscodec.devices.backends import Backend, FrameReader, backend, check_place, codec, decoding_device, from_device

__all__ = ["Backend", "FrameReader", "backend", "check_place", "codec", "decoding_device", "from_device"]
