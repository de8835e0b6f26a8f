"""The buffers return what RLlib's classes return."""

import copy
import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunks import assert_same, assert_same_episode, play
from obscodec import DTypeError, ShapeError, SpecError
from obscodec_rllib import CompressedEpisodeReplayBuffer, CompressedPrioritizedEpisodeReplayBuffer
from obscodec_rllib.observations import CompressedObservations
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer

PAIRS = [
    (EpisodeReplayBuffer, CompressedEpisodeReplayBuffer),
    (PrioritizedEpisodeReplayBuffer, CompressedPrioritizedEpisodeReplayBuffer),
]
SAMPLES: list[dict[str, Any]] = [
    {"n_step": 1},
    {"n_step": 3, "gamma": 0.9, "include_infos": True},
    {"n_step": (1, 4), "include_extra_model_outputs": True, "to_numpy": True},
    {"n_step": 1, "batch_length_T": 5, "lookback": 2},
    {"n_step": 1, "batch_length_T": 4, "lookback": 1, "min_batch_length_T": 2},
]


def n_owned(buffer) -> int:
    """How many ids have an owner in the stores of a buffer."""
    owned = [of for store in buffer._stores.stores.values() for of in store._references._of_objects]
    return sum(len(of.ids) for of in owned)


def both(pair: Any, capacity: int = 120, **options: Any) -> list[Any]:
    buffers = [pair[0](capacity), pair[1](capacity, **options)]
    for buffer in buffers:
        buffer.rng = np.random.default_rng(5)
    return buffers


def filled(pair: Any, kind: str = "box", n: int = 20, capacity: int = 120, **options: Any) -> list[Any]:
    buffers = both(pair, capacity, **options)
    played = play(np.random.default_rng(1), kind)
    for chunks in (next(played) for _ in range(n)):
        for buffer in buffers:
            buffer.add(chunks)
    return buffers


def sample_both(buffers: list[Any], options: dict[str, Any], beta: float = 0.4) -> None:
    is_prioritized = isinstance(buffers[0], PrioritizedEpisodeReplayBuffer)
    stock, ours = (buffer.sample(8, sample_episodes=True, beta=beta, **options) for buffer in buffers)
    assert len(stock) == len(ours)
    for a, b in zip(stock, ours, strict=True):
        assert type(b.observations) is type(a.observations)
        assert_same(a.observations.data, b.observations.data)
        assert_same_episode(a, b, same_id=not is_prioritized)  # which makes new ids


@pytest.mark.parametrize("pair", PAIRS, ids=["uniform", "prioritized"])
@pytest.mark.parametrize("kind", ["box", "dictionary"])
@pytest.mark.parametrize("seed", range(3))
def test_any_program_returns_what_rllib_returns(pair, kind, seed):
    rng = np.random.default_rng(seed)
    buffers = both(pair, capacity=int(rng.integers(20, 150)), codec="auto" if seed else "delta-rle|lz4")
    played = play(rng, kind, n_envs=int(rng.integers(1, 4)), lookback=int(rng.integers(3)))
    n_evicted = 0
    for _ in range(60):
        chunks = next(played)
        if isinstance(buffers[0], EpisodeReplayBuffer) and rng.random() < 0.8 and len(chunks) == 1:
            chunks = chunks[0]
        for buffer in buffers:
            buffer.add(copy.deepcopy(chunks))
        options = SAMPLES[int(rng.integers(len(SAMPLES)))]
        if len(buffers[0]) > 15 and max(map(len, buffers[0].episodes)) > 6:
            sample_both(buffers, options)
            if hasattr(buffers[0], "update_priorities") and "batch_length_T" not in options:
                priorities = rng.random(len(buffers[0]._last_sampled_indices))
                for buffer in buffers:
                    buffer.update_priorities(priorities.copy())
        if rng.random() < 0.1:
            state = pickle.loads(pickle.dumps(buffers[1].get_state()))
            loaded = pair[1](buffers[1].capacity)
            loaded.set_state(state)
            loaded.rng = buffers[1].rng
            buffers[1] = loaded
        n_evicted = buffers[0].get_num_episodes_evicted()
        stock, ours = ({k: v for k, v in b.get_state().items() if k not in ("episodes", "stores")} for b in buffers)
        assert stock == ours
    assert n_evicted > 3
    for a, b in zip(*(buffer.episodes for buffer in buffers), strict=True):
        assert_same_episode(a, b)


@pytest.mark.parametrize("kind", ["box"])
def test_batches_of_rows_are_those_of_rllib(kind):
    buffers = filled(PAIRS[0], kind)
    stock, ours = (buffer.sample(4, batch_length_T=9) for buffer in buffers)
    assert_same(stock, ours)


@pytest.mark.parametrize("pair", PAIRS, ids=["uniform", "prioritized"])
@pytest.mark.parametrize("kind", ["box", "dictionary"])
def test_an_episode_in_a_buffer_is_read_copied_and_changed_as_that_of_rllib(pair, kind):
    stock, ours = (max(buffer.episodes, key=len) for buffer in filled(pair, kind, capacity=10_000))
    assert isinstance(ours.observations, CompressedObservations)
    for index in (0, -1, 3, slice(2, 5), slice(-3, None), [1, 4], None):
        assert_same(stock.get_observations(index), ours.get_observations(index))
    if kind == "box":
        beyond = slice(len(stock) - 2, len(stock) + 4)
        assert_same(stock.get_observations(beyond, fill=0.0), ours.get_observations(beyond, fill=0.0))
        for of in (stock, ours):
            of.set_observations(new_data=np.full((8, 8, 4), 0.5, np.float32), at_indices=2)
    assert stock.observations == ours.observations
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert_same_episode(stock, other)
        assert not isinstance(other.observations, CompressedObservations)
    assert_same(stock.get_state()["observations"]["data"], ours.get_state()["observations"]["data"])
    assert_same_episode(stock.slice(slice(1, 4)), ours.slice(slice(1, 4)))


@pytest.mark.parametrize("pair", PAIRS, ids=["uniform", "prioritized"])
def test_an_episode_counts_from_the_end_of_its_lookback(pair):
    frames = [np.full((8, 8, 4), k / 255, np.float32) for k in range(9)]
    buffers = both(pair)
    for buffer in buffers:
        rewards = [float(k) for k in range(8)]
        buffer.add(
            SingleAgentEpisode(
                "x", observations=frames, actions=[*range(8)], rewards=rewards, len_lookback_buffer=3
            ).to_numpy()
        )
        assert buffer.episodes[0].observations.lookback == 3
    for options in SAMPLES[:2]:
        sample_both(buffers, {k: v for k, v in options.items() if k != "include_infos"})


@pytest.mark.parametrize("pair", PAIRS, ids=["uniform", "prioritized"])
def test_a_pickled_buffer_goes_on(pair):
    buffers = filled(pair)
    buffers = [pickle.loads(pickle.dumps(buffer)) for buffer in buffers]
    assert buffers[1].capacity == 120
    for options in SAMPLES[:3]:
        sample_both(buffers, options)


@pytest.mark.parametrize("pair", PAIRS, ids=["uniform", "prioritized"])
def test_a_state_of_rllib_can_be_restored_and_rllib_refuses_ours(pair):
    stock, ours = filled(pair)
    loaded = pair[1](120)
    loaded.set_state(stock.get_state())
    assert loaded.stats().id_bytes > 0
    loaded.rng, stock.rng = np.random.default_rng(2), np.random.default_rng(2)
    sample_both([stock, loaded], {"n_step": 2})
    with pytest.raises(KeyError, match="data"):
        pair[0](120).set_state(ours.get_state())


def test_restoring_takes_the_place_of_all_that_was_there():
    _, saved = filled(PAIRS[0])
    _, other = filled(PAIRS[0], n=7)
    other.set_state(saved.get_state())
    for a, b in zip(saved.episodes, other.episodes, strict=True):
        assert_same_episode(a, b)


def test_what_is_evicted_is_dropped_when_nobody_holds_it():
    _, buffer = filled(PAIRS[1], n=60, capacity=40)
    buffer.decide()
    assert buffer.get_num_episodes_evicted() > 5
    held = buffer.episodes[0]
    before = copy.deepcopy(held)
    played = play(np.random.default_rng(9), "box")
    for _ in range(30):
        buffer.add([SingleAgentEpisode.from_state({**of.get_state(), "id_": f"new {of.id_}"}) for of in next(played)])
    assert held not in [*buffer.episodes]
    assert_same_episode(before, held)
    n_held = len(held.observations)
    del held
    gc.collect()
    n_ids = sum(of.observations.owned["observations"].ids.size for of in buffer.episodes)
    buffer.stats()
    assert n_held > 0
    assert n_owned(buffer) == n_ids
    assert len(buffer._sequences) <= 2


def test_a_chunk_with_other_observations_changes_nothing():
    buffer = CompressedEpisodeReplayBuffer(100)
    chunks = next(play(np.random.default_rng(1), "box", n_envs=1))
    buffer.add(chunks)
    before = buffer.get_state()
    last = buffer.episodes[-1]
    other = SingleAgentEpisode(
        last.id_, observations=[np.zeros((8, 8, 4)), np.ones((8, 8, 4))], actions=[0], rewards=[0.0], t_started=last.t
    )
    with pytest.raises(ShapeError, match=r"an episode has .*float32.*those of its next chunk are.*float64"):
        buffer.add(other)
    after = buffer.get_state()
    assert {k: v for k, v in before.items() if k not in ("episodes", "stores")} == {
        k: v for k, v in after.items() if k not in ("episodes", "stores")
    }


@pytest.mark.parametrize("pair", PAIRS, ids=["uniform", "prioritized"])
def test_evicting_an_episode_with_the_chunk_that_it_just_got_ends_as_in_rllib(pair):
    """RLlib 2.60.0's uniform class raises IndexError: it looks for the timestep after the last one."""

    def chunk(id_: str, t: int) -> SingleAgentEpisode:
        frames = [np.full((8, 8, 4), (t + k) / 255, np.float32) for k in range(5)]
        return SingleAgentEpisode(
            id_, observations=frames, actions=[0] * 4, rewards=[0.0] * 4, t_started=t, len_lookback_buffer=0
        ).to_numpy()

    ends = []
    for buffer in both(pair, capacity=10):
        buffer.add([chunk("a", 0), chunk("b", 0)])
        try:
            buffer.add(chunk("a", 4))
        except IndexError as error:
            ends.append(str(error))
        else:
            ends.append("")
        ends.append({k: v for k, v in buffer.get_state().items() if k not in ("episodes", "stores")})
    assert ends[:2] == ends[2:]
    assert [*buffer.episode_id_to_index] == ["b"]
    gc.collect()
    buffer.stats()
    assert n_owned(buffer) == 5


def test_episodes_of_several_agents_are_refused():
    with pytest.raises(DTypeError, match="episodes of one agent, SingleAgentEpisode, got MultiAgentEpisode"):
        CompressedEpisodeReplayBuffer(100).add(MultiAgentEpisode())


def test_options_are_checked():
    with pytest.raises(SpecError):
        CompressedEpisodeReplayBuffer(100, codec="no-codec")
    with pytest.raises(ShapeError):
        CompressedPrioritizedEpisodeReplayBuffer(100, min_nbytes=0)
    _, buffer = filled(PAIRS[0], min_nbytes=1025)
    assert buffer.stats().fields == {}
    assert buffer.stats().other_bytes > 0


def test_a_config_without_beta_is_refused():
    buffer = filled(PAIRS[1])[1]
    text = r'beta must be a number, got None: give "alpha" and "beta" in the configuration, such as 0\.6 and 0\.4, the '
    with pytest.raises(SpecError, match=text + "defaults of DQN, which RLlib drops where the type of a buffer changes"):
        buffer.sample(8, beta=None)


def test_images_take_less_and_stats_say_so():
    stock, buffer = filled(PAIRS[1], n=200, capacity=10_000)
    buffer.decide()
    stats = buffer.stats()
    assert stats.raw_bytes == sum(of.observations.data.nbytes for of in stock.episodes)
    assert stats.fields["observations"].codec != "auto"
    assert stats.ratio > 3
    assert stats.projected_bytes > stats.total_bytes


@pytest.mark.slow
def test_dqn_samples_and_learns_what_it_does_with_the_buffer_of_rllib():
    """In a process of its own, which Ray changes."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[3] / "tests")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("trained_dqn.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
