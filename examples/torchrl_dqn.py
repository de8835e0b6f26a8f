# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "obscodec-torchrl",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "opencv-python-headless==5.0.0.93",
#     "tensordict==0.14.3",
#     "torch==2.15.0",
#     "torchrl==0.14.1",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# obscodec-torchrl = { path = "../packages/obscodec-torchrl", editable = true }
# ///
"""Train TorchRL's DQN with prioritized replay on an Atari game; observations are compressed in the replay buffer.

uv run examples/torchrl_dqn.py --game Pong --steps 20000
"""

import ale_py
import gymnasium as gym
import torch
import typer
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import OneHot, TensorDictPrioritizedReplayBuffer
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate


def q_network(n_actions: int) -> nn.Module:
    """The network of the DQN paper (Mnih et al. 2015), from ``u8[n, 4, 84, 84]``."""

    class Scale(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return (pixels.float() / 255).reshape(-1, 4, 84, 84)

    convolutions = [
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
    ]
    head = [nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, n_actions)]
    return nn.Sequential(Scale(), *convolutions, *head)


def main(game: str = "Pong", steps: int = 20_000, buffer_size: int = 100_000, batch: int = 32, seed: int = 0) -> None:
    """Train, and print how much memory the observations take."""
    torch.manual_seed(seed)
    gym.register_envs(ale_py)
    env = FrameStackObservation(AtariPreprocessing(gym.make(f"ALE/{game}-v5", frameskip=1), frame_skip=4), 4)
    assert isinstance(env.action_space, gym.spaces.Discrete)
    n_actions = int(env.action_space.n)
    network = TensorDictModule(q_network(n_actions), in_keys=["pixels"], out_keys=["action_value"])
    actor = QValueActor(network, in_keys=["pixels"], spec=OneHot(n_actions))
    loss = DQNLoss(actor, action_space="one-hot", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    target = SoftUpdate(loss, eps=0.995)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-4)
    storage = CompressedStorage(buffer_size)
    buffer = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=storage, batch_size=batch, prefetch=2)
    pixels, _ = env.reset(seed=seed)
    last_loss = float("nan")
    for step in range(steps):
        observed = TensorDict({"pixels": torch.from_numpy(pixels)})
        explore = torch.rand(()) < max(0.05, 1 - step / (steps / 2))
        with torch.no_grad():
            drawn = torch.randint(n_actions, ()) if explore else actor(observed.unsqueeze(0))["action"][0].argmax()
        following, reward, terminated, truncated, _ = env.step(int(drawn))
        ends = {"terminated": torch.tensor([terminated]), "done": torch.tensor([terminated or truncated])}
        observed["action"] = nn.functional.one_hot(drawn, n_actions)
        observed["next"] = TensorDict(
            {"pixels": torch.from_numpy(following), "reward": torch.tensor([float(reward)]), **ends}
        )
        buffer.add(observed)
        pixels = env.reset()[0] if terminated or truncated else following
        if step >= min(1_000, steps // 2) and step % 4 == 0:
            sample = buffer.sample()
            losses = loss(sample)
            optimizer.zero_grad()
            losses["loss"].backward()
            optimizer.step()
            target.step()
            buffer.update_tensordict_priority(sample)
            last_loss = losses["loss"].item()
    stats = storage.compressed()[("pixels",)].array.store.stats()
    print(f"{len(buffer)} transitions, the last loss is {last_loss:.4f}")
    print(f"observations take {stats.total_bytes / len(buffer):,.0f} bytes per transition, not {2 * pixels.nbytes:,}")


if __name__ == "__main__":
    typer.run(main)
