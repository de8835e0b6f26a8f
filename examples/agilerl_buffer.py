# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = [
#     "obscodec",
#     "agilerl==2.58.0",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "opencv-python-headless==5.0.0.93",
#     "torch==2.15.0",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
#
# [[tool.uv.dependency-metadata]]  # what AgileRL's buffers import, a third of what the package asks for
# name = "agilerl"
# version = "2.58.0"
# requires-dist = ["accelerate>=1.7.0", "agilerl-arena>=1.28.0,<2.0", "gymnasium>=1.0.0", "lazy-loader>=0.4",
#     "packaging>=20.0", "pydantic>=2.0,<3", "tensordict==0.13.0", "torch>=2.11.0"]
# ///
"""AgileRL's replay buffers with compressed observations.

uv run examples/agilerl_buffer.py --steps 5000

``compressed`` makes a class from one of AgileRL's, which allocates other tensors and is the same otherwise::

    from agilerl.components import MultiStepReplayBuffer, PrioritizedReplayBuffer
    from agilerl_buffer import compressed

    memory = compressed(PrioritizedReplayBuffer)(max_size=1_000_000, alpha=0.6, device="cuda")
    n_step_memory = compressed(MultiStepReplayBuffer)(max_size=1_000_000, n_step=3, device="cuda")

Observations may be dictionaries and tuples, and those of several agents. The program plays MsPacman in some
environments, fills buffers of both kinds until they write their rows again, compares all batches, and prints what both
take. AgileRL is for Python below 3.14.
"""

import time
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import torch
import typer
from agilerl.components import (  # pyright: ignore[reportMissingImports]
    MultiStepReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)
from agilerl.components.data import (  # pyright: ignore[reportMissingImports]
    Transition,
    transition_to_tensordict,
)
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from obscodec import AutoStore, Layout, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.torch import CompressedTensor

MIN_NBYTES = 1024  # of an item; smaller ones stay as they are


def compressed(buffer_class: Any) -> Any:
    """A class of AgileRL's buffers with each observation stored once, for ``obs`` and ``next_obs`` together."""

    def init(self: Any, data: Any) -> Any:
        large = {key: items for key, items in data.items(True, True) if items[0].nbytes >= MIN_NBYTES}
        storage, written, n_envs = buffer_class._init(self, data.exclude(*large)), dict[Any, WriteBuffer](), len(data)
        for key, items in large.items():
            layout = Layout(tuple(items.shape[1:]), str(items.dtype).removeprefix("torch."))
            of = layout, key[1:] if isinstance(key, tuple) else ()  # such as an agent, in obs and in next_obs
            rows = written.setdefault(of, WriteBuffer(AutoStore(layout), n_envs))
            storage[key] = CompressedTensor(TensorArray.zeros((self.max_size,), rows.store, rows), self.device)
        return storage

    return type(f"Compressed{buffer_class.__name__}", (buffer_class,), {"_init": init})


def play(buffers: dict[str, Any], steps: int, n_envs: int) -> dict[str, list[float]]:
    """Add transitions of a game to all buffers; how long each took for each step, in seconds."""
    gym.register_envs(ale_py)

    def make() -> gym.Env[Any, Any]:
        return FrameStackObservation(AtariPreprocessing(gym.make("ALE/MsPacman-v5", frameskip=1)), 4)

    envs = gym.vector.SyncVectorEnv([make] * n_envs)
    rng, spent = np.random.default_rng(0), {name: list[float]() for name in buffers}
    obs = envs.reset(seed=0)[0]
    for _ in range(steps):
        action = rng.integers(9, size=n_envs)
        next_obs, reward, terminated, _, _ = envs.step(action)
        parts = {"obs": obs, "action": action, "next_obs": next_obs, "reward": reward, "done": terminated}
        transition = transition_to_tensordict(Transition(**parts))
        transition.batch_size = torch.Size([n_envs])
        for name, buffer in buffers.items():
            began = time.perf_counter()
            buffer.add(transition)
            spent[name].append(time.perf_counter() - began)
        obs = next_obs
    return spent


def sample(buffers: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Compare batches of all buffers; how long each took for each batch, in seconds."""
    spent = {name: list[float]() for name in buffers}
    for k in range(rounds):
        batches = []
        for name in sorted(buffers, reverse=bool(k % 2)):
            torch.manual_seed(k)
            began = time.perf_counter()
            batches.append(buffers[name].sample(256))
            spent[name].append(time.perf_counter() - began)
        one, other = ({key: x.numpy() for key, x in batch.items()} for batch in batches)
        if one.keys() != other.keys() or any(x.tobytes() != other[key].tobytes() for key, x in one.items()):
            raise AssertionError("a batch differs")
    return spent


def main(steps: int = 5000, n_envs: int = 4, rounds: int = 100) -> None:
    """Fill both kinds of each class, compare batches, and print what each takes."""
    torch.set_num_threads(1)
    print(f"{f'MsPacman, {n_envs} environments':<32} {'bytes':>9} {'add, µs':>9} {'sample(256), ms':>16}")
    for buffer_class in (ReplayBuffer, MultiStepReplayBuffer, PrioritizedReplayBuffer):
        capacity = steps * 4 // 5
        buffers = {"plain": buffer_class(capacity), "compressed": compressed(buffer_class)(capacity)}
        adding = play(buffers, steps // n_envs, n_envs)
        store = buffers["compressed"].storage["obs"].array.store
        store.decide()
        sampling = sample(buffers, rounds)
        plain = 2 * buffers["plain"].storage["obs"][0].nbytes
        nbytes = {"plain": plain, "compressed": store.stats().total_bytes / capacity + 8}
        for name, buffer in buffers.items():
            add, draw = 1e6 * np.median(adding[name]) / n_envs, 1e3 * np.median(sampling[name])
            print(f"{type(buffer).__name__:<32} {nbytes[name]:9,.0f} {add:9.1f} {draw:16.2f}")


if __name__ == "__main__":
    typer.run(main)
