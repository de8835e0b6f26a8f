"""Buffers, arrays and stores to save, and what to compare of them."""

from pathlib import Path

import numpy as np
from obscodec import AutoStore, Field, FrameStack, FrameStore, Layout, Prioritized, RingBuffer, TensorArray

GOLDEN = Path(__file__).parent / "golden"
FRAME = Layout((12, 16), np.uint8)
STACK = Layout((4, 12, 16), np.uint8)
NOISY = Layout((42, 42), np.uint8)


def frames(n, seed=0):
    made = np.zeros((n, *FRAME.shape), np.uint8)
    rng = np.random.default_rng(seed)
    for k in range(1, n):
        made[k] = made[k - 1]
        made[k, rng.integers(12)] = rng.integers(1, 256)
    return made


def noise(n, seed=0):
    """``u8[n, 42, 42]``, which no codec makes smaller."""
    return np.random.default_rng(seed).integers(256, size=(n, *NOISY.shape), dtype=np.uint8)


def tensors(layout, n=300, seed=0):
    if layout.shape[0] == 4:
        made = frames(n + 3, seed)
        made = np.stack([made[k : k + 4] for k in range(n)])
    else:
        made = frames(n, seed)
    return made if layout.dtype == np.uint8 else (made / np.float32(255)).astype(layout.dtype)


def stores():
    floats = Layout(FRAME.shape, np.float32)
    made = {spec: FrameStore(FRAME, codec=spec, block_frames=4) for spec in ("delta-rle", "raw", "zstd:3", "lz4")}
    made |= {f"delta-rle|{tail}": FrameStore(FRAME, codec=f"delta-rle|{tail}") for tail in ("lz4:6", "zstd:1")}
    made["stacks"] = FrameStore(STACK, frame_stack=FrameStack(4))
    made["limited"] = FrameStore(FRAME, max_bytes=1 << 20)
    made["rle"] = FrameStore(FRAME, codec="rle", block_frames=1)
    made["auto stacks"] = AutoStore(STACK)
    made["auto floats"] = AutoStore(floats)
    made["undecided"] = AutoStore(STACK, decide_after=10_000, frame_stack=4)
    return made


def ring(n_steps, capacity=100, n_envs=2):
    fields = {
        "obs": Field(STACK.shape, np.uint8, min_nbytes=0),
        "next": Field(STACK.shape, np.uint8, shares="obs"),
        "depth": Field(FRAME.shape, np.float16, "shuffle|zstd:1", max_bytes=1 << 20),
        "vector": Field((3,), np.float64),
        "time": Field((), "datetime64[ns]"),
        "$": Field((), bool),
    }
    buffer = RingBuffer(capacity, fields, n_envs, stack={"vector": 2}, pad="zeros", episode_end="$")
    append(buffer, 0, n_steps)
    return buffer


def append(buffer, begin, end):
    played, rng = tensors(STACK, end + 60), np.random.default_rng(begin)
    for k in range(begin, end):
        values = {"obs": played[[k, k + 50]], "next": played[[k + 1, k + 51]], "vector": rng.normal(size=(2, 3))}
        depth = rng.integers(5, size=(2, *FRAME.shape)).astype(np.float16)
        time = np.array([k, k + 1], "datetime64[ns]")
        buffer.append(**values, depth=depth, time=time, **{"$": [k % 9 == 0, k % 7 == 0]})


def loop(n_steps):
    """A buffer with all that loops need: next observations stored once, stacks, masked steps."""
    fields = {
        "obs": Field(FRAME.shape, np.uint8, min_nbytes=0),
        "next": Field(FRAME.shape, np.uint8, next_of="obs"),
        "resets": Field((), bool),
        "ends": Field((), bool),
    }
    buffer = RingBuffer(60, fields, 2, stack={"obs": 3}, pad="edge", episode_end="ends", mask="resets")
    continue_loop(buffer, 0, n_steps)
    return buffer


def continue_loop(buffer, begin, end):
    played = frames(end + 62)
    for k in range(begin, end):
        ends, resets = np.array([k % 9 == 8, k % 7 == 6]), np.array([k % 9 == 0, k % 7 == 0])
        buffer.append(
            obs=played[[k, k + 50]], next=played[[k + 1, k + 51]] + ends[:, None, None], resets=resets, ends=ends
        )


def priorities(n_steps):
    made = Prioritized(120)
    for k in range(n_steps):
        made.advance(2 * max(0, k - 59), 2 * (k + 1))
        made.update([2 * k, 2 * k + 1], [k % 5 + 0.5, 2.0])
    return made


def array(n_steps):
    made = TensorArray.zeros((50, 2), FrameStore(FRAME))
    for k, pair in enumerate(frames(2 * n_steps).reshape(n_steps, 2, *FRAME.shape)):
        made[k] = pair
    return made


def flip(file, at):
    """Change a byte."""
    content = bytearray(file.read_bytes())
    content[at] ^= 0x55
    file.write_bytes(content)


def check_equal_rings(one, other):
    assert len(one) == len(other)
    for name, expected in one[:].items():
        np.testing.assert_array_equal(other[:][name], expected, name)
    for seed in range(2):
        sampled = other.sample(30, seed)
        for name, expected in one.sample(30, seed).items():
            np.testing.assert_array_equal(sampled[name], expected, name)
