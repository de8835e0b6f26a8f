"""RLlib's DQN learns Pong with its own prioritized buffer and with a compressed one, in a process of its own.

Fails if a bit of a sample, of a TD error or of the weights differs, or if no sample was decoded from an encoded block.
"""

import hashlib
import os
from typing import Any

os.environ["RLLIB_TEST_NO_JAX_IMPORT"] = "1"

import ale_py
import gymnasium as gym
import numpy as np
import ray
import torch
import tree
from coding_counts import CodingCounts
from ray._private import ray_constants
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

CAPACITY = 250  # less than the steps, so that episodes are evicted


def pong(_: Any) -> gym.Env[Any, Any]:
    """Stacks of four frames as float32, in episodes of 60 steps at most."""
    env = gym.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return gym.wrappers.TimeLimit(wrap_atari_for_new_api_stack(env, framestack=4), 60)


def digest(episodes: Any) -> str:
    """Hash all that sampled episodes have, but their ids."""
    hashed = hashlib.sha256()
    for episode in episodes:
        state = {name: value for name, value in episode.get_state().items() if name != "id_"}
        for path, leaf in tree.flatten_with_path(state):
            value = (leaf.dtype.str, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else leaf
            hashed.update(repr((path, type(leaf).__name__, value)).encode())
    return hashed.hexdigest()


def trained(kind: str, **options: Any) -> tuple[dict[str, Any], Any]:
    """All that three iterations of DQN sample and learn, and the buffer."""
    torch.manual_seed(0)
    config = DQNConfig().environment("pong").debugging(seed=0)
    config.env_runners(num_env_runners=0, rollout_fragment_length=8).learners(num_learners=0)
    config.reporting(min_sample_timesteps_per_iteration=120, min_time_s_per_iteration=0)
    # RLlib drops its own alpha and beta where the type changes.
    buffer_config = {**config.replay_buffer_config, "type": kind, "capacity": CAPACITY, **options}
    config.training(
        num_steps_sampled_before_learning_starts=100,
        train_batch_size_per_learner=8,
        target_network_update_freq=100,
        replay_buffer_config=buffer_config,
    )
    algorithm = config.build_algo()
    buffer = algorithm.local_replay_buffer
    assert type(buffer).__name__ == kind.rpartition(".")[-1]
    assert (buffer.capacity, buffer._alpha) == (CAPACITY, 0.6)
    buffer.rng = np.random.default_rng(3)  # which RLlib does not seed
    sample, update_priorities = buffer.sample, buffer.update_priorities
    digests: list[str] = []
    errors: list[str] = []

    def sampled(*given: Any, **more: Any) -> Any:
        episodes = sample(*given, **more)
        digests.append(digest(episodes))
        return episodes

    def updated(priorities: Any, *more: Any) -> None:
        errors.append(np.asarray(priorities).tobytes().hex())
        update_priorities(priorities, *more)

    buffer.sample, buffer.update_priorities = sampled, updated
    for _ in range(3):
        algorithm.train()
        if hasattr(buffer, "decide"):
            buffer.decide()  # so that the next iterations sample of encoded blocks
    weights = [leaf.tobytes() for leaf in tree.flatten(algorithm.get_module().get_state())]
    state = {name: value for name, value in buffer.get_state().items() if name not in ("episodes", "stores")}
    ids = [*dict(state.pop("episode_id_to_index")).values()]  # without the names of the episodes, which are drawn
    algorithm.cleanup()
    return {"digests": digests, "errors": errors, "weights": weights, "state": state, "ids": ids}, buffer


def check(counts: CodingCounts) -> None:
    """Train with both classes of buffers."""
    stock = "PrioritizedEpisodeReplayBuffer"
    expected, _ = trained(stock)
    counts.taken()
    learned, buffer = trained(f"obscodec_rllib.Compressed{stock}", codec="delta-rle")
    assert len({*expected["digests"]}) == len(expected["digests"]) > 20
    assert len({*expected["errors"]}) == len(expected["errors"]) > 20
    for name, value in expected.items():
        assert learned[name] == value, f"the {name} differ"
    assert buffer.get_num_episodes_evicted() > 0
    coded = counts.taken()
    assert coded["given"] > 360, coded
    assert coded["encoded"] > 2, coded
    assert coded["compressed"] > 20, coded
    assert buffer.stats().ratio > 10


def main() -> None:
    """Train with each pair of classes."""
    gym.register_envs(ale_py)
    register_env("pong", pong)
    torch.set_num_threads(1)
    counts = CodingCounts(decide_after=1, block_frames=16)
    # Under `uv run`, Ray would begin each worker with another one, in a copy of this folder without .venv.
    ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = False
    ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    check(counts)
    ray.shutdown()


if __name__ == "__main__":
    main()
