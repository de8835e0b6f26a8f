"""Compressed replay and rollout buffers for Stable-Baselines3 and sb3-contrib."""

from importlib import import_module
from typing import Any

from obscodec import MissingPackage

from obscodec_sb3.base import BufferStats
from obscodec_sb3.buffers import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
)
from obscodec_sb3.callback import CompressionCallback
from obscodec_sb3.compressed import compressed
from obscodec_sb3.replay import CompressedReplayBuffer
from obscodec_sb3.rollout import CompressedRolloutBuffer

__all__ = [
    "BufferStats",
    "CompressedDictReplayBuffer",
    "CompressedDictRolloutBuffer",
    "CompressedHerReplayBuffer",
    "CompressedNStepReplayBuffer",
    "CompressedReplayBuffer",
    "CompressedRolloutBuffer",
    "CompressionCallback",
    "compressed",
]

# The buffers of sb3-contrib, made when they are asked for, and the modules of theirs.
_CONTRIB = {
    f"Compressed{kind}{dictionary}RolloutBuffer": f"sb3_contrib.common.{kind.lower()}.buffers"
    for kind in ("Maskable", "Recurrent")
    for dictionary in ("", "Dict")
}


def __getattr__(name: str) -> Any:
    if name not in _CONTRIB:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_CONTRIB[name])
    except ModuleNotFoundError:
        raise MissingPackage(f"{name} needs sb3-contrib: pip install sb3-contrib") from None
    return compressed(getattr(module, name.removeprefix("Compressed")))


def __dir__() -> list[str]:
    return sorted([*__all__, *_CONTRIB])
