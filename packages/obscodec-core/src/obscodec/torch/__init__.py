"""Compressed tensors of PyTorch, for buffers that keep tensors in a list or a dictionary. It needs PyTorch alone.

The other names are for adapters, which draw, decode and write several tensors together.
"""

from obscodec.installing import optional

optional("torch", "obscodec.torch needs")

from obscodec.torch.compressed_tensor import (  # noqa: E402
    DEVICE_BATCH,
    DRAWING,
    PINNED_MEMORY,
    CompressedTensor,
    Device,
    as_index,
    as_tensor,
    decode,
    drawn_together,
    stored_array,
)

__all__ = [
    "DEVICE_BATCH",
    "DRAWING",
    "PINNED_MEMORY",
    "CompressedTensor",
    "Device",
    "as_index",
    "as_tensor",
    "decode",
    "drawn_together",
    "stored_array",
]
