"""Buffers of Stable-Baselines3 that decode on a GPU give what the stock buffers give."""

import copy
import pickle
from contextlib import nullcontext

import numpy as np
import obscodec
import obscodec_sb3
import pytest
import torch
from atari_frames import frames
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, FakeImageEnv
from stable_baselines3.common.vec_env import VecNormalize

N_ENVS = 2
ACTIONS = spaces.Discrete(3)
IMAGES = spaces.Box(0, 255, (4, 28, 28), np.uint8)
VECTOR = spaces.Box(-10, 10, (5,), np.float32)
GOAL = spaces.Box(0, 1, (4,), np.float32)
DICT = spaces.Dict(image=IMAGES, vector=VECTOR)
GOALS = spaces.Dict(observation=IMAGES, achieved_goal=GOAL, desired_goal=GOAL)
REPLAY = {
    "replay": (ReplayBuffer, IMAGES, {}),
    "dict": (DictReplayBuffer, DICT, {}),
    "n-step": (NStepReplayBuffer, IMAGES, {"n_steps": 3}),
    "HER": (HerReplayBuffer, GOALS, {}),
}
ROLLOUTS = {
    "rollout": (RolloutBuffer, IMAGES),
    "dict": (DictRolloutBuffer, DICT),
    "maskable": (MaskableRolloutBuffer, IMAGES),
}


def observations(space: spaces.Space, step: int) -> object:
    """Of each environment, as a part of a game."""
    if isinstance(space, spaces.Dict):
        return {key: observations(of_key, step) for key, of_key in space.items()}
    if space != IMAGES:
        return np.random.default_rng(step).random((N_ENVS, *space.shape)).astype(np.float32)
    played = frames("MsPacman", 200, seed=0)[:, 28:84, 14:70][:, ::2, ::2]
    return np.stack([played[100 * env + step : 100 * env + step + 4] for env in range(N_ENVS)])


def add_steps(buffers: list[ReplayBuffer], steps: range) -> None:
    for step in steps:
        space = buffers[0].observation_space
        done = np.array([step % 20 == 19, step % 33 == 32])
        given = [observations(space, step), observations(space, step + 1), np.array([step % 3] * N_ENVS),
                 np.array([step, -step]), done]  # fmt: skip
        for buffer in buffers:
            buffer.add(*copy.deepcopy(given), [{"TimeLimit.truncated": bool(x)} for x in done])


def both(kind: str, buffer_size: int, device: torch.device, **ours: object) -> list[ReplayBuffer]:
    stock, space, kwargs = REPLAY[kind]
    kwargs = {**kwargs, "device": device, "n_envs": N_ENVS}
    if stock is HerReplayBuffer:
        kwargs["env"] = make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), N_ENVS)
    compressed = obscodec_sb3.compressed(stock)
    return [stock(buffer_size, space, ACTIONS, **kwargs), compressed(buffer_size, space, ACTIONS, **kwargs, **ours)]


def samples_of(buffers: list[ReplayBuffer], n: int = 40) -> list[object]:
    """Of each buffer one, the stock one's last."""
    samples = []
    for buffer in reversed(buffers):
        np.random.seed(n)
        samples.append(buffer.sample(n))
    return samples


def assert_equal(found: object, expected: object) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = tuple(found.values()), tuple(expected.values())
    if isinstance(expected, tuple):
        for x, y in zip(found, expected, strict=True):
            assert_equal(x, y)
    elif expected is not None:
        assert found.dtype == expected.dtype
        assert found.device == expected.device
        assert torch.equal(found, expected)


@pytest.mark.parametrize("heap", ["device", "pinned"])
@pytest.mark.parametrize("kind", REPLAY)
def test_samples_are_those_of_the_stock_buffer(kind, heap, cuda, torch_device, no_host):
    codec = {"HER": {"observation": "delta-rle"}, "dict": {"image": "delta-rle"}}.get(kind, "delta-rle")
    buffers = both(kind, 120, torch_device, codec=codec, buffer_device=cuda, heap=heap)
    add_steps(buffers, range(50))
    buffers[1].decide()  # many of the observations are alike
    assert_equal(*samples_of(buffers))
    for begin in (50, 66):  # beyond the capacity, so that it wraps around
        add_steps(buffers, range(begin, begin + 16))
        with no_host():
            assert_equal(*samples_of(buffers))


@pytest.mark.parametrize("kind", ROLLOUTS)
def test_minibatches_are_those_of_the_stock_buffer(kind, cuda, torch_device, no_host):
    stock, space = ROLLOUTS[kind]
    args = (32, space, ACTIONS)
    kwargs = {"device": torch_device, "n_envs": N_ENVS}
    ours = obscodec_sb3.compressed(stock)(*args, **kwargs, codec="delta-rle", buffer_device=cuda)
    stock, batches = stock(*args, **kwargs), []
    for rollout in range(5):
        for buffer in (stock, ours):
            buffer.reset()
            for step in range(32):
                value = torch.full((N_ENVS,), float(step))
                obs = observations(space, 3 * rollout + step)
                buffer.add(obs, np.zeros((N_ENVS, 1)), np.ones(N_ENVS), np.zeros(N_ENVS), value, value)
            np.random.seed(rollout)
            with no_host() if rollout == 4 else nullcontext():
                batches.append(list(buffer.get(20)))
        ours.decide()  # the first rollout is kept as it is until then
        assert_equal(tuple(batches[-1]), tuple(batches[-2]))


def test_small_observations_are_on_the_device_too(cuda, torch_device):
    kwargs = {"device": torch_device, "n_envs": N_ENVS}
    stock = ReplayBuffer(50, VECTOR, ACTIONS, **kwargs)
    ours = obscodec_sb3.CompressedReplayBuffer(50, VECTOR, ACTIONS, **kwargs, buffer_device=cuda)
    add_steps([stock, ours], range(20))
    assert_equal(*samples_of([stock, ours]))


def test_batches_that_are_drawn_ahead_hold_what_was_there_then(cuda, torch_device, no_host):
    """The same as on the CPU, whatever is overwritten after the kernel was launched."""
    drawn = []
    for place in ("cpu", cuda):
        _, buffer = both("replay", 200, torch_device, codec="delta-rle", buffer_device=place, prefetch=True)
        add_steps([buffer], range(80))
        np.random.seed(0)
        drawn.append([])
        for begin in range(80, 110, 5):
            add_steps([buffer], range(begin % 95, begin % 95 + 5))
            with no_host() if place == cuda else nullcontext():
                drawn[-1].append(buffer.sample(16))
    assert_equal(tuple(drawn[1]), tuple(drawn[0]))


def test_normalized_batches_are_those_of_the_stock_buffer(cuda, torch_device):
    env = VecNormalize(make_vec_env(lambda: FakeImageEnv(screen_height=40, screen_width=40), N_ENVS), norm_obs=False)
    buffers = both("replay", 400, torch_device, codec="delta-rle", buffer_device=cuda)
    add_steps(buffers, range(90))
    samples = []
    for buffer in buffers:
        np.random.seed(0)
        samples.append(buffer.sample(16, env=env))
    assert_equal(samples[1], samples[0])


@pytest.mark.parametrize("heap", ["device", "pinned"])
def test_a_buffer_is_pickled_with_all_it_holds(heap, cuda, torch_device, no_host):
    buffers = both("replay", 200, torch_device, codec="delta-rle", buffer_device=cuda, heap=heap)
    add_steps(buffers, range(90))
    buffers[1] = pickle.loads(pickle.dumps(buffers[1]))
    assert buffers[1].observation_store.device == cuda
    for begin in (80, 20, 70):
        add_steps(buffers, range(begin, begin + 8))
        with no_host():
            assert_equal(*samples_of(buffers))
    for name in ("observations", "next_observations"):  # read on the CPU
        np.testing.assert_array_equal(getattr(buffers[1], name)[:], getattr(buffers[0], name))


def images(seed: int) -> FakeImageEnv:
    env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=True)
    env.observation_space.seed(seed)
    return env


def trained(algorithm: type, device: torch.device, steps: int, **arguments: object) -> dict[str, torch.Tensor]:
    env = make_vec_env(lambda: images(0), N_ENVS, seed=0)
    model = algorithm("CnnPolicy", env, seed=0, device=device, **arguments)
    return model.learn(steps).policy.state_dict()


def for_training(buffer: type, device: torch.device) -> tuple[type, torch.device]:
    """A class of buffers for a device, and where a model trains with it: the simulated GPU has no gradients."""
    if type(torch.empty(0, device=device)) is torch.Tensor:
        return buffer, device

    def on_cpu(batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return type(batch)(*(x if x is None else x.cpu() for x in batch))

    class Moved(buffer):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs | {"device": device})

        def sample(self, *args: object, **kwargs: object) -> object:
            return on_cpu(super().sample(*args, **kwargs))

        def get(self, *args: object, **kwargs: object) -> object:
            yield from map(on_cpu, super().get(*args, **kwargs))

    return Moved, torch.device("cpu")


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_training_ends_with_the_weights_of_the_stock_buffer(algorithm, cuda, torch_device):
    options, trained_with = {"buffer_device": cuda, "codec": "delta-rle"}, []
    if algorithm is DQN:
        classes = ReplayBuffer, obscodec_sb3.CompressedReplayBuffer
        kind, steps, arguments = "replay", 500, {"buffer_size": 400, "learning_starts": 300, "batch_size": 8}
        arguments["train_freq"] = 8
    else:
        classes = RolloutBuffer, obscodec_sb3.CompressedRolloutBuffer
        kind, steps, arguments = "rollout", 480, {"n_steps": 80, "batch_size": 40, "n_epochs": 1}
    for of_buffer, buffer in zip(({}, options), classes, strict=True):
        made, device = for_training(buffer, torch_device)
        given = {f"{kind}_buffer_class": made, f"{kind}_buffer_kwargs": of_buffer}
        trained_with.append(trained(algorithm, device, steps, **arguments, **given))
    stock, compressed = trained_with
    for name, weights in stock.items():
        assert torch.equal(weights, compressed[name]), name


def test_without_a_gpu_a_buffer_says_what_is_missing(monkeypatch):
    def refuse(name: str) -> None:
        raise obscodec.BackendUnavailable(f"device {name!r} needs the NVIDIA driver")

    monkeypatch.setattr("obscodec_cupy.device.opened.device", refuse)
    for space in (IMAGES, VECTOR):
        with pytest.raises(obscodec.BackendUnavailable, match="device 'cuda' needs the NVIDIA driver"):
            obscodec_sb3.CompressedReplayBuffer(100, space, ACTIONS, device="cpu", buffer_device="cuda")
    with pytest.raises(obscodec.SpecError, match="no device is named 'tpu', there are cpu, cuda"):
        obscodec_sb3.CompressedReplayBuffer(100, IMAGES, ACTIONS, device="cpu", buffer_device="tpu")
    with pytest.raises(obscodec.SpecError, match="heap='pinned' is for a GPU, got it for the CPU"):
        obscodec_sb3.CompressedReplayBuffer(100, IMAGES, ACTIONS, device="cpu", heap="pinned")


def test_samples_are_on_the_device_that_decodes_them(cuda):
    text = "what is kept on 'cuda' is decoded there, so batches must be there: "
    with pytest.raises(obscodec.DTypeError, match=text):
        obscodec_sb3.CompressedReplayBuffer(100, IMAGES, ACTIONS, device="meta", buffer_device=cuda)


@pytest.mark.parametrize("place", ["there", "cpu"])
def test_a_sample_is_copied_to_the_device_at_once(place, cuda, torch_device, monkeypatch):
    buffers = both("replay", 120, torch_device, codec="delta-rle", buffer_device=cuda if place == "there" else "cpu")
    add_steps(buffers, range(50))
    buffers[1].decide()
    add_steps(buffers, range(50, 60))
    (expected,) = samples_of(buffers[:1])
    copied, to = [], torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *of, **how: (copied.append(how), to(x, *of, **how))[1])
    (found,) = samples_of(buffers[1:])
    assert_equal(found, expected)
    copies = [how for how in copied if how.get("non_blocking")]
    assert len(copies) == (1 if place == "there" else 2)  # of which one is the observations
