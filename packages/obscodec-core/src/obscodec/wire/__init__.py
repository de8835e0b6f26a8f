"""Batches as messages, with their tensors as stores keep them.

It knows no sockets and no processes: a message is bytes, which anybody may send.
"""

from obscodec.frames import Received, Sent
from obscodec.wire.encoded_batch import EncodedBatch

__all__ = ["EncodedBatch", "Received", "Sent"]
