"""Agents that have learned to play, for what a trained agent sees.

    uv run --group benchmarks benchmarks/agents.py Pong --steps 1000000

trains PPO of Stable-Baselines3 with the hyperparameters of RL Zoo for Atari, and keeps the agent in ``build/agents``,
from which ``memory_table.py`` takes it.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import ale_py
import gymnasium as gym
import numpy as np
import torch
import typer
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, ResizeObservation, TransformObservation
from stable_baselines3 import PPO
from stable_baselines3.common.atari_wrappers import ClipRewardEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

AGENTS = Path(__file__).parents[1] / "build" / "agents"
N_ENVS, N_STEPS = 8, 128  # of a rollout
LEARNING_RATE, CLIP_RANGE = 2.5e-4, 0.1
SCREEN = gym.spaces.Box(0, 255, (240, 320, 3), np.uint8)


def atari(game: str) -> Any:
    """A game in 84x84 grey pixels and stacks of four, as most agents see it."""
    return FrameStackObservation(AtariPreprocessing(gym.make(f"ALE/{game}-v5", frameskip=1)), 4)


def vizdoom(scenario: str) -> Any:
    """A scenario of ViZDoom in 84x84 pixels and colour: textured walls, four game steps for one of the agent."""
    import_module("vizdoom.gymnasium_wrapper")  # which registers its environments
    seen = TransformObservation(gym.make(f"Vizdoom{scenario}-v1", frame_skip=4), lambda seen: seen["screen"], SCREEN)
    return ResizeObservation(seen, (84, 84))


ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    **{game: partial(atari, game) for game in ("Pong", "MsPacman", "Breakout")},
    "DefendCenter": partial(vizdoom, "DefendCenter"),
}


def trained(name: str) -> PPO | None:
    """The agent that was trained longest, None if there is none."""
    found = sorted(AGENTS.glob(f"{name}-*.zip"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return PPO.load(found[-1], device="cpu") if found else None


def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(ENVIRONMENTS)}.")],
    steps: Annotated[int, typer.Option(help="Of the agent, in all eight environments together.")] = 1_000_000,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 2,
) -> None:
    """Train an agent, print what its last hundred episodes brought, and keep it."""
    gym.register_envs(ale_py)
    torch.set_num_threads(threads)
    envs = DummyVecEnv([lambda: ClipRewardEnv(Monitor(ENVIRONMENTS[name]()))] * N_ENVS)
    model = PPO(
        "CnnPolicy",
        envs,
        learning_rate=lambda left: left * LEARNING_RATE,
        n_steps=N_STEPS,
        batch_size=256,
        n_epochs=4,
        clip_range=lambda left: left * CLIP_RANGE,
        ent_coef=0.01,
        seed=0,
    )
    model.learn(steps)
    AGENTS.mkdir(parents=True, exist_ok=True)
    model.save(AGENTS / f"{name}-{model.num_timesteps}")
    episodes = [episode["r"] for episode in model.ep_info_buffer or ()]
    print(f"{name}, {model.num_timesteps:,} steps: {np.mean(episodes):.1f} a game, {len(episodes)} games")


if __name__ == "__main__":
    typer.run(main)
