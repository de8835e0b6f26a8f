"""Compressed replay buffers for Stable-Baselines3."""

from obscodec_sb3.replay_buffer import CompressedReplayBuffer

__all__ = ["CompressedReplayBuffer"]
