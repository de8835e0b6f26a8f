"""What ``obscodec warm`` runs of this package, so that its kernels are compiled."""

import torch
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

from obscodec_torchrl.storage import CompressedStorage

_N_STEPS = 300  # a store decides after 256 tensors


def extend_and_sample() -> None:
    """Fill a buffer and sample it."""
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(_N_STEPS), batch_size=32)
    pixels = torch.arange(_N_STEPS + 4).repeat_interleave(32 * 32).reshape(-1, 32, 32).to(torch.uint8).unfold(0, 4, 1)
    pixels = pixels.movedim(-1, 1)
    following = TensorDict(pixels=pixels[1:], reward=torch.zeros(_N_STEPS, 1), batch_size=_N_STEPS)
    buffer.extend(TensorDict(pixels=pixels[:-1], next=following, batch_size=_N_STEPS))
    buffer.sample()
