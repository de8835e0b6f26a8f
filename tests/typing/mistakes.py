"""Mistakes that mypy and pyright must see: both report a ``type: ignore`` on a line without one. It is not run."""

import numpy as np
import obscodec
from gymnasium import spaces
from obscodec import EncodedTensor, Field, RingBuffer
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedMaskableDictRolloutBuffer,
    CompressedNStepReplayBuffer,
    CompressedRecurrentRolloutBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from obscodec_torchrl import CompressedStorage
from stable_baselines3.common.vec_env import VecEnv

IMAGE, MOVES = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)
BOTH = spaces.Dict(image=IMAGE)


def mistakes(env: VecEnv, rollout: CompressedRolloutBuffer) -> None:
    CompressedReplayBuffer(1000, IMAGE, MOVES, codecc="zstd:3")  # type: ignore
    CompressedReplayBuffer(1000, IMAGE, MOVES, codec=3)  # type: ignore
    CompressedReplayBuffer(1000, IMAGE)  # type: ignore
    CompressedReplayBuffer(1000, IMAGE, MOVES, prefetch=True).sample("32")  # type: ignore
    CompressedReplayBuffer(1000, IMAGE, MOVES).sample(32).observation  # type: ignore
    CompressedDictReplayBuffer(1000, BOTH, MOVES, codecc={"image": None})  # type: ignore
    CompressedDictReplayBuffer(1000, BOTH, MOVES, codec={"image": 3})  # type: ignore
    CompressedNStepReplayBuffer(1000, IMAGE, MOVES, n_step=3)  # type: ignore
    CompressedHerReplayBuffer(1000, BOTH, MOVES, env, prefetch=True)  # type: ignore
    CompressedRolloutBuffer(1000, IMAGE, MOVES, gae=0.9)  # type: ignore
    CompressedRolloutBuffer.like(rollout, codecc="raw")  # type: ignore
    CompressedDictRolloutBuffer(1000, BOTH, MOVES, codecc="raw")  # type: ignore
    CompressedRecurrentRolloutBuffer(1000, IMAGE, MOVES, (1, 2, 3, 4), codecc="raw")  # type: ignore
    CompressedRecurrentRolloutBuffer(1000, IMAGE, MOVES, codec="raw")  # type: ignore
    CompressedMaskableDictRolloutBuffer(1000, BOTH, MOVES, codecc="raw")  # type: ignore
    CompressedStorage(1000, codecc="zstd:3")  # type: ignore
    CompressedStorage(1000, max_bytes="1 GB")  # type: ignore
    Field((84, 84), np.uint8, codecc="raw")  # type: ignore
    RingBuffer(1000, {"frame": Field((84, 84), np.uint8)}, n_env=2)  # type: ignore
    obscodec.encode(np.zeros(3), codec="zstd:3")  # type: ignore
    obscodec.encode([1, 2, 3])  # type: ignore
    obscodec.decode(b"OBSC")  # type: ignore
    EncodedTensor.from_bytes(20)  # type: ignore
    print(obscodec.encode(np.zeros(3)).nbytes)  # type: ignore
    obscodec.RingBufer(1000, {})  # type: ignore
    CompressedReplayBuffer.load("folder").sampel(32)  # type: ignore
