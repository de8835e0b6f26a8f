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
"""PPO on an Atari game, from rollouts of compressed frames.

uv run examples/ppo_rollout.py --game Breakout --steps 200000
"""

import gymnasium as gym
import numpy as np
import torch
import typer
from ale_py import AtariVectorEnv
from obscodec import Field, RingBuffer
from torch import nn

STACK = 4


class ActorCritic(nn.Module):
    """Logits of the actions, and the value, from ``u8[n, 4, 84, 84]``."""

    def __init__(self, n_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(STACK, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        )  # fmt: skip
        self.actor, self.critic = nn.Linear(512, n_actions), nn.Linear(512, 1)

    def forward(self, pixels: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        """The policy, and the values ``f32[n]``."""
        features = self.body(pixels.float() / 255)
        return torch.distributions.Categorical(logits=self.actor(features)), self.critic(features)[:, 0]


def advantages(
    rewards: np.ndarray, values: np.ndarray, ends: np.ndarray, last_value: np.ndarray, gamma: float, decay: float
) -> np.ndarray:
    """Generalized advantages ``f32[n_steps, n_envs]`` (Schulman et al. 2016)."""
    following = np.concatenate([values[1:], last_value[None]])
    errors = rewards + gamma * following * ~ends - values
    found: np.ndarray = np.zeros_like(errors)
    sum_of_errors = np.zeros_like(last_value)
    for step in reversed(range(len(errors))):
        sum_of_errors = errors[step] + gamma * decay * ~ends[step] * sum_of_errors
        found[step] = sum_of_errors
    return found


def main(
    game: str = "pong",
    steps: int = 50_000,
    n_envs: int = 8,
    rollout: int = 128,
    batch_size: int = 256,
    n_epochs: int = 4,
    device: str = "cpu",
    seed: int = 0,
) -> None:
    """Train, and print how much memory a rollout takes."""
    torch.manual_seed(seed)
    envs = AtariVectorEnv(game.lower(), n_envs, stack_num=STACK, autoreset_mode="SameStep")
    assert isinstance(envs.single_action_space, gym.spaces.Discrete)
    agent = ActorCritic(int(envs.single_action_space.n)).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4)
    fields = {
        "obs": Field((STACK, 84, 84), np.uint8),  # whole stacks: the buffer finds out how they overlap
        "action": Field((), np.int64),
        "log_prob": Field((), np.float32),
    }
    buffer = RingBuffer(rollout, fields, n_envs)
    rewards, values = np.zeros((2, rollout, n_envs), np.float32)
    ends = np.zeros((rollout, n_envs), np.bool_)

    obs, _ = envs.reset(seed=seed)
    loss, n_updates = torch.zeros(()), max(steps // (rollout * n_envs), 1)
    for update in range(n_updates):
        buffer.clear()
        for step in range(rollout):
            with torch.no_grad():
                policy, value = agent(torch.from_numpy(obs).to(device))
                action = policy.sample()
            buffer.append(obs=obs, action=action.cpu(), log_prob=policy.log_prob(action).cpu())
            obs, rewards[step], terminated, truncated, _ = envs.step(action.cpu().numpy())
            values[step], ends[step] = value.cpu(), np.logical_or(terminated, truncated)
        with torch.no_grad():
            last_value = agent(torch.from_numpy(obs).to(device))[1].cpu().numpy()
        gained = advantages(rewards, values, ends, last_value, 0.99, 0.95)
        for batch, indices in buffer.epochs(
            batch_size, seed + update, n_epochs=n_epochs, to=device, return_indices=True
        ):
            place = np.divmod(indices - buffer.indices[0], n_envs)  # steps and environments
            advantage = torch.from_numpy(gained[place]).to(device)
            expected = torch.from_numpy((gained + values)[place]).to(device)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy, value = agent(batch["obs"])
            ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage).mean()
            loss = (value - expected).square().mean() / 2 - gain - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    stats = buffer.stats()
    print(f"{n_updates} rollouts, the last loss is {loss.item():.4f}")
    print(f"a rollout takes {stats.total_bytes:,} bytes, not {stats.raw_bytes:,}")


if __name__ == "__main__":
    typer.run(main)
