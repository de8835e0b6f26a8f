"""How often a call moves from one file of obscodec to another: ``uv run benchmarks/moves.py``.

A move is the call of a function in another file of obscodec than the function that was called before. Files of other
libraries do not count. The counts depend on the data and on the code, not on how busy the machine is.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from obscodec import Field, RingBuffer
from obscodec_sb3 import CompressedReplayBuffer
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

SOURCES = str(Path(__file__).parents[1] / "packages")
BLOCK_FRAMES = 16


def moves(call: Callable[[], Any]) -> list[str]:
    """The files of obscodec that a call goes through, one after the other."""
    path: list[str] = []

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            path.append(frame.f_code.co_filename)

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [file for at, file in enumerate(path) if at == 0 or path[at - 1] != file]


def report(what: str, path: list[str]) -> None:
    """Print how many moves there are, and between how many files."""
    print(f"{what:45} {len(path) - 1:4} moves between {len(set(path)):3} files")


def steps(n: int) -> np.ndarray:
    """Frames ``u8[n, 84, 84]`` in which a square moves."""
    frames = np.zeros((n, 84, 84), np.uint8)
    for i in range(n):
        frames[i, i % 70 : i % 70 + 9, (3 * i) % 70 : (3 * i) % 70 + 9] = 200
    return frames


def main() -> None:
    """Print the table."""
    frames = steps(2000)
    stacks = np.lib.stride_tricks.sliding_window_view(frames, 4, axis=0).transpose(0, 3, 1, 2)
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = CompressedReplayBuffer(5000, space, spaces.Discrete(4), device="cpu", codec="delta-rle")
    infos: list[dict[str, Any]] = [{}]

    def add(i: int) -> Callable[[], None]:
        args = stacks[i][None], stacks[i + 1][None], np.array([1]), np.array([0.0]), np.array([False]), infos
        return lambda: buffer.add(*args)

    for i in range(800):
        add(i)()
    buffer.decide()
    paths = [moves(add(800 + i)) for i in range(2 * BLOCK_FRAMES)]
    report("SB3 add, the one with most of 32", max(paths, key=len))
    buffer.sample(32)
    report("SB3 sample(32)", moves(lambda: buffer.sample(32)))

    replay = TensorDictReplayBuffer(storage=CompressedStorage(5000, codec="delta-rle"), batch_size=32)

    def batch(i: int) -> TensorDict:
        of = [torch.from_numpy(stacks[k : k + 32].copy()) for k in (i, i + 1)]
        return TensorDict(pixels=of[0], next=TensorDict(pixels=of[1], batch_size=32), batch_size=32)

    for i in range(0, 640, 32):
        replay.extend(batch(i))
    replay.storage.decide()
    report("TorchRL extend(32)", moves(lambda: replay.extend(batch(640))))
    report("TorchRL sample(32)", moves(lambda: replay.sample()))

    ring = RingBuffer(5000, {"frame": Field((84, 84), np.uint8, "delta-rle")})
    for i in range(800):
        ring.append(frame=frames[i])
    ring.decide()
    paths = [moves(lambda i=i: ring.append(frame=frames[800 + i])) for i in range(BLOCK_FRAMES)]  # type: ignore[misc]
    report("RingBuffer append, the median", sorted(paths, key=len)[len(paths) // 2])
    report("RingBuffer append, the one that fills a block", max(paths, key=len))
    ring.sample(32)
    report("RingBuffer sample(32)", moves(lambda: ring.sample(32)))


if __name__ == "__main__":
    main()
