"""Paste: how a program stores a field as the doctor recommends."""

from typing import Any

from obscodec.cli.doctor.trials import FieldReport
from obscodec.stores import frames_of_block

_OBSERVATIONS = "observation", "observations"  # as environments and snapshots of Stable-Baselines3 name them


def lines_to_paste(field: FieldReport) -> dict[str, str]:
    """What to paste, imports included, by what it is for.

    The frame stack stands in the line for a ``RingBuffer`` alone; adapters find it. Stable-Baselines3 moves channels of
    images to the front, so that the axis may be another one, and the option of TorchRL is for all leaves.
    """
    options: dict[str, Any] = {"codec": field.recommended}
    if field.chosen and field.chosen.block_frames != frames_of_block(field.chosen.spec):
        options["block_frames"] = field.chosen.block_frames
    pastes = {"RingBuffer": _field(field, options)}
    if field.chosen:
        if replay_buffer := _replay_buffer(field, options):
            pastes["Stable-Baselines3"] = replay_buffer
        storage = f"CompressedStorage(1_000_000, {_arguments(options)})"
        pastes["TorchRL"] = f"from obscodec_torchrl import CompressedStorage\n\n{storage}"
    return pastes


def _field(field: FieldReport, options: dict[str, Any]) -> str:
    names = "Field"
    if field.frame_stack:
        names, options = "Field, FrameStack", {**options, "frame_stack": field.frame_stack}
    shape, dtype = field.layout.shape, str(field.layout.dtype)
    return f"from obscodec import {names}\n\nField({shape}, {dtype!r}, {_arguments(options)})"


def _replay_buffer(field: FieldReport, options: dict[str, Any]) -> str | None:
    """The line for Stable-Baselines3, None for a dictionary inside a dictionary, which it does not support."""
    kind, policy = "CompressedReplayBuffer", "CnnPolicy" if _is_image(field) else "MlpPolicy"
    of, *keys = field.name.split(".")
    if of in _OBSERVATIONS and keys:
        kind, policy = "CompressedDictReplayBuffer", "MultiInputPolicy"
        options = {**options, "codec": {keys[0]: field.recommended}}
        if len(keys) > 1:
            return None
    imports = f"from obscodec_sb3 import {kind}\nfrom stable_baselines3 import DQN\n\n"
    buffer = f"replay_buffer_class={kind}, replay_buffer_kwargs=dict({_arguments(options)})"
    return f"{imports}model = DQN({policy!r}, env, {buffer})"


def _is_image(field: FieldReport) -> bool:
    return len(field.layout.shape) == 3 and field.layout.dtype == "uint8"


def _arguments(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
