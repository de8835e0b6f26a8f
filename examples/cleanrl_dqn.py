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
"""DQN on an Atari game in one file, as in CleanRL; with two parts of Rainbow: prioritized replay and n-step returns.

uv run examples/cleanrl_dqn.py --game Breakout --steps 100000 --n-step 3 --prioritized
"""

import ale_py
import gymnasium as gym
import numpy as np
import torch
import typer
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from obscodec import Field, Prioritized, RingBuffer
from torch import nn

STACK = 4


class QNetwork(nn.Module):
    """The network of the DQN paper (Mnih et al. 2015), from ``u8[n, 4, 84, 84]``."""

    def __init__(self, n_actions: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(STACK, 32, 8, 4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, n_actions),
        )  # fmt: skip

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The value of each action, ``f32[n, n_actions]``."""
        values: torch.Tensor = self.layers(pixels.float() / 255)
        return values


def make_env(game: str) -> gym.Env[np.ndarray, np.int64]:
    """A game whose observations are stacks of frames."""
    env = AtariPreprocessing(gym.make(f"ALE/{game}-v5", frameskip=1), frame_skip=4)
    return FrameStackObservation(env, STACK)


def main(
    game: str = "Pong",
    steps: int = 20_000,
    n_envs: int = 1,
    buffer_size: int = 100_000,
    batch_size: int = 32,
    n_step: int = 1,
    gamma: float = 0.99,
    prioritized: bool = False,
    device: str = "cpu",
    seed: int = 0,
) -> None:
    """Train, and print how much memory the frames take."""
    gym.register_envs(ale_py)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = SyncVectorEnv([lambda: make_env(game)] * n_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    assert isinstance(envs.single_action_space, gym.spaces.Discrete)
    n_actions = int(envs.single_action_space.n)
    network, target = QNetwork(n_actions).to(device), QNetwork(n_actions).to(device)
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)

    fields = {
        "obs": Field((84, 84), np.uint8),
        "next_obs": Field((84, 84), np.uint8, next_of="obs"),
        "action": Field((), np.int64),
        "reward": Field((), np.float32),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    }
    buffer = RingBuffer(
        max(buffer_size // n_envs, 1),
        fields,
        n_envs,
        stack={"obs": STACK},
        pad="edge",  # as FrameStackObservation pads
        episode_end=("terminated", "truncated"),
    )
    priorities = Prioritized(buffer.capacity * n_envs) if prioritized else None

    obs, _ = envs.reset(seed=seed)
    loss, real_next_obs = torch.zeros(()), obs
    for step in range(steps // n_envs):
        epsilon = max(0.05, 1 - 2 * step * n_envs / steps)
        with torch.no_grad():
            greedy = network(torch.from_numpy(obs).to(device)).argmax(dim=1).cpu().numpy()
        actions = np.where(rng.random(n_envs) < epsilon, rng.integers(n_actions, size=n_envs), greedy)
        next_obs, rewards, terminated, truncated, infos = envs.step(actions)
        real_next_obs = next_obs.copy()
        for env in np.flatnonzero(terminated | truncated):
            real_next_obs[env] = infos["final_obs"][env]
        buffer.append(
            obs=obs[:, -1],  # the newest frame: the buffer stacks
            next_obs=real_next_obs[:, -1],
            action=actions,
            reward=np.sign(rewards),
            terminated=terminated,
            truncated=truncated,
        )
        obs = next_obs
        if step * n_envs < min(1_000, steps // 2) or step % 4:
            continue
        batch, indices = buffer.sample(
            batch_size, rng, p=priorities, n_step=n_step, gamma=gamma, return_indices=True, to=device
        )
        with torch.no_grad():
            best = target(batch["next_obs"]).max(dim=1).values
            expected = batch["reward"] + batch["discount"] * best * ~batch["terminated"]
        values = network(batch["obs"]).gather(1, batch["action"][:, None])[:, 0]
        errors = nn.functional.smooth_l1_loss(values, expected, reduction="none")
        if priorities is None:
            loss = errors.mean()
        else:
            loss = (errors * torch.from_numpy(priorities.weights(indices)).to(device)).mean()
            priorities.update(indices, (values - expected).abs().detach().cpu())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step % 1_000 == 0:
            target.load_state_dict(network.state_dict())

    seen = buffer[-1, 0]
    assert (seen["next_obs"] == real_next_obs[0]).all()  # the stack of the buffer is the one of the environment
    stats = buffer.stats()
    print(f"{len(buffer) * n_envs} transitions, the last loss is {loss.item():.4f}")
    print(f"a transition takes {stats.total_bytes / len(buffer) / n_envs:,.0f} bytes, not {2 * obs[0].nbytes:,}")


if __name__ == "__main__":
    typer.run(main)
