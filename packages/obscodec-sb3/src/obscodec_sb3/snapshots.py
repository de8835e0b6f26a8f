"""SnapshotCallback and resume: a training that goes on after its process has ended."""

import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import gymnasium
from obscodec import DTypeError, Snapshot, SnapshotError, SpecError
from obscodec.arguments import as_count, check_kind, kind_of
from obscodec.runtime import patiently, sync
from obscodec.snapshots import OpenGeneration, named
from obscodec.state import State, number_of
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import json_to_data
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from obscodec_sb3.base import CompressedBuffer
from obscodec_sb3.comparison import check_arguments, check_environment

A = TypeVar("A", bound=BaseAlgorithm)

_A_FOLDER = "a folder, such as 'checkpoints'"


class SnapshotCallback(CheckpointCallback):
    """SB3's ``CheckpointCallback``, which writes of the replay buffer only what is new.

    At each checkpoint it saves the model, VecNormalize if there is one, and a generation of the buffer, whose number is
    that of the steps. The training stops for some milliseconds besides saving the model: a thread in the background
    writes the buffer. :func:`resume` goes on from the last checkpoint that is complete. SB3 calls its callbacks before
    it stores the transition of a step. So a checkpoint lacks the last one, as CheckpointCallback's do.

    Args:
        save_freq: the number of calls of ``env.step()`` between two checkpoints.
        save_path: the folder. The buffer is in its folder ``{name_prefix}_replay_buffer``.
        name_prefix: of the names of files.
        keep: how many generations of the buffer to keep; models are all kept.
        verbose: 2 to print the names of files.

    Raises:
        DTypeError: an argument has another type.
        ShapeError: a number is less than 1.
        TypeError: the algorithm has no compressed replay buffer, or none at all; when training starts.
        SnapshotError: the folder has later checkpoints of another training; at the first checkpoint.

    Example:
        >>> import tempfile
        >>> from stable_baselines3 import DQN
        >>> from obscodec_sb3 import CompressedReplayBuffer, resume
        >>> model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=CompressedReplayBuffer)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = model.learn(300, callback=SnapshotCallback(100, folder))
        ...     model = resume(DQN, folder, "CartPole-v1").model
        >>> model.num_timesteps, model.replay_buffer.size()
        (300, 299)
        >>> model.learn(100, reset_num_timesteps=False).num_timesteps
        400
    """

    def __init__(
        self, save_freq: int, save_path: str, name_prefix: str = "rl_model", *, keep: int = 3, verbose: int = 0
    ) -> None:
        save_freq = as_count("save_freq", save_freq)
        check_kind("save_path", save_path, (str, os.PathLike), _A_FOLDER)
        super().__init__(save_freq, os.fspath(save_path), name_prefix, verbose=verbose)
        self._snapshot = Snapshot(_buffer_folder(save_path, name_prefix), keep=keep)

    def _on_training_start(self) -> None:
        name = type(self.model).__name__
        if not isinstance(self.model, OffPolicyAlgorithm):
            raise TypeError(f"{name} has no replay buffer: SB3's CheckpointCallback saves all that it has")
        if not isinstance(self.model.replay_buffer, CompressedBuffer):
            raise TypeError(f"{name} has no compressed replay buffer: give it one, such as CompressedReplayBuffer")

    def _on_step(self) -> bool:
        if self.n_calls % self.save_freq == 0:
            buffer: Any = self.model.replay_buffer  # type: ignore[attr-defined]
            self._snapshot.make_way(buffer, self.num_timesteps)  # before the model has another state than the buffer
            beside = {"model": self._checkpoint_path(extension="zip")}
            self._save(self.model.save, beside["model"])
            normalize = self.model.get_vec_normalize_env()
            if normalize is not None:
                beside["VecNormalize"] = self._checkpoint_path("vecnormalize_", extension="pkl")
                self._save(normalize.save, beside["VecNormalize"])
            self._snapshot.write(buffer, generation=self.num_timesteps, beside=beside)
        return True

    def _on_training_end(self) -> None:
        self._snapshot.wait()

    def _save(self, save: Callable[[str], object], path: str) -> None:
        """Save in a file that has its name when it is on the disk."""
        folder, name = os.path.split(path)
        unfinished = Path(folder, f"unfinished-{name}")
        save(os.fspath(unfinished))
        with unfinished.open("rb+") as file:
            sync(file.fileno())
        patiently(unfinished.replace, path)
        if self.verbose >= 2:
            self.logger.info(f"Saved {path}")


class Resumed(NamedTuple, Generic[A]):
    """What :func:`resume` has loaded.

    Attributes:
        model: the algorithm, with its buffer and environment.
        buffer: its replay buffer.
        vec_normalize: the environment with its statistics, None if there were none.
        step: the number of steps of the checkpoint.
    """

    model: A
    buffer: CompressedBuffer
    vec_normalize: VecNormalize | None
    step: int


def resume(
    algorithm: type[A],
    path: str | os.PathLike[str],
    env: Any,
    *,
    name_prefix: str = "rl_model",
    mmap: bool = False,
    continue_episodes: bool = False,
    **arguments: Any,
) -> Resumed[A]:
    """Load the last checkpoint of a :class:`SnapshotCallback` whose files are there, intact and written together.

    The episodes that were running end: the environment is reset when the training goes on. Go on with
    ``model.learn(..., reset_num_timesteps=False)``. Another SnapshotCallback may then write to the same folder. Model
    and VecNormalize are pickles, as SB3 saves them: load them only from people whom you trust.

    Args:
        algorithm: its class, such as ``DQN``.
        path: the folder.
        env: the environment, or its id; without VecNormalize, or with one whose statistics are replaced.
        name_prefix: as of the callback.
        mmap: see ``obscodec.load``.
        continue_episodes: True if the environment goes on in the middle of the episodes that were running.
        **arguments: of ``algorithm.load``, such as ``device``.

    Raises:
        SnapshotError: there is no complete checkpoint.
        SpecError: the buffer is for another number of environments than ``env``, or for other spaces, or of another
            class than that of the model; or the policy is none of ``algorithm``. This is found before anything is
            built; the text has both values.
        DTypeError: an argument has another type, or ``algorithm`` has no replay buffer.

    Example: see :class:`SnapshotCallback`.
    """
    check_kind("algorithm", algorithm, type, "the class of an algorithm, such as DQN")
    if not issubclass(algorithm, OffPolicyAlgorithm):
        raise DTypeError(f"algorithm must be one with a replay buffer, such as DQN, got {algorithm.__name__}")
    check_kind("path", path, (str, os.PathLike), _A_FOLDER)
    env = gymnasium.make(env) if isinstance(env, str) else env
    if not hasattr(env, "step"):  # of this class, or of the older gym
        raise DTypeError(f"env must be an environment or its id, got {kind_of(env)}")
    folder, of_buffer = Path(path), _buffer_folder(path, name_prefix)
    models, statistics = _steps(folder, f"{name_prefix}_", "zip"), _steps(folder, f"{name_prefix}_vecnormalize_", "pkl")
    generations = Snapshot(of_buffer).generations
    complete = [step for step in generations if step in models and (step in statistics or not statistics)]
    for step in reversed(complete):
        beside = {"model": models[step]} | ({"VecNormalize": statistics[step]} if statistics else {})
        try:
            opened = OpenGeneration(of_buffer, step)
            opened.check_beside(beside)  # before a pickle among them is loaded
            saved = _Saved(of_buffer, step, opened.kind, opened.arguments())
            given = _prepared(algorithm, saved, models[step], env, statistics.get(step), arguments)
            model: A = algorithm.load(models[step], env=given, **arguments)
            buffer = _load_buffer(model, saved, mmap, continue_episodes, arguments)
        except SnapshotError as error:
            warnings.warn(f"{error}: an earlier checkpoint is loaded", stacklevel=2)
            continue
        model.replay_buffer = buffer  # type: ignore[attr-defined]
        normalized = model.get_vec_normalize_env() if statistics else None
        return Resumed(model, buffer, normalized, step)
    if not folder.is_dir():
        raise SnapshotError(f"{folder} is no folder: name the one that was given to SnapshotCallback")
    if complete:
        raise SnapshotError(
            f"each checkpoint of {name_prefix!r} in {folder} is damaged: `obscodec inspect {of_buffer}` tells where, "
            f"and load({os.fspath(of_buffer)!r}, salvage=True) of the class of the buffer loads what is intact"
        )
    raise SnapshotError(
        f"{folder} has no complete checkpoint of {name_prefix!r}: models of the steps {sorted(models)}, buffers of "
        f"{generations}" + (f", VecNormalize of {sorted(statistics)}" if statistics else "")
    )


class _Saved(NamedTuple):
    """What a generation says of the buffer in it."""

    path: Path
    step: int
    kind: str
    arguments: State


def _prepared(
    algorithm: type[BaseAlgorithm],
    saved: _Saved,
    model: Path,
    env: Any,
    statistics: Path | None,
    arguments: Mapping[str, Any],
) -> VecEnv:
    """The environment as the algorithm wraps it; SpecError if the buffer and what is given don't fit together."""
    kind, path = saved.kind, os.fspath(saved.path)
    policy, known = _class_in(model, "policy_class", arguments), tuple({*algorithm.policy_aliases.values()})
    own = {"stable_baselines3", algorithm.__module__.partition(".")[0]}  # a policy of a user may be for any algorithm
    if policy is not None and policy.__module__.partition(".")[0] in own and known and not issubclass(policy, known):
        raise SpecError(
            f"{model} has a {policy.__name__}, and {algorithm.__name__} takes "
            f"{' or '.join(sorted(of.__name__ for of in known))}: pass the class of the algorithm that was trained"
        )
    cls = _class_in(model, "replay_buffer_class", arguments)
    if cls is not None:
        if cls.__name__ != kind:
            raise SpecError(
                f"{path} has a {kind}, and the replay_buffer_class of the model is {cls.__name__}: pass "
                f"replay_buffer_class={kind}"
            )
        check_arguments(cls, saved.arguments, _of_buffer(arguments), path)
    n_given = int(env.num_envs) if isinstance(env, VecEnv) else 1
    remedy = (
        f"convert the buffer: {kind}.load({path!r}, generation={saved.step}).with_envs({n_given}) is one for the "
        f"model that {algorithm.__name__}.load loads from {model.name} with this env"
    )
    with named(path):
        n_envs = number_of(saved.arguments, "n_envs", 1)
    if n_given == n_envs and statistics is not None:
        env = env.venv if isinstance(env, VecNormalize) else env
        if not isinstance(env, VecEnv):
            raise TypeError("VecNormalize takes a vectorized environment, such as make_vec_env(...)")
        env = VecNormalize.load(os.fspath(statistics), env)
    wrapped = algorithm._wrap_env(env)
    check_environment(kind, saved.arguments, wrapped, path, remedy)
    return wrapped


def _of_buffer(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments of ``algorithm.load`` say of the buffer."""
    size = {"buffer_size": arguments["buffer_size"]} if "buffer_size" in arguments else {}
    return {**(arguments.get("replay_buffer_kwargs") or {}), **size}


def _class_in(model: Path, name: str, arguments: Mapping[str, Any]) -> type | None:
    """A class that a model has under a name, or will be given; None if that is not known before it is loaded."""
    for given in (arguments, arguments.get("custom_objects") or {}):
        if name in given:
            found = given[name]
            return found if isinstance(found, type) else None
    with zipfile.ZipFile(model) as archive, suppress(KeyError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 warns again when it loads the model
        about = json.loads(archive.read("data"))[name]
        found = json_to_data(json.dumps({name: about})).get(name)
        return found if isinstance(found, type) else None
    return None


def _load_buffer(
    model: Any, saved: _Saved, mmap: bool, continue_episodes: bool, arguments: Mapping[str, Any]
) -> CompressedBuffer:
    empty = model.replay_buffer
    if not isinstance(empty, CompressedBuffer):
        raise TypeError(f"the model has a {type(empty).__name__}, no compressed replay buffer")
    own = {"env": model.env} if hasattr(empty, "env") else {}
    limits = {"max_bytes": empty.max_bytes, "spill": empty.spill}
    own |= _of_buffer(arguments) | {name: limit for name, limit in limits.items() if limit is not None}
    buffer: CompressedBuffer = type(empty).load(
        saved.path, generation=saved.step, mmap=mmap, continue_episodes=continue_episodes, device=model.device, **own
    )
    return buffer


def _steps(folder: Path, prefix: str, extension: str) -> dict[int, Path]:
    """The checkpoint files of a kind, by their steps."""
    pattern = re.compile(rf"{re.escape(prefix)}(\d+)_steps\.{extension}")
    matches = [(pattern.fullmatch(file.name), file) for file in folder.iterdir()] if folder.is_dir() else []
    return {int(match[1]): file for match, file in matches if match}


def _buffer_folder(path: str | os.PathLike[str], name_prefix: str) -> Path:
    return Path(path, f"{name_prefix}_replay_buffer")
