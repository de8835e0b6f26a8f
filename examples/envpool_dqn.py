# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
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
# ///
"""Collect and learn from 64 Atari environments that step together, as EnvPool's do, with frames of a byte per pixel.

uv run examples/envpool_dqn.py --game breakout --steps 200000

The environments reset themselves: the step after the end of an episode ignores the action. ``mask`` keeps such steps
out of batches.
"""

import time

import gymnasium as gym
import numpy as np
import torch
import typer
from ale_py import AtariVectorEnv
from obscodec import Field, RingBuffer
from torch import nn

STACK = 4


def main(
    game: str = "pong",
    steps: int = 100_000,
    n_envs: int = 64,
    buffer_size: int = 200_000,
    batch_size: int = 256,
    device: str = "cpu",
    seed: int = 0,
) -> None:
    """Play, learn a value of each action, and print how fast that is and how much memory it takes."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = AtariVectorEnv(game.lower(), n_envs, stack_num=STACK, autoreset_mode="NextStep")
    assert isinstance(envs.single_action_space, gym.spaces.Discrete)
    n_actions = int(envs.single_action_space.n)
    network = nn.Sequential(
        nn.Conv2d(STACK, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(5184, 256), nn.ReLU(), nn.Linear(256, n_actions),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    fields = {
        "obs": Field((STACK, 84, 84), np.uint8),  # whole stacks: the buffer finds out how they overlap
        "next_obs": Field((STACK, 84, 84), np.uint8, next_of="obs"),
        "action": Field((), np.int64),
        "reward": Field((), np.float32),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
        "valid": Field((), np.bool_),
    }
    ends = ("terminated", "truncated")
    buffer = RingBuffer(max(buffer_size // n_envs, 1), fields, n_envs, episode_end=ends, mask="valid")

    obs, _ = envs.reset(seed=seed)
    resets: np.ndarray = np.zeros(n_envs, np.bool_)
    loss, began, in_buffer = torch.zeros(()), time.perf_counter(), 0.0
    for _ in range(max(steps // n_envs, 2)):
        with torch.no_grad():
            greedy = network(torch.from_numpy(obs).to(device).float() / 255).argmax(dim=1).cpu().numpy()
        actions = np.where(rng.random(n_envs) < 0.1, rng.integers(n_actions, size=n_envs), greedy)
        next_obs, rewards, terminated, truncated, _ = envs.step(actions)
        start = time.perf_counter()
        buffer.append(
            obs=obs,
            next_obs=next_obs,
            action=actions,
            reward=rewards,
            terminated=terminated,
            truncated=truncated,
            valid=~resets,
        )
        batch = buffer.sample(batch_size, rng, to=device)
        in_buffer += time.perf_counter() - start
        obs, resets = next_obs, np.logical_or(terminated, truncated)
        with torch.no_grad():
            best = network(batch["next_obs"].float() / 255).max(dim=1).values
            expected = batch["reward"] + 0.99 * best * ~batch["terminated"]
        values = network(batch["obs"].float() / 255).gather(1, batch["action"][:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(values, expected)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    seconds, n = time.perf_counter() - began, len(buffer) * n_envs
    stats = buffer.stats()
    print(f"{n} transitions are stored, the last loss is {loss.item():.4f}")
    print(f"{steps / seconds:,.0f} steps per second; the buffer took {100 * in_buffer / seconds:.0f} % of the time")
    print(f"a transition takes {stats.total_bytes / n:,.0f} bytes, not {2 * obs[0].nbytes:,}")


if __name__ == "__main__":
    typer.run(main)
