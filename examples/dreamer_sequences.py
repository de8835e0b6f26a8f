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
"""A world model of an Atari game, trained on sequences as Dreamer does: an encoder, a recurrent network and a decoder.

uv run examples/dreamer_sequences.py --game Breakout --steps 20000
"""

import ale_py
import gymnasium as gym
import numpy as np
import torch
import typer
from gymnasium.wrappers import AtariPreprocessing
from obscodec import Field, RingBuffer
from torch import nn


class WorldModel(nn.Module):
    """Predicts the next frame and the reward from the frames and actions so far."""

    def __init__(self, n_actions: int, n_hidden: int = 256) -> None:
        super().__init__()
        self.n_actions = n_actions
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten()
        )
        self.memory = nn.GRUCell(2592 + n_actions, n_hidden)
        self.decoder = nn.Sequential(
            nn.Linear(n_hidden, 2592), nn.Unflatten(1, (32, 9, 9)),
            nn.ConvTranspose2d(32, 16, 4, 2), nn.ReLU(), nn.ConvTranspose2d(16, 1, 8, 4),
        )  # fmt: skip
        self.reward = nn.Linear(n_hidden, 1)

    def forward(
        self, frames: torch.Tensor, actions: torch.Tensor, first: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next frames ``f32[batch, length, 84, 84]``, and the rewards ``f32[batch, length]``.

        Where ``first`` is true, an episode begins, and the memory is emptied.
        """
        batch, length = actions.shape
        encoded = self.encoder(frames.flatten(0, 1)[:, None].float() / 255).unflatten(0, (batch, length))
        inputs = torch.cat([encoded, nn.functional.one_hot(actions, self.n_actions)], dim=2)
        hidden = torch.zeros(batch, self.memory.hidden_size, device=frames.device)
        states = []
        for step in range(length):
            hidden = self.memory(inputs[:, step], hidden * ~first[:, step, None])
            states.append(hidden)
        state = torch.stack(states, dim=1).flatten(0, 1)
        return self.decoder(state).reshape(frames.shape), self.reward(state).reshape(batch, length)


def main(
    game: str = "Pong",
    steps: int = 5_000,
    length: int = 32,
    batch_size: int = 8,
    buffer_size: int = 100_000,
    device: str = "cpu",
    seed: int = 0,
) -> None:
    """Play at random, train the world model, and print how well it predicts."""
    gym.register_envs(ale_py)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = AtariPreprocessing(gym.make(f"ALE/{game}-v5", frameskip=1), frame_skip=4)
    assert isinstance(env.action_space, gym.spaces.Discrete)
    n_actions = int(env.action_space.n)
    fields = {
        "frame": Field((84, 84), np.uint8),
        "action": Field((), np.int64),
        "reward": Field((), np.float32),
        "first": Field((), np.bool_),
    }
    buffer = RingBuffer(buffer_size, fields)
    model = WorldModel(n_actions).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)

    frame, _ = env.reset(seed=seed)
    first, losses = True, []
    for step in range(steps):
        action = int(rng.integers(n_actions))
        following, reward, terminated, truncated, _ = env.step(action)
        buffer.append(frame=frame, action=action, reward=np.sign(float(reward)), first=first)
        frame, first = following, terminated or truncated
        if first:
            frame, _ = env.reset()
        if len(buffer) <= length or step % 64:
            continue
        batch = buffer.sequences(batch_size, length + 1, rng, across_episodes=True, to=device)
        frames, rewards = model(batch["frame"][:, :-1], batch["action"][:, :-1], batch["first"][:, :-1])
        expected, continues = batch["frame"][:, 1:].float() / 255, ~batch["first"][:, 1:, None, None]
        frame_loss = ((frames - expected).square() * continues).mean()
        reward_loss = (rewards - batch["reward"][:, :-1]).square().mean()
        optimizer.zero_grad()
        (frame_loss + reward_loss).backward()
        optimizer.step()
        losses.append(frame_loss.item())

    print(f"the error of predicted frames went from {losses[0]:.4f} to {np.mean(losses[-5:]):.4f}")
    print(f"a step takes {buffer.stats().total_bytes / len(buffer):,.0f} bytes, not {frame.nbytes:,}")


if __name__ == "__main__":
    typer.run(main)
