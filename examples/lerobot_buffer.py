# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
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
# ///
"""LeRobot's replay buffer with compressed images.

uv run examples/lerobot_buffer.py --steps 5000

``compressed`` makes the class from LeRobot's own, of which it calls one method more::

    from lerobot.rl.buffer import ReplayBuffer
    from lerobot_buffer import compressed

    buffer = compressed(ReplayBuffer)(capacity=100_000, device="cuda", state_keys=state_keys)

``_initialize_storage`` and what it sets were compared with LeRobot 0.4.4 and its main branch in November 2026. LeRobot
does not install with this torch. So the program fills ``Plain`` here, which has the same tensors and fills and reads
them as LeRobot does, but has only what storage needs. It plays MsPacman, compares all batches, and prints what both
take. LeRobot keeps all images as floats, those of bytes, too.
"""

import time
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import torch
import typer
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from obscodec import AutoStore, Layout, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.torch import CompressedTensor

IMAGE = "observation.images.front"
MIN_NBYTES = 1024  # of an item; smaller ones stay as they are
State = dict[str, torch.Tensor]
Batch = dict[str, Any]


def compressed(buffer_class: Any) -> Any:
    """LeRobot's ReplayBuffer with each image stored once, for states and next states together."""

    def initialize_storage(self: Any, *args: Any, **options: Any) -> None:
        buffer_class._initialize_storage(self, *args, **options)
        for key, items in self.states.items():
            layout = Layout(tuple(items.shape[1:]), str(items.dtype).removeprefix("torch."))
            if layout.nbytes >= MIN_NBYTES:
                rows = WriteBuffer(AutoStore(layout), n_envs=1)
                arrays = [TensorArray.zeros((self.capacity,), rows.store, rows) for _ in range(2)]
                self.states[key] = CompressedTensor(arrays[0], self.storage_device)
                if not self.optimize_memory:
                    self.next_states[key] = CompressedTensor(arrays[1], self.storage_device)

    return type("CompressedBuffer", (buffer_class,), {"_initialize_storage": initialize_storage})


class Plain:
    """The storage of LeRobot's ReplayBuffer: a tensor for each key, written item by item, read by an index."""

    def __init__(self, capacity: int, *, storage_device: str = "cpu", optimize_memory: bool = False) -> None:
        self.capacity, self.storage_device, self.optimize_memory = capacity, storage_device, optimize_memory
        self.position = self.size = 0
        self.states: State = {}

    def _initialize_storage(self, state: State, action: torch.Tensor) -> None:
        def empty(like: State) -> State:
            shapes = {key: (self.capacity, *x.shape[1:]) for key, x in like.items()}
            return {key: torch.empty(shape, device=self.storage_device) for key, shape in shapes.items()}

        self.states = empty(state)
        self.next_states = self.states if self.optimize_memory else empty(state)
        self.others = empty({"action": action, "reward": torch.zeros(1), "done": torch.zeros(1)})

    def add(self, state: State, action: torch.Tensor, reward: float, next_state: State, *, done: bool) -> None:
        """Store a transition; all tensors have an axis of length 1 before the others."""
        if not self.states:
            self._initialize_storage(state, action)
        for key in self.states:
            self.states[key][self.position].copy_(state[key].squeeze(0))
            if not self.optimize_memory:
                self.next_states[key][self.position].copy_(next_state[key].squeeze(0))
        self.others["action"][self.position].copy_(action.squeeze(0))
        self.others["reward"][self.position], self.others["done"][self.position] = reward, done
        self.position = (self.position + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch: int) -> Batch:
        """Random transitions."""
        rows = torch.randint(self.size - self.optimize_memory, (batch,))
        following = (rows + 1) % self.capacity if self.optimize_memory else rows
        states = {key: x[rows] for key, x in self.states.items()}
        next_states = {key: x[following] for key, x in self.next_states.items()}
        return {"state": states, "next_state": next_states, **{key: x[rows] for key, x in self.others.items()}}


def are_same(one: Any, other: Any) -> bool:
    """Whether two batches have the same numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_same(one[key], other[key]) for key in one)
    return one.dtype == other.dtype and torch.equal(one, other)


def play(buffers: dict[str, Any], steps: int, spent: dict[str, list[float]]) -> None:
    """Add transitions of a game to all buffers."""
    gym.register_envs(ale_py)
    env = FrameStackObservation(AtariPreprocessing(gym.make("ALE/MsPacman-v5", frameskip=1)), 4)
    rng = np.random.default_rng(0)

    def state_of(frames: Any) -> State:
        return {IMAGE: torch.from_numpy(np.array(frames))[None], "observation.state": torch.full((1, 6), steps * 0.1)}

    state = state_of(env.reset(seed=0)[0])
    for _ in range(steps):
        action = int(rng.integers(9))
        frames, reward, terminated, truncated, _ = env.step(action)
        next_state = state_of(frames)
        for name, buffer in buffers.items():
            began = time.perf_counter()
            buffer.add(state, torch.tensor([[action]]), float(reward), next_state, done=terminated)
            spent[name].append(time.perf_counter() - began)
        state = state_of(env.reset()[0]) if terminated or truncated else next_state


def main(steps: int = 5000, rounds: int = 100) -> None:
    """Fill both, compare batches, and print what each takes."""
    torch.set_num_threads(1)
    buffers = {"plain": Plain(steps), "compressed": compressed(Plain)(steps)}
    adding: dict[str, list[float]] = {name: [] for name in buffers}
    sampling: dict[str, list[float]] = {name: [] for name in buffers}
    play(buffers, steps, adding)
    store = buffers["compressed"].states[IMAGE].array.store
    store.decide()
    for k in range(rounds):
        batches = []
        for name in sorted(buffers, reverse=bool(k % 2)):
            torch.manual_seed(k)
            began = time.perf_counter()
            batches.append(buffers[name].sample(256))
            sampling[name].append(time.perf_counter() - began)
        if not are_same(*batches):
            raise AssertionError("a batch differs")
    plain = 2 * buffers["plain"].states[IMAGE][0].nbytes
    nbytes = {"plain": plain, "compressed": store.stats().total_bytes / steps + 8}
    print(f"{'MsPacman, images of a transition':<34} {'bytes':>9} {'add, µs':>9} {'sample(256), ms':>16}")
    for name in buffers:
        add, sample = 1e6 * np.median(adding[name]), 1e3 * np.median(sampling[name])
        print(f"{name:<34} {nbytes[name]:9,.0f} {add:9.1f} {sample:16.2f}")


if __name__ == "__main__":
    typer.run(main)
