"""Compressed replay and rollout buffers for Stable-Baselines3 and sb3-contrib.

SB3's own code runs on arrays of the core, and is replaced only where speed needs it. This package never knows how a
store keeps tensors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from obscodec import MissingPackage
from obscodec.installing import install_command

from obscodec_sb3.callback import CompressionCallback
from obscodec_sb3.compressed import compressed
from obscodec_sb3.her import CompressedHerReplayBuffer
from obscodec_sb3.replay import CompressedDictReplayBuffer, CompressedNStepReplayBuffer, CompressedReplayBuffer
from obscodec_sb3.rollout import CompressedDictRolloutBuffer, CompressedRolloutBuffer
from obscodec_sb3.snapshots import Resumed, SnapshotCallback, resume

__version__ = "0.1.0"

__all__ = [
    "CompressedDictReplayBuffer",
    "CompressedDictRolloutBuffer",
    "CompressedHerReplayBuffer",
    "CompressedNStepReplayBuffer",
    "CompressedReplayBuffer",
    "CompressedRolloutBuffer",
    "CompressionCallback",
    "Resumed",
    "SnapshotCallback",
    "compressed",
    "resume",
]

# The buffers of sb3-contrib, made when they are asked for; contrib.pyi has their types.
_CONTRIB = [f"Compressed{kind}{of}RolloutBuffer" for kind in ("Maskable", "Recurrent") for of in ("", "Dict")]


if TYPE_CHECKING:
    from obscodec_sb3.contrib import CompressedMaskableDictRolloutBuffer as CompressedMaskableDictRolloutBuffer
    from obscodec_sb3.contrib import CompressedMaskableRolloutBuffer as CompressedMaskableRolloutBuffer
    from obscodec_sb3.contrib import CompressedRecurrentDictRolloutBuffer as CompressedRecurrentDictRolloutBuffer
    from obscodec_sb3.contrib import CompressedRecurrentRolloutBuffer as CompressedRecurrentRolloutBuffer
else:  # a type checker shall see names that do not exist

    def __getattr__(name: str) -> Any:
        if name not in _CONTRIB:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(f"sb3_contrib.common.{'maskable' if 'Maskable' in name else 'recurrent'}.buffers")
        except ModuleNotFoundError:
            raise MissingPackage(f"{name} needs sb3-contrib: {install_command('sb3-contrib')}") from None
        return compressed(getattr(module, name.removeprefix("Compressed")))
