"""RLlib's episode buffers and env runners with compressed observations, beside RLlib's own classes.

uv run --group rllib benchmarks/rllib.py

Pong as RLlib's DQN sees it: stacks of four frames as float32. Both env runners play the same steps, and the buffers get
what arrives. Samples of both buffers take turns, with the same random numbers, and are compared.
"""

import os

os.environ["RLLIB_TEST_NO_JAX_IMPORT"] = "1"  # RLlib imports JAX wherever it is installed

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import torch
import typer
from obscodec_rllib import CompressedEnvRunner, CompressedPrioritizedEpisodeReplayBuffer
from ray import cloudpickle
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer
from result_tables import circumstances

_RESULTS = Path(__file__).parent / "results" / "rllib.md"
_PACKAGES = "obscodec", "obscodec-rllib", "ray", "torch", "gymnasium", "numpy", "ale-py"
_PAIRS = {
    "RLlib": (SingleAgentEnvRunner, PrioritizedEpisodeReplayBuffer),
    "compressed": (CompressedEnvRunner, CompressedPrioritizedEpisodeReplayBuffer),
}


def _pong(_: Any) -> gym.Env[Any, Any]:
    """Stacks of four frames as float32, 64x64, as RLlib's wrapper makes them."""
    env = gym.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    wrapped: gym.Env[Any, Any] = wrap_atari_for_new_api_stack(env, framestack=4)
    return wrapped


def _runner(kind: type[Any], chunk: int) -> Any:
    torch.manual_seed(0)
    np.random.seed(0)
    config = DQNConfig()  # type: ignore[no-untyped-call]
    config.environment(_pong).debugging(seed=0)
    config.env_runners(env_runner_cls=kind, num_env_runners=0, rollout_fragment_length=chunk)
    return kind(config=config, worker_index=0)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and what a call returns."""
    began = time.perf_counter()
    returned = call()
    return 1000 * (time.perf_counter() - began), returned


def _sent(chunk: list[Any]) -> tuple[int, float, float, list[Any]]:
    """A chunk as Ray pickles it: bytes, milliseconds to pickle and to unpickle it, and what arrives."""
    parts: list[Any] = []
    dump = partial(cloudpickle.dumps, chunk, protocol=5, buffer_callback=parts.append)
    pickled, data = _timed(dump)
    parts = [part.raw().tobytes() for part in parts]
    unpickled, arrived = _timed(lambda: cloudpickle.loads(data, buffers=parts))
    return len(data) + sum(map(len, parts)), pickled, unpickled, arrived


def _digest(episodes: list[Any]) -> list[bytes]:
    return [np.asarray(episode.get_observations()).tobytes() for episode in episodes]


def main(steps: int = 10_000, chunk: int = 32, n_rounds: int = 60) -> None:
    """Play, fill, sample, and write the results."""
    gym.register_envs(ale_py)
    torch.set_num_threads(1)
    lines = ["# RLlib with compressed observations", ""]
    lines += [f"- {what}: {text}" for what, text in circumstances("rllib", _PACKAGES).items()]
    lines += ["", f"Pong, {steps:,} steps, float32, in chunks of {chunk}; medians. Samples: {n_rounds} in turns.", ""]
    lines += [
        "| classes | bytes of a chunk | pickle, ms | unpickle, ms | add, ms | observations, MB | `sample(32)`, ms |",
        "| --- |" + " ---: |" * 6,
    ]
    rows: dict[str, list[float]] = {}
    buffers: dict[str, Any] = {name: kinds[1](capacity=2 * steps) for name, kinds in _PAIRS.items()}
    for name, (runner_kind, _) in _PAIRS.items():
        runner = _runner(runner_kind, chunk)
        found = []
        for _ in range(steps // chunk):
            *sent, arrived = _sent(runner.sample(num_timesteps=chunk))
            found.append((*sent, _timed(partial(buffers[name].add, arrived))[0]))
        rows[name] = [statistics.median(of) for of in zip(*found, strict=True)]
    ours = buffers["compressed"]
    ours.decide()
    stats = ours.stats()
    rows["RLlib"].append(stats.raw_bytes / 1e6)
    rows["compressed"].append(stats.total_bytes / 1e6)
    times: dict[str, list[float]] = {name: [] for name in buffers}
    order = np.random.default_rng(0)
    for k in range(n_rounds + 3):
        digests = []
        for name in order.permutation([*buffers]).tolist():
            buffers[name].rng = np.random.default_rng(k)
            draw = partial(buffers[name].sample, 32, n_step=3, beta=0.4, sample_episodes=True)
            took, sampled = _timed(draw)
            digests.append(_digest(sampled))
            if k >= 3:
                times[name].append(took)
        if digests[0] != digests[1]:
            raise AssertionError("the classes give different samples")
    for name, row in rows.items():
        row.append(statistics.median(times[name]))
        cells = [f"{row[0]:,.0f}", *(f"{x:.2f}" for x in row[1:])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    stock, own = rows["RLlib"], rows["compressed"]
    lines.append(f"| ratio | {' | '.join(f'{b / a:.4f}' for a, b in zip(stock, own, strict=True))} |")
    _RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
