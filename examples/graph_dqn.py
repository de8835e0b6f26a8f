# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "obscodec-cupy[cuda12]",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "torch==2.15.0",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# obscodec-cupy = { path = "../packages/obscodec-cupy", editable = true }
# ///
"""Learn from Atari on a GPU: drawing, decoding, shifting and the update are one CUDA graph.

uv run examples/graph_dqn.py --game ms_pacman --steps 200000
uv run examples/graph_dqn.py --no-graph --stock    # of uncompressed tensors on the GPU, without a graph, to compare

Images are shifted at random, as DrQ does (https://arxiv.org/abs/2004.13649).
"""

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import obscodec
import torch
import typer
from ale_py import AtariVectorEnv
from torch import nn

STACK, SIDE, MOST_SHIFT = 4, 84, 4
SHAPE = STACK, SIDE, SIDE
Arrays = list[Any]


class Compressed:
    """Observations and next observations, compressed in GPU memory; ``[n_steps, n_envs, 4, 84, 84]`` both."""

    def __init__(self, n_steps: int, n_envs: int, shape: tuple[int, ...] = SHAPE) -> None:
        from obscodec_cupy import BatchReader

        stack = obscodec.FrameStack(shape[0])
        store = obscodec.FrameStore(
            obscodec.Layout(shape, np.uint8), codec="delta-rle", block_frames=8, frame_stack=stack, device="cuda"
        )
        self.store = store
        self._arrays = [obscodec.TensorArray.zeros((n_steps, n_envs), store) for _ in range(2)]
        self._reader = BatchReader(self._arrays, dtype="float32", scale=1 / 255, shifted_axes=(1, 2))

    def write(self, step: int, obs: Any, next_obs: Any) -> None:
        """Store a step of all environments."""
        self._arrays[0][step], self._arrays[1][step] = obs, next_obs

    def sync(self, places: torch.Tensor) -> None:
        """Have the GPU know what was written. A graph can't do this."""
        self._reader.sync(places)

    def read(self, places: torch.Tensor, outs: Arrays, shifts: Arrays) -> None:
        """Items as ``f32[n, 4, 84, 84]``, of 0 to 1, each shifted by its ``i32[n, 2]``."""
        self._reader.read(places, outs, shifts)

    def bytes_per_step(self, n: int) -> float:
        """Of a transition, of which there are ``n``."""
        return self.store.stats().total_bytes / n


class Plain:
    """The same as tensors of torch, uncompressed."""

    def __init__(self, n_steps: int, n_envs: int, device: str, shape: tuple[int, ...] = SHAPE) -> None:
        self._n_envs = n_envs
        self._tensors = [torch.zeros((n_steps * n_envs, *shape), dtype=torch.uint8, device=device) for _ in range(2)]

    def write(self, step: int, obs: Any, next_obs: Any) -> None:
        """See :class:`Compressed`."""
        for tensor, x in zip(self._tensors, (obs, next_obs), strict=True):
            tensor[step * self._n_envs : (step + 1) * self._n_envs] = torch.from_numpy(x).to(tensor.device)

    def sync(self, places: torch.Tensor) -> None:
        """Nothing to do."""

    def read(self, places: torch.Tensor, outs: Arrays, shifts: Arrays) -> None:
        """See :class:`Compressed`."""
        for tensor, out, shift in zip(self._tensors, outs, shifts, strict=True):
            picked = tensor[places]
            for axis in (2, 3):
                side = picked.shape[axis]
                at = (torch.arange(side, device=picked.device) + shift[:, axis - 2, None]).clamp(0, side - 1)
                index = at[:, None, :, None] if axis == 2 else at[:, None, None, :]
                picked = picked.gather(axis, index.expand(picked.shape))
            torch.mul(picked, 1 / 255, out=out)

    def bytes_per_step(self, n: int) -> float:
        """See :class:`Compressed`."""
        return sum(tensor[:n].nbytes for tensor in self._tensors) / n


class Learner:
    """A DQN whose update works in tensors that stay where they are, as a graph needs it.

    Args:
        images: a :class:`Compressed` or :class:`Plain`.
        n_items: how many transitions ``images`` has room for.
        n_actions: of the environment.
        batch: transitions of an update.
        device: of torch.
        shape: of an observation.
    """

    def __init__(
        self, images: Any, n_items: int, n_actions: int, batch: int, device: str, shape: tuple[int, ...] = SHAPE
    ) -> None:
        self.images, self.n = images, 0
        self.actions = torch.zeros(n_items, dtype=torch.int64, device=device)
        self.rewards, self.continues = (torch.zeros(n_items, device=device) for _ in range(2))
        self.network, self.target = (_network(shape, n_actions).to(device) for _ in range(2))
        self.target.load_state_dict(self.network.state_dict())
        on_gpu = device.startswith("cuda")
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-4, capturable=on_gpu)
        self.drawn = torch.zeros(batch, device=device)
        self._n = torch.zeros((), device=device)  # of self.n, which grows after the graph was recorded
        self.places = torch.zeros(batch, dtype=torch.int64, device=device)
        self.shifts = [torch.zeros((batch, 2), dtype=torch.int32, device=device) for _ in range(2)]
        self.batch = [torch.zeros((batch, *shape), device=device) for _ in range(2)]
        self.loss = torch.zeros((), device=device)

    def write(self, step: int, obs: Any, next_obs: Any, actions: Any, rewards: Any, terminated: Any) -> None:
        """Store a step of all environments."""
        self.images.write(step, obs, next_obs)
        rows = slice(step * len(actions), (step + 1) * len(actions))
        for tensor, x in ((self.actions, actions), (self.rewards, rewards), (self.continues, ~terminated)):
            tensor[rows] = torch.from_numpy(np.asarray(x)).to(tensor)
        self.n = max(self.n, rows.stop)
        self._n.fill_(self.n)

    def update(self) -> None:
        """Draw, decode, shift, and improve the network."""
        torch.mul(self.drawn.uniform_(), self._n, out=self.drawn)
        self.places.copy_(self.drawn.clamp_(max=self._n - 1))
        for shift in self.shifts:
            shift.random_(-MOST_SHIFT, MOST_SHIFT + 1)
        self.images.read(self.places, self.batch, self.shifts)
        obs, next_obs = self.batch
        with torch.no_grad():
            best = self.target(next_obs).max(dim=1).values
            expected = self.rewards[self.places] + 0.99 * best * self.continues[self.places]
        values = self.network(obs).gather(1, self.actions[self.places][:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(values, expected)
        self._optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(loss)
        self._optimizer.step()
        with torch.no_grad():
            self.loss.copy_(loss)
            for old, new in zip(self.target.parameters(), self.network.parameters(), strict=True):
                old.lerp_(new, 0.005)

    def recorded(self) -> Callable[[], None]:
        """:meth:`update` as a CUDA graph."""
        cuda: Any = torch.cuda
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            for _ in range(3):  # what torch and the kernels do once
                self.update()
        cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with cuda.graph(graph):
            self.update()
        return graph.replay


def _network(shape: tuple[int, ...], n_actions: int) -> nn.Module:
    encoder = nn.Sequential(nn.Conv2d(shape[0], 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten())
    n_features = encoder(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(encoder, nn.Linear(n_features, 256), nn.ReLU(), nn.Linear(256, n_actions))


def main(
    game: str = "ms_pacman",
    steps: int = 100_000,
    n_envs: int = 8,
    buffer_size: int = 100_000,
    batch_size: int = 256,
    updates: int = 2,
    seed: int = 0,
    graph: bool = True,
    stock: bool = False,
) -> None:
    """Play, learn, and print how fast that is and how much memory a transition takes."""
    started = 200  # steps of all environments before the first update
    if steps <= started * n_envs:
        raise typer.BadParameter(f"updates begin after {started * n_envs} steps: pass more --steps than {steps}")
    if not torch.cuda.is_available():
        print("skipped: there is no GPU here")
        raise typer.Exit
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = AtariVectorEnv(game, n_envs, stack_num=STACK)
    assert isinstance(envs.single_action_space, gym.spaces.Discrete)
    n_steps, n_actions = buffer_size // n_envs, int(envs.single_action_space.n)
    images = Plain(n_steps, n_envs, "cuda") if stock else Compressed(n_steps, n_envs)
    learner = Learner(images, n_steps * n_envs, n_actions, batch_size, "cuda")
    update = learner.update
    obs, _ = envs.reset(seed=seed)
    began = time.perf_counter()
    for step in range(steps // n_envs):
        with torch.no_grad():
            greedy = learner.network(torch.from_numpy(obs).to("cuda").float() / 255).argmax(dim=1).cpu().numpy()
        actions = np.where(rng.random(n_envs) < 0.1, rng.integers(n_actions, size=n_envs), greedy)
        next_obs, rewards, terminated, _, _ = envs.step(actions)
        learner.write(step % n_steps, obs, next_obs, actions, rewards.astype(np.float32), terminated)
        obs = next_obs
        if step < started:
            continue
        images.sync(learner.places)
        if step == started:
            update, began = learner.recorded() if graph else learner.update, time.perf_counter()
        for _ in range(updates):
            update()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    print(f"{learner.n} transitions are stored, the last loss is {learner.loss.item():.4f}")
    print(f"{(steps - started * n_envs) / seconds:,.0f} steps per second, {updates} updates for {n_envs} of them")
    print(f"a transition takes {images.bytes_per_step(learner.n):,.0f} bytes, not {2 * obs[0].nbytes:,}")


if __name__ == "__main__":
    typer.run(main)
