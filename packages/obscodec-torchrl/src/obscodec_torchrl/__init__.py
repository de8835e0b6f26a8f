"""Compressed storage for TorchRL's replay buffers.

It never draws or orders items: TorchRL's samplers and writers do.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obscodec_torchrl.checkpointer import CompressedStorageCheckpointer
    from obscodec_torchrl.hook import SnapshotHook
    from obscodec_torchrl.ray_buffer import RayReplayBuffer
    from obscodec_torchrl.storage import CompressedStorage
else:  # loaded when they are asked for: TorchRL takes seconds, and ``obscodec warm`` compiles kernels without it

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"obscodec_torchrl.{_MODULES[name]}"), name)
        globals()[name] = value  # the next access finds it there
        return value


__version__ = "0.1.0"

__all__ = ["CompressedStorage", "CompressedStorageCheckpointer", "RayReplayBuffer", "SnapshotHook"]

_MODULES = {
    "CompressedStorage": "storage",
    "CompressedStorageCheckpointer": "checkpointer",
    "RayReplayBuffer": "ray_buffer",
    "SnapshotHook": "hook",
}


def __dir__() -> list[str]:
    return sorted(__all__)
