"""Targets that read messages of batches, and of owners of shards, whose checksums are made right."""

import random

import numpy as np
import xxhash
from mutators import HOSTILE, changed, changed_text
from obscodec import CorruptStream, Field, Prioritized, RingBuffer
from obscodec.shards import Owner
from obscodec.shards.line import as_message, of_message
from obscodec.trees import format_arrays, parse_arrays
from obscodec.wire import EncodedBatch, Sent
from targets import READ, Make, Target, outcome_of

_HEAD = 14  # bytes
_VALUES = "$values"
_MOST = 1 << 20  # bytes of a batch
_CODECS = ("delta-rle", "delta-rle|zstd:1", "zstd:3", "lz4", "rle", "raw")


def _ring(codec: str) -> RingBuffer:
    """A small ring with a field of each kind."""
    fields = {
        "obs": Field((6, 8), np.uint8, codec, block_frames=4, decide_after=8),
        "next_obs": Field((6, 8), np.uint8, next_of="obs"),
        "wide": Field((4, 5), np.float32, codec, decide_after=8),
        "text": Field((None,), np.int16, "zstd:1"),
        "done": Field((), np.bool_),
    }
    ring = RingBuffer(40, fields, stack={"obs": 2}, pad="zeros", episode_end="done", threads=1)
    for k in range(30):
        obs = np.full((2, 6, 8), k % 5, np.uint8)
        obs[1, 0, k % 8] = 9
        wide = np.full((4, 5), k / 255 if k % 7 else np.pi, np.float32)
        ring.append(obs=obs[0], next_obs=obs[1], wide=wide, text=np.arange(k % 4), done=k % 9 == 8)
    ring.decide()
    return ring


def batches() -> list[bytes]:
    """Messages without their heads."""
    rings = [_ring(codec) for codec in _CODECS]
    return [ring.sample(n, n, to="encoded").to_bytes()[_HEAD:] for ring in rings for n in (0, 1, 3, 9)]


def _with_head(name: bytes, content: bytes) -> bytes:
    return name + b"\x01\x00" + xxhash.xxh3_64_intdigest(content).to_bytes(8, "little") + content


def read_batch(content: bytes) -> str:
    """A batch is read with arrays of some size, or refused."""
    try:
        batch = EncodedBatch.from_bytes(_with_head(b"obsb", content), max_bytes=_MOST).read(threads=1)
    except CorruptStream as error:
        return outcome_of(error)
    if isinstance(batch, dict) and sum(x.nbytes for x in batch.values() if isinstance(x, np.ndarray)) > 4 * _MOST:
        raise AssertionError("a batch has more bytes than it may")
    return READ


def changed_message(content: bytes, rng: random.Random) -> bytes:
    """Other values, another array, or other bytes anywhere."""
    try:
        arrays = parse_arrays(content)
        values = arrays[_VALUES].tobytes()
    except (ValueError, LookupError, TypeError):
        return changed(content, rng)
    kind = rng.random()
    if kind < 0.1:
        return changed(content, rng)
    if kind < 0.6:
        arrays[_VALUES] = np.frombuffer(changed_text(values, rng), np.uint8)
    else:
        name = rng.choice(sorted(arrays))
        arrays[name] = _changed_array(arrays[name], rng)
    return format_arrays(arrays)


def _changed_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    kind, other = rng.randrange(5), array.copy()
    if kind == 0:
        return other.astype(rng.choice(("<i8", "<i4", "<u2", "|u1", "<f4")))
    if kind == 1:
        return other.reshape(-1)[: rng.randrange(other.size + 1)]
    if kind == 2:
        return np.concatenate([other.reshape(-1), other.reshape(-1)])
    if not other.size:
        return np.zeros(rng.randrange(9), array.dtype)
    if kind == 3:
        as_bytes = other.reshape(-1).view(np.uint8)
        as_bytes[rng.randrange(len(as_bytes))] ^= 1 << rng.randrange(8)
        return other
    number = rng.choice([x for x in HOSTILE if type(x) is int])
    if array.dtype.kind in "iu":
        other.reshape(-1)[rng.randrange(other.size)] = number % 2 ** (8 * array.itemsize - (array.dtype.kind == "i"))
    return other


_OWNERS: list[Owner] = []


def _owner() -> Owner:
    if not _OWNERS:
        _OWNERS.append(Owner(_ring("delta-rle"), Prioritized(40)))
        _OWNERS[0]._answers.answer({"call": "join", "writer": "w", "envs": np.array([0]), "turn": 0}, Sent())
    return _OWNERS[0]


def calls() -> list[bytes]:
    """What writers and learners send, without heads."""
    owner = _owner()
    steps = np.frombuffer(owner.buffer.take(np.arange(5), to="encoded").to_bytes(), np.uint8)
    draw = {"call": "draw", "n": 3, "seed": 1, "method": "sample", "by_priority": True, "how": {}}
    made = [
        draw,
        {**draw, "by_priority": False, "how": {"replace": False}},
        {**draw, "method": "sequences", "how": {"length": 4, "burn_in": 1, "strict_length": False}},
        {"call": "join", "writer": "w", "envs": np.array([0]), "turn": 0},
        {"call": "append", "writer": "w", "first": 0, "steps": steps, "after": None},
        {"call": "acknowledge", "writer": "w"},
        {"call": "update", "life": owner._answers._life, "indices": np.arange(3), "priorities": np.ones(3)},
    ]
    return [as_message(call)[_HEAD:] for call in made]


def read_call(content: bytes) -> str:
    """An owner answers, whatever it is asked for, and stays as it should be."""
    owner = _owner()
    answer = of_message(owner._answers.answered(_with_head(b"obss", content), Sent()))
    if len(owner.buffer) > owner.buffer.capacity or len(owner._answers._writers) > owner.buffer.n_envs:
        raise AssertionError(f"{owner!r} has more than it may")
    if "error" not in answer:
        return READ
    if answer["error"] in ("AssertionError", "SystemError", "RecursionError", "UnboundLocalError"):
        raise AssertionError(f"an owner answers with {answer['error']}: {answer['text']}")
    return f"{answer['error']}"


def wire_targets() -> dict[str, Make]:
    """The targets of this file."""
    return {
        "batches": lambda: Target(batches, read_batch, changed_message),
        "calls": lambda: Target(calls, read_call, changed_message),
    }
