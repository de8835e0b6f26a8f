# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "gymnasium==1.4.0",
#     "imageio==2.38.1",
#     "mujoco==4.0.0",
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
"""Control a robot from its camera image, as DrQ does: images are shifted at random before the critic sees them.

uv run examples/drq_mujoco.py --env-id Reacher-v5 --steps 5000

Source: Yarats et al. 2021, Image Augmentation Is All You Need; without the entropy of its actor.
"""

import os
import sys
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import typer
from gymnasium.wrappers import AddRenderObservation, ResizeObservation
from obscodec import Field, RingBuffer
from torch import nn

SIDE, STACK = 84, 3


class Network(nn.Module):
    """A number of outputs from images ``f32[n, 9, 84, 84]``, of 0 to 1, and further inputs."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3 * STACK, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU(),
            nn.Conv2d(32, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2592, 50), nn.LayerNorm(50), nn.Tanh(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(50 + n_inputs, 256), nn.ReLU(), nn.Linear(256, n_outputs))

    def forward(self, images: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        """``f32[n, n_outputs]``."""
        outputs: torch.Tensor = self.head(torch.cat([self.encoder(images), *inputs], dim=1))
        return outputs


def scaled(stacks: torch.Tensor) -> torch.Tensor:
    """``u8[n, stack, height, width, 3]`` as ``f32[n, 3 * stack, height, width]``, of 0 to 1."""
    return stacks.permute(0, 1, 4, 2, 3).flatten(1, 2).float() / 255


def shifted(images: torch.Tensor, most: int = 4) -> torch.Tensor:
    """Images, each shifted by some pixels, with its edges repeated."""
    padded = nn.functional.pad(images, (most,) * 4, mode="replicate")
    rows, columns = torch.randint(2 * most + 1, (2, len(images))).tolist()
    parts = zip(padded, rows, columns, strict=True)
    return torch.stack([image[:, row : row + SIDE, column : column + SIDE] for image, row, column in parts])


def make_env(env_id: str) -> gym.Env[np.ndarray, np.ndarray]:
    """A robot that shows its camera image, ``u8[84, 84, 3]``; ends the program if nothing here can draw it."""
    torch.optim.Adam([torch.zeros(1)])  # torch loads its LLVM now: it crashes after Mesa has loaded another version
    failed: list[str] = []
    for library in [os.environ["MUJOCO_GL"]] if "MUJOCO_GL" in os.environ else ["egl", "osmesa"]:
        os.environ["MUJOCO_GL"] = library  # read when mujoco is imported
        try:
            env = ResizeObservation(AddRenderObservation(gym.make(env_id, render_mode="rgb_array")), (SIDE, SIDE))
            env.reset()
            return env
        except (ImportError, AttributeError, RuntimeError, gym.error.Error) as error:
            failed.append(f"{library}: {error}")
            for name in [name for name in sys.modules if name.split(".")[0] in ("mujoco", "OpenGL")]:
                del sys.modules[name]
    print("skipped: mujoco can draw neither with EGL nor with OSMesa here\n  " + "\n  ".join(failed))
    raise typer.Exit


def main(
    env_id: str = "Reacher-v5",
    steps: int = 2_000,
    buffer_size: int = 100_000,
    batch_size: int = 64,
    device: str = "cpu",
    seed: int = 0,
) -> None:
    """Train, and print how much memory the images take."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = make_env(env_id)
    assert isinstance(env.action_space, gym.spaces.Box)
    n_actions, high = env.action_space.shape[0], float(env.action_space.high.max())
    actor = Network(0, n_actions).to(device)
    critic, target = Network(n_actions, 2).to(device), Network(n_actions, 2).to(device)
    target.load_state_dict(critic.state_dict())
    optimizers = [torch.optim.Adam(network.parameters(), lr=1e-3) for network in (critic, actor)]
    fields = {
        "image": Field((SIDE, SIDE, 3), np.uint8),
        "next_image": Field((SIDE, SIDE, 3), np.uint8, next_of="image"),
        "action": Field((n_actions,), np.float32),
        "reward": Field((), np.float32),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    }
    ends = ("terminated", "truncated")
    buffer = RingBuffer(buffer_size, fields, stack={"image": STACK}, pad="edge", episode_end=ends)

    image, _ = env.reset(seed=seed)
    images_seen = deque([image] * STACK, STACK)  # what the actor sees
    losses: dict[str, Any] = {}
    for step in range(steps):
        action = rng.uniform(-high, high, n_actions).astype(np.float32)
        if len(buffer) > steps // 4:
            seen = torch.from_numpy(np.stack(images_seen)).to(device)
            with torch.no_grad():
                mean = high * actor(scaled(seen[None])).tanh()[0].cpu().numpy()
            action = np.clip(mean + 0.1 * action, -high, high)
        following, reward, terminated, truncated, _ = env.step(action)
        buffer.append(
            image=image,
            next_image=following,
            action=action,
            reward=float(reward),
            terminated=terminated,
            truncated=truncated,
        )
        image = env.reset()[0] if terminated or truncated else following
        images_seen.extend([image] * STACK if terminated or truncated else [image])
        if len(buffer) <= steps // 4 or step % 2:
            continue
        batch = buffer.sample(batch_size, rng, n_step=3, gamma=0.99, to=device)
        images, following_images = shifted(scaled(batch["image"])), shifted(scaled(batch["next_image"]))
        with torch.no_grad():
            best = target(following_images, high * actor(following_images).tanh()).min(dim=1).values
            expected = batch["reward"] + batch["discount"] * best * ~batch["terminated"]
        losses["critic"] = (critic(images, batch["action"]) - expected[:, None]).square().mean()
        losses["actor"] = -critic(images, high * actor(images).tanh()).min(dim=1).values.mean()
        for optimizer, loss in zip(optimizers, losses.values(), strict=True):
            optimizer.zero_grad()
            torch.autograd.backward(loss, inputs=[*optimizer.param_groups[0]["params"]])
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            for old, new in zip(target.parameters(), critic.parameters(), strict=True):
                old.lerp_(new, 0.01)

    stats = buffer.stats()
    print(f"{len(buffer)} transitions, the last loss of the critic is {losses['critic'].item():.4f}")
    print(f"a transition takes {stats.total_bytes / len(buffer):,.0f} bytes, not {2 * STACK * image.nbytes:,}")


if __name__ == "__main__":
    typer.run(main)
