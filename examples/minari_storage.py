# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "h5py==3.16.0",
#     "minari==0.5.4",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "pillow==13.0.0",
#     "pyarrow==26.0.1",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# ///
"""A format of Minari's data sets that keeps images bit for bit, and packed.

uv run examples/minari_storage.py --steps 2000

Minari stores images as JPEG, which changes them, or as they are. This module adds a third format; whoever reads such a
data set imports it, too::

    import minari
    import minari_storage

    env = minari.DataCollector(env, data_format="obscodec")
    dataset = minari.load_dataset("my/dataset-v0")

``CompressedStorage`` is Minari's HDF5 storage, but for the images in observations and actions, also in those that are
dictionaries or tuples. The program plays MsPacman, writes a data set in each format, reads all episodes, compares them,
and prints what each takes.
"""

import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import obscodec
import typer
from gymnasium.spaces import Dict, Space, Tuple
from minari.data_collector import EpisodeBuffer
from minari.dataset._storages import _registry
from minari.dataset._storages.hdf5_storage import HDF5Storage
from minari.dataset.minari_storage import MinariStorage, is_image_space


def packed(space: Space[Any], values: Any) -> Any:
    """Observations or actions of an episode with bytes in the place of images."""
    if isinstance(space, Dict):
        return {key: packed(space[key], of) for key, of in values.items()}
    if isinstance(space, Tuple):
        return tuple(packed(*of) for of in zip(space.spaces, values, strict=True))
    return np.frombuffer(obscodec.pack(np.asarray(values)), np.uint8) if is_image_space(space) else values


class CompressedStorage(HDF5Storage):
    """Minari's HDF5 with the images of each episode packed."""

    FORMAT = "obscodec"

    def __init__(self, data_path: Path, observation_space: Any, action_space: Any, jpeg_encoding: bool = False) -> None:
        super().__init__(data_path, observation_space, action_space, jpeg_encoding=False)

    def update_episodes(self, episodes: Iterable[EpisodeBuffer]) -> None:
        """Add episodes, or steps to those that are there."""
        spaces = {"observations": self.observation_space, "actions": self.action_space}
        for of in episodes:
            with_bytes = {name: packed(space, getattr(of, name)) for name, space in spaces.items()}
            super().update_episodes([replace(of, **with_bytes)])

    def _decode_space(self, hdf_ref: Any, space: Space[Any]) -> Any:
        if is_image_space(space):
            return np.concatenate([*obscodec.unpack(hdf_ref[()])])
        return super()._decode_space(hdf_ref, space)


_registry["obscodec"] = lambda: CompressedStorage

FORMATS: dict[str, dict[str, Any]] = {
    "hdf5, as they are": {"data_format": "hdf5", "jpeg_encoding": False},
    "hdf5, JPEG": {"data_format": "hdf5"},
    "parquet, as they are": {"data_format": "parquet", "jpeg_encoding": False},
    "parquet, JPEG": {"data_format": "parquet"},
    "obscodec": {"data_format": "obscodec"},
}


def play(env: gym.Env[Any, Any], steps: int) -> list[EpisodeBuffer]:
    """Episodes of a game, the last of which is cut."""
    rng, episodes = np.random.default_rng(0), list[EpisodeBuffer]()
    while steps:
        observations, actions, rewards = [env.reset(seed=len(episodes))[0]], list[int](), list[float]()
        ends: list[tuple[bool, bool]] = []
        while steps and not (ends and any(ends[-1])):
            actions.append(int(rng.integers(9)))
            obs, reward, terminated, truncated, _ = env.step(actions[-1])
            steps -= 1
            observations.append(obs)
            rewards.append(float(reward))
            ends.append((terminated, truncated or not steps))
        terminations, truncations = map(list, zip(*ends, strict=True))
        steps_of = EpisodeBuffer(observations=observations, actions=actions, rewards=rewards)
        episodes.append(replace(steps_of, terminations=terminations, truncations=truncations))
    return episodes


def count_different(storage: MinariStorage, episodes: list[EpisodeBuffer]) -> int:
    """How many images are not as they were given; all else must be."""
    different = 0
    for read, given in zip(storage.get_episodes(range(len(episodes))), map(vars, episodes), strict=True):
        for name in ("actions", "rewards", "terminations", "truncations"):
            if not np.array_equal(read[name], given[name]):
                raise AssertionError(f"{name} differ")
        images = zip(read["observations"], given["observations"], strict=True)
        different += sum(a.tobytes() != b.tobytes() for a, b in images)
    return different


def main(steps: int = 2000) -> None:
    """Write a data set in each format, compare what is read, and print what each takes."""
    gym.register_envs(ale_py)
    env = gym.make("ALE/MsPacman-v5")
    episodes = play(env, steps)
    print(f"{'MsPacman, 210x160x3':<22} {'bytes a step':>13} {'write, ms':>10} {'read, ms':>9} {'differ':>7} of all")
    for name, options in FORMATS.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            storage = MinariStorage.new(folder, env.observation_space, env.action_space, **options)
            storage.update_episodes(episodes)
            written = time.perf_counter()
            storage = MinariStorage.read(folder)
            for _ in storage.get_episodes(range(len(episodes))):
                pass
            times = 1e3 * (written - began) / steps, 1e3 * (time.perf_counter() - written) / steps
            files = [file for file in Path(folder).rglob("*.*") if file.name != "metadata.json"]  # of the spaces: 1 MB
            nbytes = sum(file.stat().st_size for file in files) / steps
            different = count_different(storage, episodes)
        if different and "JPEG" not in name:
            raise AssertionError(f"{name}: {different} images differ")
        print(
            f"{name:<22} {nbytes:13,.0f} {times[0]:10.2f} {times[1]:9.2f} {different:12,} of {steps + len(episodes):,}"
        )


if __name__ == "__main__":
    typer.run(main)
