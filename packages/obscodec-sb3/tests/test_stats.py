"""What a buffer says about itself, and what the callback logs of it."""

import subprocess
import sys

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from obscodec.runtime import free_memory
from obscodec.stats import in_units
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    CompressionCallback,
    SnapshotCallback,
)
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger

IMAGE, VECTOR = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Box(-1, 1, (3,))


def test_stats_count_the_observations_of_each_key():
    space = spaces.Dict(image=IMAGE, vector=VECTOR)
    buffer = CompressedDictReplayBuffer(1000, space, spaces.Discrete(2), "cpu", n_envs=2)
    obs = {"image": np.zeros((2, *IMAGE.shape), np.uint8), "vector": np.zeros((2, 3), np.float32)}
    for i in range(300):
        obs["image"] = np.roll(obs["image"], -1, axis=1)
        obs["image"][:, -1] = 0
        obs["image"][:, -1, i % 84] = i % 250 + 1
        buffer.add(obs, obs, np.zeros(2), np.zeros(2), np.zeros(2), [{}, {}])
    buffer.sample(8)
    buffer.sample(8)
    stats = buffer.stats()
    assert stats.fields["vector"] == 300 * 2 * 2 * 12
    assert stats.fields["image"].n_tensors == 300 * 2 * 2
    assert stats.raw_bytes == 300 * 2 * (2 * (28_224 + 12) + 20)
    assert stats.id_bytes == 300 * 2 * 2 * 4
    assert 0 < stats.waiting_bytes < 80_000
    assert stats.other_bytes == 300 * 2 * 4  # action, reward, done and timeout in a byte each, of 20
    parts = stats.fields["image"].total_bytes, stats.fields["vector"], stats.id_bytes, stats.waiting_bytes
    assert stats.total_bytes == sum(parts) + stats.other_bytes
    assert stats.ratio == stats.raw_bytes / stats.total_bytes
    assert buffer.observation_store["vector"] is None
    assert buffer.observation_store["image"].stats() == stats.fields["image"]
    assert stats.n_samples == 2
    assert 0 < stats.sample_s < 10
    assert repr(buffer) == (
        f"CompressedDictReplayBuffer(300 of 500 steps, n_envs=2\n  {in_units(stats.total_bytes)} in memory, 33.9 MB "
        f"uncompressed: {stats.ratio:.1f} times smaller; about {in_units(stats.projected_bytes)} when full\n"
        "  image: uint8[4, 84, 84] delta-rle|lz4:6; vector: float32[3])"
    )
    image = stats.fields["image"]
    assert (image.codec, image.block_frames) == ("delta-rle|lz4:6", 16)
    assert str(stats).splitlines()[1:] == [
        f"  image: delta-rle|lz4:6, blocks of 16: {image.choice.reason}",
        "  vector: uncompressed: under 1 KiB, or without a codec",
        f"  {1000 * stats.sample_s / 2:.2f} ms for a sample, the mean of 2",
    ]


def test_an_observation_without_a_key_is_printed_without_one():
    buffer = CompressedReplayBuffer(1000, IMAGE, spaces.Discrete(2), "cpu")
    waits = "it waits for 256 more tensors; decide() chooses now"
    assert str(buffer.stats()).splitlines()[1:] == [f"  auto, which has not chosen yet: {waits}"]
    assert repr(buffer) == (
        f"CompressedReplayBuffer(0 of 1,000 steps, n_envs=1\n  empty\n  uint8[4, 84, 84] auto ({waits}))"
    )


def test_stats_count_no_observation_twice():
    buffer = CompressedRolloutBuffer(8, spaces.Box(-1, 1, (3,)), spaces.Discrete(2), "cpu", n_envs=2)
    for _ in range(8):
        buffer.add(np.zeros((2, 3)), np.zeros(2), np.zeros(2), np.zeros(2), th.zeros(2), th.zeros(2))
    # actions, as wide as this SB3 keeps them; rewards, returns, episode starts, values, log probabilities, advantages
    others = 8 * 2 * (buffer.actions.itemsize + 6 * 4)
    for _ in range(2):
        stats = buffer.stats()
        assert (stats.fields, stats.other_bytes, stats.id_bytes) == ({"": 8 * 2 * 12}, others, 0)
        assert stats.raw_bytes == stats.total_bytes == 8 * 2 * 12 + others
        [*buffer.get(4)]  # SB3 replaces its arrays by flat ones


class Written(KVWriter):
    def __init__(self):
        self.values = {}

    def write(self, key_values, key_excluded, step=0):
        self.values |= key_values

    def close(self):
        pass


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_the_callback_logs_what_the_buffer_holds(algorithm):
    off_policy = {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": {"codec": "zstd:1"}}
    on_policy = {"rollout_buffer_class": CompressedRolloutBuffer, "rollout_buffer_kwargs": {"codec": "zstd:1"}}
    more = off_policy if algorithm is DQN else {**on_policy, "n_steps": 64}
    model = algorithm("MlpPolicy", "CartPole-v1", device="cpu", seed=0, **more)
    written = Written()
    model.set_logger(Logger(None, [written]))
    model.learn(640, callback=CompressionCallback(every=64), log_interval=1)
    assert {"buffer/ratio", "buffer/bytes", "buffer/projected_bytes", "buffer/sample_ms"} <= written.values.keys()
    assert written.values["buffer/projected_bytes"] >= written.values["buffer/bytes"] > 0
    assert 0 < written.values["buffer/sample_ms"] < 1000


@pytest.mark.parametrize("n_envs", [1, 3])
def test_the_callback_counts_calls_as_those_of_sb3_do(n_envs, tmp_path):
    """Not steps of all environments: ``every`` and ``save_freq`` of SB3's callbacks have one meaning."""
    env = make_vec_env("CartPole-v1", n_envs=n_envs)
    model = DQN("MlpPolicy", env, device="cpu", seed=0, replay_buffer_class=CompressedReplayBuffer)
    logged = []

    class Logged(CompressionCallback):
        def _on_step(self):
            self.logger.name_to_value.pop("buffer/bytes", None)
            goes_on = super()._on_step()
            if "buffer/bytes" in self.logger.name_to_value:
                logged.append(self.num_timesteps)
            return goes_on

    ours, stock = SnapshotCallback(10, str(tmp_path / "ours")), CheckpointCallback(10, str(tmp_path / "stock"))
    model.learn(40 * n_envs, callback=[Logged(every=10), ours, stock])
    saved = [{file.name for file in (tmp_path / of).glob("*.zip")} for of in ("ours", "stock")]
    assert saved[0] == saved[1] == {f"rl_model_{step}_steps.zip" for step in logged}
    assert logged == [10 * n_envs, 20 * n_envs, 30 * n_envs, 40 * n_envs]


def test_the_callback_needs_a_compressed_buffer():
    model = DQN("MlpPolicy", "CartPole-v1", device="cpu")
    text = "^the algorithm has no compressed buffer: give it one, such as CompressedReplayBuffer$"
    with pytest.raises(TypeError, match=text):
        model.learn(10, callback=CompressionCallback())


@pytest.mark.slow
def test_without_sb3_contrib_its_buffers_say_what_to_install():
    program = (
        "import sys; sys.modules['sb3_contrib'] = None\n"
        "import obscodec_sb3, obscodec\n"
        "try: obscodec_sb3.CompressedMaskableRolloutBuffer\n"
        "except obscodec.MissingPackage as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "CompressedMaskableRolloutBuffer needs sb3-contrib: pip install sb3-contrib\n"


@pytest.mark.slow
def test_sb3_contrib_is_not_imported_before_it_is_asked_for():
    program = "import sys, obscodec_sb3; print('sb3_contrib' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def noisy_steps(n, n_envs):
    rng = np.random.default_rng(0)
    before = np.zeros((n_envs, *IMAGE.shape), np.uint8)
    for _ in range(n):
        frame = np.zeros((n_envs, 1, 84, 84), np.uint8)
        frame[:, :, :30] = rng.integers(256, size=(n_envs, 1, 30, 84), dtype=np.uint8)
        obs = np.concatenate([before[:, 1:], frame], axis=1)
        yield before, obs, np.zeros((n_envs, 1)), np.zeros(n_envs), np.zeros(n_envs), [{}] * n_envs
        before = obs


def fill(buffer, n):
    for step in noisy_steps(n // buffer.n_envs, buffer.n_envs):
        buffer.add(*step)


@pytest.mark.parametrize("n_envs", [1, 4])
def test_the_projection_is_what_the_full_buffer_takes(n_envs):
    buffer = CompressedReplayBuffer(4000, IMAGE, spaces.Discrete(2), "cpu", n_envs=n_envs)
    projected = []
    for i, step in enumerate(noisy_steps(4000 // n_envs, n_envs), 1):
        buffer.add(*step)
        if i == 400 // n_envs:
            projected.append(buffer.stats().projected_bytes)
    assert projected == pytest.approx([buffer.stats().total_bytes], rel=0.15)
    assert buffer.stats().projected_bytes == buffer.stats().total_bytes


@pytest.mark.parametrize("n_envs", [1, 8])
def test_a_buffer_that_the_machine_has_no_memory_for_warns_once(n_envs):
    size = 8 * free_memory() // 7056
    buffer = CompressedReplayBuffer(size, IMAGE, spaces.Discrete(2), "cpu", n_envs=n_envs)
    text = rf"{size // n_envs} steps will take about .* judging by \d+ steps, and the machine has"
    with pytest.warns(UserWarning, match=text) as caught:
        fill(buffer, 600)
    assert len(caught) == 1


def test_a_buffer_with_a_limit_does_not_warn():
    size = 8 * free_memory() // 7056
    buffer = CompressedReplayBuffer(size, IMAGE, spaces.Discrete(2), "cpu", max_bytes=free_memory() // 2)
    fill(buffer, 300)  # a warning is an error
