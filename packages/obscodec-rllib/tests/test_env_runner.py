"""Episodes of CompressedEnvRunner arrive as those of RLlib's class, in a fraction of the bytes."""

import gc
import os
import pickle
import weakref
import zlib
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import pytest
import torch
from chunks import assert_same, assert_same_episode, play
from faults import at_every_line
from obscodec import CorruptStream
from obscodec_rllib import CompressedEnvRunner
from obscodec_rllib.env_runner import _Found, _received, _SentEpisodes
from ray import cloudpickle
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "997"))


def pong(_: Any) -> gym.Env[Any, Any]:
    """Stacks of four frames as float32, in episodes of 30 steps at most."""
    gym.register_envs(ale_py)
    env = gym.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return gym.wrappers.TimeLimit(wrap_atari_for_new_api_stack(env, framestack=4), 30)


def sampled(kind: Any, n: int, **options: Any) -> list[Any]:
    torch.manual_seed(0)
    config = DQNConfig().environment(pong).debugging(seed=0).env_runners(env_runner_cls=kind, **options)
    runner = kind(config=config, worker_index=0)
    return [runner.sample(num_timesteps=12) for _ in range(n)]


def sent(value: Any) -> tuple[Any, int]:
    """What arrives of a value that Ray sends, and how many bytes that takes."""
    buffers: list[pickle.PickleBuffer] = []
    message = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raw = [bytes(of.raw()) for of in buffers]
    return pickle.loads(message, buffers=raw), len(message) + sum(map(len, raw))


def assert_arrived(episodes: list[Any], arrived: list[Any], *, same_id: bool = True) -> None:
    assert type(arrived) is list
    for a, b in zip(episodes, arrived, strict=True):
        assert type(b.observations) is type(a.observations)
        assert_same(a.observations.data, b.observations.data)
        assert_same(a._last_added_observation, b._last_added_observation)
        assert a.observations.space == b.observations.space
        assert_same_episode(a, b, same_id=same_id)


@pytest.mark.filterwarnings("ignore:.*already in registry:UserWarning")  # by RLlib, which names its environment anew
@pytest.mark.parametrize("as_lists", [False, True])
def test_episodes_of_pong_arrive_as_those_of_rllib_in_a_fiftieth_of_the_bytes(as_lists):
    options = {"num_envs_per_env_runner": 2, "episodes_to_numpy": not as_lists}
    stock, ours = (sampled(kind, 6, **options) for kind in (SingleAgentEnvRunner, CompressedEnvRunner))
    n_bytes = np.zeros(2, np.int64)
    for a, b in zip(stock, ours, strict=True):
        (plain, n_plain), (arrived, n_sent) = sent(a), sent(b)
        assert_arrived(plain, arrived, same_id=False)
        n_bytes += n_plain, n_sent
    assert any(episode.is_done for chunk in stock for episode in chunk)
    if as_lists:  # which are not encoded
        assert n_bytes[1] <= 1.01 * n_bytes[0]
    else:
        assert 50 * n_bytes[1] < n_bytes[0], n_bytes


@pytest.mark.parametrize("kind", ["box", "dictionary"])
def test_any_chunks_arrive(kind):
    played, found = play(np.random.default_rng(3), kind, n_envs=3), _Found()
    for _ in range(10):
        chunks = next(played)
        assert_arrived(chunks, sent(_SentEpisodes(chunks, found))[0])
    assert sent(_SentEpisodes([], found))[0] == []


def test_another_observation_than_the_last_may_have_been_added_last():
    (chunk, *_) = next(play(np.random.default_rng(3), "box"))
    last = chunk._last_added_observation
    chunk._last_added_observation = np.where(last == 0, np.float32(-0.0), last)  # an equal one of other bits
    arrived = sent(_SentEpisodes([chunk], _Found()))[0]
    assert arrived[0]._last_added_observation.tobytes() == chunk._last_added_observation.tobytes()
    assert_arrived([chunk], arrived)


def test_a_message_that_is_damaged_or_of_other_episodes_is_refused():
    (chunk, *_) = next(play(np.random.default_rng(3), "box"))
    _, (episodes, encoded, message) = _SentEpisodes([chunk], _Found()).__reduce__()
    for at in range(0, len(message), 7):
        damaged = bytearray(message)
        damaged[at] ^= 1
        with pytest.raises(CorruptStream):
            _received(episodes, encoded, bytes(damaged))
    with pytest.raises(CorruptStream):
        _received(episodes, encoded, message[:-1])
    _, (_, _, empty) = _SentEpisodes([], _Found()).__reduce__()
    with pytest.raises(CorruptStream, match="array 0 of 0"):
        _received(episodes, encoded, empty)


def test_a_space_of_images_takes_some_hundred_bytes():
    space = gym.spaces.Box(0, 1, (84, 84, 4), np.float32)
    found = _Found()
    assert len(found.packed(space)) < 2000
    assert found.packed(space) is found.packed(space)
    assert cloudpickle.loads(zlib.decompress(found.packed(space))) == space


def test_an_environment_with_a_new_space_for_each_episode_keeps_few_of_them():
    found = _Found()
    spaces = [gym.spaces.Box(0, k + 1, (4,), np.float32) for k in range(100)]
    assert [cloudpickle.loads(zlib.decompress(found.packed(space))) for space in spaces] == spaces
    gone = [weakref.ref(space) for space in spaces]
    del spaces
    gc.collect()
    assert sum(space() is not None for space in gone) <= 16


@pytest.mark.slow
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
def test_episodes_whose_sending_or_arrival_is_interrupted_can_be_sent_again(raised):
    episodes, found, n_interrupts = next(play(np.random.default_rng(3), "dictionary")), _Found(), 0
    message = pickle.dumps(_SentEpisodes(episodes, _Found()), 5)
    for call in (
        lambda: pickle.dumps(_SentEpisodes(episodes, _Found()), 5),
        lambda: pickle.dumps(_SentEpisodes(episodes, found), 5),
        lambda: pickle.loads(message),
    ):
        for _ in at_every_line(lambda call=call: call, STEP, raised):
            n_interrupts += 1
            assert_arrived(episodes, pickle.loads(message))  # which was made before
            assert_arrived(episodes, pickle.loads(pickle.dumps(_SentEpisodes(episodes, found), 5)))
    assert n_interrupts > 4_000 // STEP, n_interrupts
