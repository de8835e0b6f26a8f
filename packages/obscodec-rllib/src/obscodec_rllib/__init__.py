"""Compressed episode replay buffers for RLlib's new API stack, and env runners that send their episodes encoded.

They never act, draw, order or evict: RLlib's own classes do.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obscodec_rllib.buffers import CompressedEpisodeReplayBuffer, CompressedPrioritizedEpisodeReplayBuffer
    from obscodec_rllib.env_runner import CompressedEnvRunner
else:  # loaded when they are asked for: RLlib takes seconds

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"obscodec_rllib.{_MODULES[name]}"), name)
        globals()[name] = value  # the next access finds it there
        return value


__version__ = "0.1.0"

__all__ = ["CompressedEnvRunner", "CompressedEpisodeReplayBuffer", "CompressedPrioritizedEpisodeReplayBuffer"]

_MODULES = {
    "CompressedEnvRunner": "env_runner",
    "CompressedEpisodeReplayBuffer": "buffers",
    "CompressedPrioritizedEpisodeReplayBuffer": "buffers",
}


def __dir__() -> list[str]:
    return sorted(__all__)
