"""Paste: how a program stores the fields of a source as the doctor recommends."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from obscodec.cli.doctor import models
from obscodec.cli.doctor.played import ONE_MILLION, Played
from obscodec.cli.doctor.trials import FieldReport
from obscodec.stores import frames_of_block

_OBSERVATIONS = "observation", "observations"  # as environments and snapshots of Stable-Baselines3 name them
_NEXT = "next observation"
_ROLLOUT = 2048  # steps that PPO collects
Options = dict[str, Any]


def lines_to_paste(
    fields: Sequence[FieldReport], *, has_episodes: bool = False, played: Played | None = None
) -> dict[str, str]:
    """The lines to paste for all fields together, imports included, by their purpose.

    What was played in is made there, and played in; of other sources, ``env`` is the user's. Where the data are of
    episodes, a ``RingBuffer`` has a flag that tells where each ends.

    Frame stacks stand in the lines for a ``RingBuffer`` alone; adapters find them. Stable-Baselines3 moves channels of
    images to the front, so that the axis may be another one, and the option of TorchRL is for all leaves.
    """
    pastes = {"RingBuffer": _ring_buffer(fields, has_episodes=has_episodes, played=played)}
    compressed = [field for field in fields if field.chosen and (played is None or _is_observation(field))]
    if compressed:
        if model := _model(fields, compressed, played):
            pastes["Stable-Baselines3"] = model
        pastes["TorchRL"] = _storage(compressed, played)
    return pastes


def _program(imports: Iterable[str], *blocks: str | None) -> str:
    """Imports, the plain ones first, and blocks of lines."""
    imports = sorted(dict.fromkeys(imports), key=lambda line: (line.startswith("from"), line))
    return "\n\n".join(filter(None, ["\n".join(imports), *blocks]))


def _ring_buffer(fields: Sequence[FieldReport], *, has_episodes: bool, played: Played | None) -> str:
    names = "Field, FrameStack, RingBuffer" if any(field.frame_stack for field in fields) else "Field, RingBuffer"
    own = [field for field in fields if not (played and field.name.startswith(_NEXT))]  # they follow their observations
    named = dict(line for of in own for line in _fields(of, has_next=played is not None and _is_observation(of)))
    imports, n, options = [f"from obscodec import {names}"], ONE_MILLION, ""
    if has_episodes:
        options = ", episode_end='episode_end'"
        named.setdefault("episode_end", "Field((), 'bool'),  # True in the last step of each episode")
    elif played:
        options = ", episode_end=('terminated', 'truncated')"
        if played.resets_in_a_step:
            named["valid"] = "Field((), 'bool'),"
            options += ", mask='valid'"
        if played.n_envs > 1:
            n, options = f"{n} // {played.n_envs}", f", n_envs={played.n_envs}{options}"
    lines = "".join(f"    {name!r}: {line}\n" for name, line in named.items())
    buffer = f"fields = {{\n{lines}}}\nbuffer = RingBuffer({n}, fields{options})"
    if played is None or (loop := played.loop(named)) is None:
        return _program(imports, buffer)
    imports += ["import numpy as np"] * ("np." in loop)
    return _program([*imports, *played.imports], played.setup, buffer, loop)


def _fields(of: FieldReport, *, has_next: bool) -> Iterator[tuple[str, str]]:
    """The names and lines of the field, and of its next observations, as a program writes them."""
    options = _options(of)
    if of.frame_stack:
        options["frame_stack"] = of.frame_stack
    kind = f"{of.layout.shape}, {str(of.layout.dtype)!r}"
    yield of.name, f"Field({kind}, {_arguments(options)}),"
    if of.chosen or has_next:
        before, slash, name = of.name.rpartition("/")
        said = (
            "" if of.next_name or has_next else "  # of items in order: all but the first, and above all but the last"
        )
        yield of.next_name or f"{before}{slash}next_{name}", f"Field({kind}, next_of={of.name!r}),{said}"


def _model(fields: Sequence[FieldReport], compressed: Sequence[FieldReport], played: Played | None) -> str | None:
    """The lines for Stable-Baselines3, None for what it does not support, such as a dictionary inside a dictionary."""
    keys = [_key(field.name) for field in compressed]
    shapes = [(field.layout.shape, field.layout.dtype) for field in compressed]
    is_dictionary = len(compressed) > 1 or (_is_observation(compressed[0]) and "." in compressed[0].name)
    options, said = _options(compressed[0]), ""
    if is_dictionary:
        if len(set(keys)) < len(keys) or any("." in key for key in keys):
            return None
        options, said = _together(compressed, keys)
    if played is None:
        policy = models.policy_of_parts(shapes) if is_dictionary else models.policy_of_array(shapes[0])
        actions = (of.layout for of in fields if _key(of.name).rstrip("s") == "action")
        algorithm: str | None = next((models.algorithm_of_recorded(of.shape, of.dtype) for of in actions), models.DQN)
    else:
        policy, algorithm = models.policy_of(played), models.algorithm_of(played.action_space)
    if policy is None or algorithm is None:
        return None
    of_kind, size = (
        ("rollout", f"n_steps={_ROLLOUT}") if algorithm == models.PPO else ("replay", f"buffer_size={ONE_MILLION}")
    )
    buffer = f"Compressed{'Dict' if is_dictionary else ''}{of_kind.capitalize()}Buffer"
    kwargs = f"{of_kind}_buffer_class={buffer}, {of_kind}_buffer_kwargs=dict({_arguments(options)})"
    model = f"{said}model = {algorithm}({policy!r}, env, {size}, {kwargs}, verbose=1)"
    imports = [f"from obscodec_sb3 import {buffer}", f"from stable_baselines3 import {algorithm}"]
    if played is None or played.kind not in ("environment", "vec_env"):
        return _program(imports, f"# env is your environment\n{model}")
    env, imports[0] = "make_env()", f"from obscodec_sb3 import {buffer}, CompressionCallback"
    if played.kind == "environment":
        imports.append("from stable_baselines3.common.env_util import make_vec_env")
        env = f"make_vec_env(make_env, n_envs={played.n_envs})"
    learn = played.guarded(f"env = {env}\n{model}\nmodel.learn({ONE_MILLION}, callback=CompressionCallback())")
    return _program([*imports, *played.imports], played.setup, learn)


def _storage(fields: Sequence[FieldReport], played: Played | None) -> str:
    options, said = _options(fields[0]), ""
    if len(fields) > 1:
        keys = [_leaf(field.name, played) for field in fields]
        options, said = _together(fields, keys)
        if played:  # next observations share the store of an observation whose codec is theirs
            codecs = options["codec"]
            options["codec"] = codecs | {("next", *((of,) if isinstance(of, str) else of)): codecs[of] for of in keys}
    imports, n_envs = ["from obscodec_torchrl import CompressedStorage"], played.n_envs if played else 1
    if n_envs > 1:
        options["ndim"] = 2
    storage = f"{said}storage = CompressedStorage({ONE_MILLION}, {_arguments(options)})"
    if played is None or played.kind != "environment" or any(of.name.startswith("observation.0") for of in fields):
        return _program(imports, storage)
    env, wrapper = "GymWrapper(make_env())", "GymWrapper"
    if n_envs > 1:
        env, wrapper = f"SerialEnv({n_envs}, lambda: GymWrapper(make_env()))", "GymWrapper, SerialEnv"
    imports += ["from torchrl.data import TensorDictReplayBuffer", f"from torchrl.envs import {wrapper}"]
    collect = (
        f"env = {env}\nbuffer = TensorDictReplayBuffer(storage=storage, batch_size=32)\n"
        "buffer.extend(env.rollout(1_000, break_when_any_done=False))\nbatch = buffer.sample()"
    )
    return _program([*imports, *played.imports], played.setup, f"{storage}\n{collect}")


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


def _is_observation(field: FieldReport) -> bool:
    return field.name.partition(".")[0] in _OBSERVATIONS


def _key(name: str) -> str:
    """The key of a field in a dictionary of observations."""
    of, _, key = name.partition(".")
    return key if of in _OBSERVATIONS and key else name.rpartition("/")[2]


def _leaf(name: str, played: Played | None) -> str | tuple[str, ...]:
    """The key of a field in a TensorDict, in which environments have no dictionary of observations."""
    *path, key = (_key(name) if played else name.rpartition("/")[2]).split(".")
    return (*path, key) if path else key


def _arguments(options: Options) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
