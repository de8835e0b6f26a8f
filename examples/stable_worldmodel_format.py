# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "h5py==3.16.0",
#     "hdf5plugin==7.1.0",
#     "imageio==2.38.1",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "opencv-python-headless==5.0.0.93",
#     "stable-worldmodel==0.1.1",
#     "torch==2.15.0",
#     "torchvision==0.29.2",
#     "typer==0.29.2",
#     "zarr==3.1.6",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# ///
"""A format of stable-worldmodel's data sets that keeps images bit for bit, and encoded.

uv run examples/stable_worldmodel_format.py --steps 2000

stable-worldmodel's default format, Lance, stores images as JPEG, which changes them, and numbers as ``float32``. This
module registers a format that returns what stable-worldmodel's HDF5 format does, bit for bit. It is a zarr group,
with an array for each column and one of the lengths of episodes, which any program reads that has zarr and obscodec::

    import stable_worldmodel_format
    from stable_worldmodel.data import convert, load_dataset

    world.collect("pusht.obscodec", episodes=100, seed=0, format="obscodec")
    convert("pusht.h5", "pusht.obscodec", dest_format="obscodec")
    dataset = load_dataset("pusht.obscodec", num_steps=4, frameskip=5)

The program plays MsPacman, writes a data set in each format, reads clips, compares them, and prints what each takes.
"""

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import ale_py
import gymnasium as gym
import numpy as np
import torch
import typer
import zarr
from obscodec.zarr import Obscodec
from stable_worldmodel.data import (  # pyright: ignore[reportMissingImports]
    Dataset,
    Format,
    get_format,
    register_format,
    validate_write_mode,
)

CHUNK_NBYTES, CHUNK_STEPS = 1 << 21, 1 << 12  # at most, of a column: what is encoded and read together
LENGTHS = "ep_len"


class Clips(Dataset):
    """What reads clips."""

    column_names: list[str] = []  # noqa: RUF012  # in the place of a property

    def __init__(self, path: Any, keys_to_load: list[str] | None = None, **options: Any) -> None:
        self.group: Any = zarr.open_group(path, mode="r")
        lengths = np.asarray(self.group[LENGTHS])
        self.column_names = keys_to_load or sorted(key for key in self.group.array_keys() if key != LENGTHS)
        super().__init__(lengths, np.cumsum(lengths) - lengths, **options)

    def _load_slice(self, ep_idx: int, start: int, end: int) -> dict[str, torch.Tensor]:
        steps, offset = {}, int(self.offsets[ep_idx])
        for column in self.column_names:
            values = self.group[column][offset + start : offset + end][:: 1 if column == "action" else self.frameskip]
            is_image = values.ndim == 4 and values.shape[-1] in (1, 3)
            steps[column] = torch.from_numpy(values).permute(0, 3, 1, 2) if is_image else torch.from_numpy(values)
        return self.transform(steps) if self.transform else steps

    def get_col_data(self, col: str) -> np.ndarray:
        """All steps of a column."""
        return np.asarray(self.group[col][: self.lengths.sum()])

    def get_row_data(self, row_idx: int | list[int]) -> dict[str, np.ndarray]:
        """Some steps."""
        return {column: self.group[column].oindex[row_idx] for column in self.column_names}

    def get_dim(self, col: str) -> int:
        """How many numbers a step of a column has."""
        return int(np.prod(self.group[col].shape[1:]))


class Episodes:
    """What writes episodes; of one that is interrupted, nothing is read."""

    def __init__(self, path: Any, *, mode: str = "append") -> None:
        self.path, self.mode = Path(path), validate_write_mode(mode)

    def __enter__(self) -> Self:
        if self.mode == "error" and self.path.exists():
            raise FileExistsError(f"{self.path} exists; pass mode='append' or mode='overwrite'")
        self.group: Any = zarr.open_group(self.path, mode="w" if self.mode == "overwrite" else "a")
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""

    def write_episode(self, ep_data: dict[str, Any]) -> None:
        """Add an episode, ``[n_steps, *shape]`` of each column."""
        columns = {column: np.asarray(values) for column, values in ep_data.items()}
        n = len(next(iter(columns.values())))
        if LENGTHS not in self.group:
            for column, of in {**columns, LENGTHS: np.empty(0, np.int64)}.items():  # lengths last
                chunk = min(CHUNK_STEPS, max(1, CHUNK_NBYTES * max(1, len(of)) // max(1, of.nbytes)))
                layout = {"shape": (0, *of.shape[1:]), "chunks": (chunk, *of.shape[1:]), "dtype": of.dtype}
                self.group.create_array(column, **layout, serializer=Obscodec(), compressors=None, overwrite=True)
        known = {column: (of.shape[1:], of.dtype) for column, of in self.group.arrays() if column != LENGTHS}
        given = {column: (of.shape[1:], of.dtype) for column, of in columns.items()}
        if given != known or {len(of) for of in columns.values()} != {n}:
            raise ValueError(f"an episode has {n} steps of the columns {known}, got {given}")
        n_before = int(np.asarray(self.group[LENGTHS]).sum())
        for column, of in columns.items():
            self.group[column].resize((n_before, *of.shape[1:]))  # without what was interrupted
            self.group[column].append(of)
        self.group[LENGTHS].append(np.array([n]))

    def write_episodes(self, episodes: Iterable[dict[str, Any]]) -> None:
        """Add several."""
        for episode in episodes:
            self.write_episode(episode)


@register_format
class ObscodecFormat(Format):
    """Folders whose names end with ``.obscodec``."""

    name = "obscodec"

    @classmethod
    def detect(cls, path: Any) -> bool:
        """Whether this format reads a path."""
        return str(path).rstrip("/").endswith(".obscodec")

    open_reader, open_writer = Clips, Episodes


def play(steps: int, length: int = 200) -> list[dict[str, list[Any]]]:
    """Episodes of a game, cut into equal ones."""
    gym.register_envs(ale_py)
    env, rng = gym.make("ALE/MsPacman-v5"), np.random.default_rng(0)
    pixels, episodes = env.reset(seed=0)[0], list[dict[str, list[Any]]]()
    for step in range(steps):
        if step % length == 0:
            episodes.append({"pixels": [], "action": [], "reward": []})
        action = int(rng.integers(9))
        following, reward, terminated, truncated, _ = env.step(action)
        values = {"pixels": pixels, "action": np.eye(9, dtype=np.float32)[action], "reward": np.float64(reward) / 3}
        for name, value in values.items():
            episodes[-1][name].append(value)
        pixels = env.reset()[0] if terminated or truncated else following
    return episodes


def clips(path: Path, form: str, rounds: int) -> tuple[list[dict[str, torch.Tensor]], float]:
    """Clips at random, and how long one took, in seconds."""
    dataset = get_format(form).open_reader(path, num_steps=4, frameskip=5)
    indices, spent, read = np.random.default_rng(0).integers(len(dataset), size=rounds), [], []
    for k in indices:
        began = time.perf_counter()
        read.append(dataset[int(k)])
        spent.append(time.perf_counter() - began)
    return read, float(np.median(spent))


def main(steps: int = 2000, rounds: int = 200) -> None:
    """Write a data set in each format, compare clips, and print what each takes."""
    torch.set_num_threads(1)
    episodes, exact = play(steps), list[dict[str, torch.Tensor]]()
    print(f"{'MsPacman, 210x160x3':<20} {'bytes a step':>13} {'write, ms':>10} {'read, ms':>9} {'differ':>7} of all")
    for form, name in {"hdf5": "a.h5", "lance": "a.lance", "obscodec": "a.obscodec"}.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with get_format(form).open_writer(Path(folder, name)) as writer:
                writer.write_episodes(episodes)
            writing = 1e3 * (time.perf_counter() - began) / steps
            read, reading = clips(Path(folder, name), form, rounds)
            nbytes = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / steps
        exact = exact or read
        pairs = [(one, other[key]) for clip, other in zip(read, exact, strict=True) for key, one in clip.items()]
        different = sum(one.numpy().tobytes() != other.numpy().tobytes() for one, other in pairs)
        if different and form != "lance":
            raise AssertionError(f"{form}: {different} columns of clips differ")
        print(f"{form:<20} {nbytes:13,.0f} {writing:10.2f} {1e3 * reading:9.2f} {different:7,} of {len(pairs):,}")


if __name__ == "__main__":
    typer.run(main)
