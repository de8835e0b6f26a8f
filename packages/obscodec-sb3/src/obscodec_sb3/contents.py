"""Contents: the steps of a saved buffer in the order of time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from obscodec import DTypeError, Layout, SnapshotError, TensorArray
from obscodec.buffers import Array, StoredSteps
from obscodec.columns import CodedArray
from obscodec.runtime import temporary_folder
from obscodec.segments import Bools, Ints
from obscodec.snapshots import OpenGeneration, Salvaged

import obscodec_sb3
from obscodec_sb3.base import CompressedBuffer

_ARRAYS = np.ndarray, CodedArray, TensorArray
_FLAGS = "dones", "timeouts"
_STARTS = "episode_starts"  # of rollouts: true in the first step of an episode


@contextmanager
def opened_steps(path: Path, generation: int | None = None, salvage: bool = False) -> Iterator[StoredSteps]:
    """The steps of a saved buffer: see ``obscodec.snapshots.opened_steps``.

    Raises:
        SnapshotError: the snapshot is damaged, has no steps, or is of a class that this package does not have.
    """
    opened = OpenGeneration(path, generation)
    kind, arguments = opened.kind, opened.arguments()
    cls = getattr(obscodec_sb3, kind, None)
    if not (isinstance(cls, type) and issubclass(cls, CompressedBuffer)):
        raise SnapshotError(f"{path} has a {kind}, which is no class of obscodec_sb3: save its arrays with numpy.savez")
    options: dict[str, Any] = {"device": "cpu", "buffer_device": "cpu", "heap": "device", "continue_episodes": True}
    if "env" in cls.__signature__.parameters:  # type: ignore[attr-defined]
        options["env"] = None  # of HerReplayBuffer, to compute rewards
    with temporary_folder() as folder:
        options["spill"] = folder if arguments.get("spill") else None
        loaded: Any = cls.load(path, generation=generation, salvage=salvage, **options)
        buffer = loaded.buffer if isinstance(loaded, Salvaged) else loaded
        if not buffer.size():
            raise SnapshotError(f"{path} has a {kind} without steps")
        steps = _steps_of(buffer)
        if isinstance(loaded, Salvaged):
            rows, envs = loaded.lost.T
            oldest = buffer.pos - buffer.size()
            steps = steps._replace(lost=np.stack([(rows - oldest) % buffer.buffer_size, envs], axis=1))
        yield steps


def _steps_of(buffer: Any) -> StoredSteps:
    n, size, n_envs = buffer.size(), buffer.buffer_size, buffer.n_envs
    oldest = buffer.pos - n
    arrays, layouts, left_out = dict[str, Any](), dict[str, Layout](), dict[str, str]()
    for name, array in vars(buffer).items():
        for key, of in array.items() if isinstance(array, dict) else [("", array)]:
            if not (isinstance(of, _ARRAYS) and of.shape[:1] in ((size,), (size * n_envs,))):
                continue
            field, has_envs = f"{name}.{key}" if key else name, of.shape[:2] == (size, n_envs)
            try:
                layouts[field] = Layout(tuple(of.shape[1 + has_envs :]), of.dtype)
                arrays[field] = of, has_envs
            except DTypeError as error:  # such as the infos of HerReplayBuffer, which are Python objects
                left_out[field] = str(error)

    def read(name: str, steps: Ints, envs: Ints) -> Array:
        (of, has_envs), rows = arrays[name], (oldest + steps) % size
        if has_envs:
            return np.asarray(of[rows, envs])
        is_flat = len(of) == size * n_envs  # a rollout that was read has one environment first; others have one row
        return np.asarray(of[envs * size + rows if is_flat else rows])

    def scan(steps: Ints) -> tuple[Bools, Bools]:
        inside = np.ones((len(steps), n_envs), np.bool_)
        ends, every_env = ~inside, np.arange(n_envs)
        for name in flags:
            ends |= read(name, steps[:, None], every_env).reshape(ends.shape) != 0
        if _STARTS in arrays:
            following = np.minimum(steps + 1, n - 1)[:, None]
            ends |= (read(_STARTS, following, every_env).reshape(ends.shape) != 0) & (steps < n - 1)[:, None]
        return ends, inside

    flags = tuple(name for name in _FLAGS if name in arrays)
    return StoredSteps(n, n_envs, layouts, read, scan, flags, left_out=left_out)
