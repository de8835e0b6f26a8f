"""Batches as messages, with their tensors as stores keep them.

It knows no sockets and no processes: a message is bytes, which anybody may send.
"""

from obscodec.frames import Received, Sent
from obscodec.wire.encoded_batch import MAX_BYTES, EncodedBatch
from obscodec.wire.message import format_message, parse_message

SENDING_CODEC = "delta-rle|lz4:1"  # encodes as fast as any
__all__ = ["MAX_BYTES", "SENDING_CODEC", "EncodedBatch", "Received", "Sent", "format_message", "parse_message"]
