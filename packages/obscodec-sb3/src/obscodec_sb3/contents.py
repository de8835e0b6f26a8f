"""Contents: the items of a saved buffer in the order of time."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from obscodec import SnapshotError, TensorArray
from obscodec.columns import CodedArray
from obscodec.runtime import temporary_folder
from obscodec.snapshots import OpenGeneration, named

import obscodec_sb3
from obscodec_sb3.base import CompressedBuffer

_ARRAYS = np.ndarray, CodedArray, TensorArray


def first_items(path: Path, n: int) -> dict[str, npt.NDArray[np.generic]]:
    """The oldest ``n`` steps of the first environment: see ``obscodec.cli.doctor.saved``.

    Raises:
        SnapshotError: the snapshot is damaged, has no steps, or is of a class that this package does not have.
    """
    opened = OpenGeneration(path)
    kind, arguments = opened.kind, opened.arguments()
    cls = getattr(obscodec_sb3, kind, None)
    if not (isinstance(cls, type) and issubclass(cls, CompressedBuffer)):
        raise SnapshotError(f"{path} has a {kind}, which is no class of obscodec_sb3: save its arrays with numpy.savez")
    options: dict[str, Any] = {"device": "cpu", "buffer_device": "cpu", "heap": "device", "continue_episodes": True}
    if "env" in cls.__signature__.parameters:  # type: ignore[attr-defined]
        options["env"] = None  # of HerReplayBuffer, to compute rewards
    with temporary_folder() as folder:
        buffer = cls.load(path, spill=folder if arguments.get("spill") else None, **options)
        if not buffer.size():
            raise SnapshotError(f"{path} has a {kind} without steps")
        rows = (buffer.pos - buffer.size() + np.arange(min(n, buffer.size()))) % buffer.buffer_size
        items, n_envs, size = dict[str, npt.NDArray[np.generic]](), buffer.n_envs, buffer.buffer_size
        with named(path):
            for name, array in vars(buffer).items():
                for key, of in array.items() if isinstance(array, dict) else [("", array)]:
                    if isinstance(of, _ARRAYS) and of.shape[:1] in ((size,), (size * n_envs,)):
                        is_flat = of.shape[:2] != (size, n_envs)  # a rollout that was read: one environment first
                        items[f"{name}.{key}" if key else name] = np.asarray(of[rows] if is_flat else of[rows, 0])
    return items
