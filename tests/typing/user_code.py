"""What users write: mypy and pyright must accept it. It is not run."""

import tempfile
from typing import assert_type

import numpy as np
import numpy.typing as npt
import obscodec
import torch
from gymnasium import spaces
from obscodec import EncodedTensor, Field, FrameStack, RingBuffer, Snapshot
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedMaskableRolloutBuffer,
    CompressedNStepReplayBuffer,
    CompressedRecurrentRolloutBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    SnapshotCallback,
)
from obscodec_torchrl import CompressedStorage
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
BOTH = spaces.Dict(image=IMAGE, vector=spaces.Box(-1, 1, (3,)))
MOVES = spaces.Discrete(6)


def one_tensor(frame: npt.NDArray[np.uint8]) -> bytes:
    encoded = obscodec.encode(frame)
    assert_type(encoded, EncodedTensor)
    again = obscodec.decode(EncodedTensor.from_bytes(encoded.to_bytes()))
    obscodec.decode(obscodec.encode(torch.zeros(3), "zstd:3"), out=torch.empty(3))
    for batch in obscodec.unpack(obscodec.pack(frame)):
        assert batch.dtype == again.dtype
    return obscodec.pack([frame, frame[:3]])


def a_loop(folder: str) -> float:
    fields = {"frame": Field((84, 84), np.uint8), "reward": Field((), np.float32), "done": Field((), np.bool_)}
    buffer = RingBuffer(
        10_000, fields, n_envs=2, stack={"frame": 4}, pad="zeros", episode_end="done", max_bytes=1 << 30
    )
    snapshot = Snapshot(folder)
    for _ in range(100):
        buffer.append(frame=np.zeros((2, 84, 84), np.uint8), reward=[0.0, 1.0], done=[False, True])
    snapshot.write(buffer)
    obscodec.save(buffer, folder)
    batch = buffer.sample(32, 0)
    assert_type(batch, dict[str, npt.NDArray[np.generic]])
    return float(batch["reward"].astype(np.float64).sum())


def sb3(folder: str) -> None:
    model = DQN("CnnPolicy", "PongNoFrameskip-v4", replay_buffer_class=CompressedReplayBuffer)
    model.learn(1000, callback=SnapshotCallback(100, folder))
    PPO("CnnPolicy", "PongNoFrameskip-v4", rollout_buffer_class=CompressedRolloutBuffer)
    buffer = CompressedReplayBuffer(1000, IMAGE, MOVES, "cpu", n_envs=2, codec="zstd:3", prefetch=True, threads=2)
    assert_type(buffer.sample(32), ReplayBufferSamples)
    stock: ReplayBuffer = buffer
    images = CompressedDictReplayBuffer(
        1000,
        BOTH,
        MOVES,
        codec={"image": "delta-rle", "vector": None},
        frame_stack={"image": FrameStack(4)},
        spill=folder,
    )
    assert_type(images.sample(32), DictReplayBufferSamples)
    CompressedNStepReplayBuffer(1000, IMAGE, MOVES, n_steps=5, gamma=0.9, budget="fast", max_bytes=10**9)
    rollout = CompressedRolloutBuffer(1000, IMAGE, MOVES, gae_lambda=0.9, codec=None, min_nbytes=0)
    CompressedRecurrentRolloutBuffer(1000, IMAGE, MOVES, (1, 2, 3, 4), codec="raw")
    CompressedMaskableRolloutBuffer(1000, IMAGE, MOVES, threads=1)
    for minibatch in rollout.get(32):
        print(minibatch.observations.shape, stock.size())
    buffer.save(folder)
    assert_type(CompressedReplayBuffer.load(folder, device="cpu"), CompressedReplayBuffer)
    print(buffer.stats().raw_bytes, CompressedHerReplayBuffer)


def torchrl() -> None:
    codecs = {"pixels": "zstd:3"}
    storage = CompressedStorage(1000, device="cpu", codec=codecs, max_bytes=10**9, spill=tempfile.gettempdir())
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=32)
    buffer.extend(TensorDict({"pixels": torch.zeros(64, 4, 84, 84, dtype=torch.uint8)}, batch_size=64))
    CompressedStorage(10, codec={("next", "pixels"): "raw", "pixels": None}, frame_stack=4)
