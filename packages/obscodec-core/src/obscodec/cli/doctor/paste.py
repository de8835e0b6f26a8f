"""Paste: how a program stores the fields of a source as the doctor recommends."""

from collections.abc import Iterator, Sequence
from typing import Any

from obscodec.cli.doctor.trials import FieldReport
from obscodec.stores import frames_of_block

_OBSERVATIONS = "observation", "observations"  # as environments and snapshots of Stable-Baselines3 name them
Options = dict[str, Any]


def lines_to_paste(fields: Sequence[FieldReport], *, has_episodes: bool = False) -> dict[str, str]:
    """The lines to paste for all fields together, imports included, by their purpose.

    Where the data are of episodes, a ``RingBuffer`` has a flag that tells where each ends.

    Frame stacks stand in the lines for a ``RingBuffer`` alone; adapters find them. Stable-Baselines3 moves channels of
    images to the front, so that the axis may be another one, and the option of TorchRL is for all leaves.
    """
    pastes = {"RingBuffer": _ring_buffer(fields, has_episodes=has_episodes)}
    if compressed := [field for field in fields if field.chosen]:
        if replay_buffer := _replay_buffer(compressed):
            pastes["Stable-Baselines3"] = replay_buffer
        pastes["TorchRL"] = _storage(compressed)
    return pastes


def _ring_buffer(fields: Sequence[FieldReport], *, has_episodes: bool) -> str:
    names = "Field, FrameStack, RingBuffer" if any(field.frame_stack for field in fields) else "Field, RingBuffer"
    lines = "".join(f"    {line}\n" for of in fields for line in _fields(of))
    options = ""
    if has_episodes:
        options = ", episode_end='episode_end'"
        if "episode_end" not in {field.name for field in fields}:
            lines += "    'episode_end': Field((), 'bool'),  # True in the last step of each episode\n"
    return f"from obscodec import {names}\n\nfields = {{\n{lines}}}\nbuffer = RingBuffer(1_000_000, fields{options})"


def _fields(of: FieldReport) -> Iterator[str]:
    """The lines of the field, and of its next observations, as a program writes them."""
    options = _options(of)
    if of.frame_stack:
        options["frame_stack"] = of.frame_stack
    kind = f"{of.layout.shape}, {str(of.layout.dtype)!r}"
    yield f"{of.name!r}: Field({kind}, {_arguments(options)}),"
    if of.chosen:
        before, slash, name = of.name.rpartition("/")
        said = "" if of.next_name else "  # of items in order: all but the first, and above all but the last"
        yield f"{of.next_name or f'{before}{slash}next_{name}'!r}: Field({kind}, next_of={of.name!r}),{said}"


def _replay_buffer(fields: Sequence[FieldReport]) -> str | None:
    """The lines for Stable-Baselines3, None for a dictionary inside a dictionary, which it does not support."""
    keys, layout = [_key(field.name) for field in fields], fields[0].layout
    is_image = len(layout.shape) == 3 and layout.dtype == "uint8"
    kind, policy = "CompressedReplayBuffer", "CnnPolicy" if is_image else "MlpPolicy"
    options, said = _options(fields[0]), ""
    if len(fields) > 1 or _is_in_dictionary(fields[0]):
        kind, policy = "CompressedDictReplayBuffer", "MultiInputPolicy"
        if len(set(keys)) < len(keys) or any("." in key for key in keys):
            return None
        options, said = _together(fields, keys)
    imports = f"from obscodec_sb3 import {kind}\nfrom stable_baselines3 import DQN\n\n"
    buffer = f"replay_buffer_class={kind}, replay_buffer_kwargs=dict({_arguments(options)})"
    return f"{imports}{said}model = DQN({policy!r}, env, {buffer})"


def _storage(fields: Sequence[FieldReport]) -> str:
    options, said = _options(fields[0]), ""
    if len(fields) > 1:
        options, said = _together(fields, [_leaf(field.name) for field in fields])
    imports = "from obscodec_torchrl import CompressedStorage\n\n"
    return f"{imports}{said}storage = CompressedStorage(1_000_000, {_arguments(options)})"


def _together(fields: Sequence[FieldReport], keys: Sequence[object]) -> tuple[Options, str]:
    """The options of several fields of an adapter, and a comment if an option can't be as it is recommended."""
    of_each, said = [_options(field) for field in fields], ""
    together: Options = {"codec": {key: of["codec"] for key, of in zip(keys, of_each, strict=True)}}
    if len({of.get("block_frames") for of in of_each}) == 1:
        together |= {name: of_each[0][name] for name in ("block_frames",) if name in of_each[0]}
    else:
        blocks = ", ".join(f"{field.chosen.block_frames} for {field.name}" for field in fields if field.chosen)
        said = f"# block_frames is one number for all fields, and left out: the best are {blocks}\n"
    together |= {name: of[name] for of in of_each for name in ("budget",) if name in of}
    return together, said


def _options(field: FieldReport) -> Options:
    """What to pass for a field; ``auto`` where no field can name the codec, which finds it as the doctor did."""
    if not field.can_name_codec:
        return {"codec": "auto"} if field.budget is None else {"codec": "auto", "budget": field.budget}
    options: Options = {"codec": field.recommended}
    if field.chosen and field.chosen.block_frames != frames_of_block(field.chosen.spec, None, "cpu"):
        options["block_frames"] = field.chosen.block_frames
    return options


def _is_in_dictionary(field: FieldReport) -> bool:
    of, _, key = field.name.partition(".")
    return of in _OBSERVATIONS and bool(key)


def _key(name: str) -> str:
    """The key of a field in a dictionary of observations."""
    of, _, key = name.partition(".")
    return key if of in _OBSERVATIONS and key else name.rpartition("/")[2]


def _leaf(name: str) -> str | tuple[str, ...]:
    """The key of a field in a TensorDict."""
    *path, key = name.rpartition("/")[2].split(".")
    return (*path, key) if path else key


def _arguments(options: Options) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
