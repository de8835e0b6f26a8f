"""What users get wrong with the buffers: each argument says what was found, and what is allowed."""

import inspect
import re
import reprlib
import warnings

import numpy as np
import obscodec
import pytest
import torch
from gymnasium import spaces
from obscodec import DTypeError, ShapeError
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    CompressionCallback,
    SnapshotCallback,
    compressed,
    resume,
)
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv, SimpleMultiObsEnv

IMAGES = spaces.Box(0, 255, (4, 40, 40), np.uint8)
DICT = spaces.Dict(image=IMAGES, vector=spaces.Box(-1, 1, (3,)))
ACTIONS = spaces.Discrete(3)
NO_NUMBERS = [None, "10", [4], (4,), {"a": 4}, True, np.zeros(2, int)]
WHOLE = [4, 4.0, np.int64(4), np.uint8(4), np.array(4)]


def replay(buffer_class=CompressedReplayBuffer, space=IMAGES, **options):
    return buffer_class(**{"buffer_size": 20, "observation_space": space, "action_space": ACTIONS} | options)


def filled(**options):
    buffer = replay(device="cpu", **options)
    obs = np.zeros((1, 4, 40, 40), np.uint8)
    for _ in range(3):
        buffer.add(obs, obs, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    return buffer


def refused(error, text, call, *arguments, **options):
    with pytest.raises(error, match=f"^{re.escape(text)}$") as caught:
        call(*arguments, **options)
    assert type(caught.value) is error


class Longer(ReplayBuffer):
    """A buffer whose constructor takes its arguments in another order."""

    def __init__(self, name, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.name = name


# Where a number is asked for: its name, the least that is allowed, whether None is, and what becomes of it.
COUNTS = {
    "replay, buffer_size": ("buffer_size", 1, False, lambda n: replay(buffer_size=n).buffer_size),
    "replay, n_envs": ("n_envs", 1, False, lambda n: replay(n_envs=n).n_envs),
    "replay, in order": ("buffer_size", 1, False, lambda n: CompressedReplayBuffer(n, IMAGES, ACTIONS).buffer_size),
    "replay, threads": ("threads", 1, True, lambda n: (replay(threads=n), n)[1]),
    "replay, decide_after": ("decide_after", 1, True, lambda n: (replay(decide_after=n), n)[1]),
    "replay, block_frames": (
        "block_frames", 1, True, lambda n: replay(block_frames=n).observation_store.options.block_frames),
    "replay, min_nbytes": ("min_nbytes", 0, True, lambda n: (replay(min_nbytes=n), n)[1]),
    "replay, sample": ("batch_size", 0, False, lambda n: len(filled().sample(n).rewards)),
    "prefetch, sample": ("batch_size", 0, False, lambda n: len(filled(prefetch=True).sample(n).rewards)),
    "dict, buffer_size": (
        "buffer_size", 1, False, lambda n: replay(CompressedDictReplayBuffer, DICT, buffer_size=n).buffer_size),
    "n-step, n_envs": ("n_envs", 1, False, lambda n: replay(CompressedNStepReplayBuffer, n_envs=n).n_envs),
    "rollout, buffer_size": (
        "buffer_size", 1, False, lambda n: replay(CompressedRolloutBuffer, buffer_size=n).buffer_size),
    "rollout, n_envs": ("n_envs", 1, False, lambda n: replay(CompressedRolloutBuffer, n_envs=n).n_envs),
    "one's own, buffer_size": (
        "buffer_size", 1, False, lambda n: compressed(Longer)("name", n, IMAGES, ACTIONS).buffer_size),
    "CompressionCallback": ("every", 1, False, lambda n: CompressionCallback(n)._every),
}  # fmt: skip


@pytest.mark.parametrize("where", COUNTS)
def test_a_count_is_a_whole_number(where):
    what, least, optional, use = COUNTS[where]
    or_none = ", or None" if optional else ""
    for value in NO_NUMBERS:
        text = f"{what} must be a whole number, {least} or more{or_none}, got {reprlib.repr(value)}"
        if value is not None or not optional:
            refused(obscodec.DTypeError, text, use, value)
    for value in (1.5, float("nan")):
        text = f"{what} must be a whole number, {least} or more{or_none}, got {value}"
        refused(obscodec.ShapeError, text, use, value)
    refused(obscodec.ShapeError, f"{what} must be {least} or more{or_none}, got {least - 1}", use, least - 1)
    refused(obscodec.ShapeError, f"{what} must be {2**47} or less{or_none}, got {10**20}", use, 10**20)
    assert [use(value) for value in WHOLE] == [4] * len(WHOLE)


def test_the_options_of_an_algorithm_reach_the_buffer():
    options = {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": {"threads": -1}}
    refused(
        obscodec.ShapeError, "threads must be 1 or more, or None, got -1", DQN, "MlpPolicy", "CartPole-v1", **options
    )
    options["replay_buffer_kwargs"] = {"codec": "zstd:3"}
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=1e3, **options)
    assert model.replay_buffer.buffer_size == 1000


OPTIONS = (
    "codec, min_nbytes, frame_stack, budget, decide_after, block_frames, buffer_device, heap, threads, max_bytes, "
    "spill, prefetch"
)
FIRST = "buffer_size, observation_space, action_space, "
OF_REPLAY = f"{FIRST}device, n_envs, optimize_memory_usage, handle_timeout_termination"
OF_ROLLOUT = f"{FIRST}device, gae_lambda, gamma, n_envs"
OF_HER = (
    f"{FIRST}env, device, n_envs, optimize_memory_usage, handle_timeout_termination, n_sampled_goal, "
    "goal_selection_strategy, copy_info_dict"
)


@pytest.mark.parametrize(("buffer_class", "names"), [
    (CompressedReplayBuffer, f"{OF_REPLAY}, {OPTIONS}"),
    (CompressedDictReplayBuffer, f"{OF_REPLAY}, {OPTIONS}"),
    (CompressedNStepReplayBuffer, f"{OF_REPLAY}, {OPTIONS}, n_steps, gamma"),
    (CompressedHerReplayBuffer, f"{OF_HER}, {OPTIONS}"),
    (CompressedRolloutBuffer, f"{OF_ROLLOUT}, {OPTIONS}"),
    (CompressedDictRolloutBuffer, f"{OF_ROLLOUT}, {OPTIONS}"),
    (compressed(Longer), f"name, {OF_REPLAY}, {OPTIONS}"),
])  # fmt: skip
def test_a_constructor_shows_all_that_it_takes(buffer_class, names):
    takes = inspect.signature(buffer_class)
    assert ", ".join(takes.parameters) == names
    assert ", ".join(inspect.signature(buffer_class.__init__).parameters) == f"self, {names}"
    assert takes.parameters["codec"].default == "auto"
    assert takes.parameters["codec"].kind is inspect.Parameter.KEYWORD_ONLY
    assert takes.parameters["device"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    text = (
        f"{buffer_class.__name__} got an unexpected keyword argument 'codecs', did you mean 'codec'? There are {names}"
    )
    refused(TypeError, text, replay, buffer_class, codecs="raw")


def test_a_memory_option_counts_wherever_a_class_takes_it():
    class Fewer(ReplayBuffer):
        def __init__(self, buffer_size, observation_space, action_space):
            super().__init__(buffer_size, observation_space, action_space, "cpu")

    class Own(CompressedReplayBuffer):
        def __init__(self, name, *args, **kwargs):
            super().__init__(*args, **kwargs)

    arguments = 20, IMAGES, ACTIONS, "cpu", 1
    assert CompressedReplayBuffer(*arguments, True)._leaves_oldest_out
    assert compressed(Longer)("name", *arguments, True)._leaves_oldest_out
    assert Own("name", *arguments, True)._leaves_oldest_out
    assert not Own("name", *arguments, False)._leaves_oldest_out
    assert not compressed(Fewer)(*arguments[:3])._leaves_oldest_out


@pytest.mark.parametrize(("buffer_class", "stock", "env"), [
    (CompressedReplayBuffer, ReplayBuffer, "CartPole-v1"),
    (CompressedDictReplayBuffer, DictReplayBuffer, SimpleMultiObsEnv()),
    (CompressedHerReplayBuffer, HerReplayBuffer, BitFlippingEnv()),
])  # fmt: skip
def test_the_memory_option_is_an_argument_of_the_algorithm(buffer_class, stock, env):
    def buffer(kind, kwargs, **options):
        policy = "MlpPolicy" if stock is ReplayBuffer else "MultiInputPolicy"
        made = {"replay_buffer_class": kind, "replay_buffer_kwargs": kwargs, "buffer_size": 100, "device": "cpu"}
        return DQN(policy, env, **made, **options).replay_buffer

    for timeouts in (False, True):
        for optimized in (False, True):  # SB3 always passes it
            made = buffer(buffer_class, {"handle_timeout_termination": timeouts}, optimize_memory_usage=optimized)
            assert made.handle_timeout_termination == timeouts
            assert made._leaves_oldest_out == (optimized and stock is ReplayBuffer)  # SB3 has it for this one alone
    for kind in (stock, buffer_class):  # Python refuses the call of SB3, before the class can say anything
        with pytest.raises(TypeError, match=r"\(\) got multiple values for keyword argument 'optimize_memory_usage'$"):
            buffer(kind, {"optimize_memory_usage": True, "handle_timeout_termination": False})


def test_an_argument_of_an_algorithm_names_it():
    text = "CompressedReplayBuffer got an unexpected keyword argument 'codecs', did you mean 'codec'? There are "
    with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
        algorithm(DQN, "replay", CompressedReplayBuffer, codecs="raw")
    text = (
        "CompressedRolloutBuffer got an unexpected keyword argument 'optimize_memory_usage', which DQN, SAC and "
        "others pass to replay buffers: give them CompressedReplayBuffer"
    )
    refused(TypeError, text, algorithm, DQN, "replay", CompressedRolloutBuffer)
    text = (
        "CompressedReplayBuffer got an unexpected keyword argument 'gae_lambda', which PPO and A2C pass to rollout "
        "buffers: give them CompressedRolloutBuffer"
    )
    refused(TypeError, text, algorithm, PPO, "rollout", CompressedReplayBuffer)
    text = (
        "CompressedReplayBuffer got an unexpected keyword argument 'n_steps', which CompressedNStepReplayBuffer takes: "
        "pass that as replay_buffer_class"
    )
    refused(TypeError, text, algorithm, DQN, "replay", CompressedReplayBuffer, n_steps=3, gamma=0.9)


def algorithm(kind, of, buffer_class, **options):
    return kind("MlpPolicy", "CartPole-v1", **{f"{of}_buffer_class": buffer_class, f"{of}_buffer_kwargs": options})


@pytest.mark.parametrize("buffer_class", [CompressedReplayBuffer, CompressedRolloutBuffer])
def test_a_buffer_that_no_memory_has_room_for_is_refused(buffer_class):
    with pytest.raises(MemoryError, match=r"^there is not enough memory for 1,000,000,000,000 steps, "):
        replay(buffer_class, buffer_size=10**12)


SPEC = "a spec is text such as 'zstd:3', got {kind}"
STACK = "frame_stack must be a FrameStack, such as FrameStack(4, axis=-1), or a whole number, got {kind}"
BUDGET = "a budget is 'fast' or None, got {value}"
OTHERS = {
    "codec": (obscodec.SpecError, SPEC, [4, 1.5, True, ["raw"], np.zeros(2)], lambda x: replay(codec=x)),
    "codec{}": (obscodec.SpecError, SPEC, [4, ["raw"]],
                lambda x: replay(CompressedDictReplayBuffer, DICT, codec={"image": x})),
    "codec{} without keys": (
        obscodec.FieldError,
        "codec is given for 'image', and there is one field, without a name: pass its codec alone, such as codec='raw'",
        [{"image": "raw"}], lambda x: replay(codec=x)),
    "codec{} of no key": (
        obscodec.FieldError, "codec is given for 'imag', which is none of the fields 'image', 'vector'",
        [{"imag": "raw"}], lambda x: replay(CompressedDictReplayBuffer, DICT, codec=x)),
    "a level": (obscodec.LevelError, "zstd level must be in -100..-1 or 1..22, got 99", ["zstd:99"],
                lambda x: replay(codec=x)),
    "compression_method": (
        TypeError,
        "compression_method= is an argument of sb3-extra-buffers: name the codec instead, as in codec='zstd:3', or "
        "leave it out for the best one",
        ["rle"], lambda x: replay(compression_method=x)),
    "frame_stack": (obscodec.DTypeError, STACK, ["4", [4], (4, 0)], lambda x: replay(frame_stack=x)),
    "frame_stack{}": (obscodec.DTypeError, STACK, ["4", [4], (4, 0)],
                      lambda x: replay(CompressedDictReplayBuffer, DICT, frame_stack={"image": x})),
    "budget": (obscodec.SpecError, BUDGET, [4, "quick", ["1 ms/batch"]], lambda x: replay(budget=x)),
    "heap": (obscodec.SpecError, "heap is 'device' or 'pinned', got {value}", [None, 4, ["device"]],
             lambda x: replay(heap=x)),
    "prefetch": (obscodec.DTypeError, "prefetch must be True or False, got {value}", [None, "False", 2, 0.5, [True]],
                 lambda x: replay(prefetch=x)),
    "sample(env)": (obscodec.DTypeError, "env must be a VecNormalize or None, got {kind}", ["CartPole-v1", 4],
                    lambda x: filled().sample(2, x)),
    "compressed": (obscodec.DTypeError, "compressed() takes a subclass of ReplayBuffer or RolloutBuffer, got {value}",
                   [None, "ReplayBuffer", 4], compressed),
    "like": (obscodec.DTypeError, "buffer must be a RolloutBuffer, such as model.rollout_buffer, got {kind}",
             [None, 4, "buffer"], CompressedRolloutBuffer.like),
}  # fmt: skip


@pytest.mark.parametrize("where", OTHERS)
def test_what_else_users_get_wrong(where):
    error, text, values, use = OTHERS[where]
    for value in values:
        kind = "None" if value is None else type(value).__name__
        refused(error, text.format(value=reprlib.repr(value), kind=kind), use, value)


def test_a_number_is_a_frame_stack():
    assert replay(frame_stack=4).observation_store.options.frame_stack == obscodec.FrameStack(4)
    stores = replay(CompressedDictReplayBuffer, DICT, frame_stack={"image": 4}).observation_store
    assert stores["image"].options.frame_stack == obscodec.FrameStack(4)


def test_a_switch_can_be_a_number():
    assert replay(prefetch=np.True_)._prefetch is True
    assert replay(prefetch=0)._prefetch is False


NESTED = (
    "{name} takes observations that are a dictionary of arrays, got a dictionary under 'agent', which "
    "Stable-Baselines3 does not support: wrap the environment in gymnasium.wrappers.FlattenObservation, or in an "
    "ObservationWrapper that gives one dictionary"
)


@pytest.mark.parametrize("buffer_class", [CompressedDictReplayBuffer, CompressedDictRolloutBuffer])
def test_spaces_that_a_class_for_dictionaries_does_not_take(buffer_class):
    nested = spaces.Dict(image=IMAGES, agent=spaces.Dict(position=spaces.Box(-1, 1, (2,))))
    name = buffer_class.__name__
    refused(obscodec.DTypeError, NESTED.format(name=name), replay, buffer_class, nested)
    of_sb3 = f"{name.removeprefix('Compressed')} must be used with Dict obs space only"  # its own tests ask for that
    refused(AssertionError, of_sb3, replay, buffer_class, IMAGES)


def zeros_of(space):
    return {key: np.zeros((1, *of_key.shape), of_key.dtype) for key, of_key in space.items()}


KEYS = "observations are a dictionary with the keys image, vector, got "


@pytest.mark.parametrize(
    ("obs", "text"),
    [
        ({"image": zeros_of(DICT)["image"]}, f"{KEYS}['image']"),
        ({}, f"{KEYS}[]"),
        (None, f"{KEYS}None"),
        ([1, 2], f"{KEYS}[1, 2]"),
    ],
)
def test_observations_without_a_key_change_nothing(obs, text):
    buffer = replay(CompressedDictReplayBuffer, DICT, device="cpu")
    good, rest = zeros_of(DICT), (np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    refused(obscodec.FieldError, text, buffer.add, obs, good, *rest)
    refused(obscodec.FieldError, text, buffer.add, good, obs, *rest)
    assert buffer.size() == 0
    rollouts = replay(CompressedDictRolloutBuffer, DICT, device="cpu")
    refused(obscodec.FieldError, text, rollouts.add, obs, *rest[:3], torch.zeros(1), torch.zeros(1))
    assert rollouts.size() == 0


MASK = "a MaskedArray would lose its mask: fill it, as in x.filled(0), or store x.data and x.mask as two arrays"


def test_masked_observations_of_a_rollout_are_refused():
    rollouts = replay(CompressedRolloutBuffer, device="cpu")
    obs = np.ma.masked_array(np.zeros((1, 4, 40, 40), np.uint8))
    text = f"observations: {MASK}"
    refused(obscodec.DTypeError, text, rollouts.add, obs, *[np.zeros(1)] * 3, torch.zeros(1), torch.zeros(1))
    buffer = replay(CompressedDictReplayBuffer, DICT, device="cpu")
    good = zeros_of(DICT)
    for key in good:
        bad = good | {key: np.ma.masked_array(good[key])}
        text = f"field {key!r}: {MASK}"
        refused(obscodec.DTypeError, text, buffer.add, good, bad, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    assert rollouts.size() == buffer.size() == 0


def test_arguments_in_another_order_are_named(tmp_path):
    for error, text, call in (
        (DTypeError, "save_freq must be a whole number, 1 or more, got 'ckpt'", lambda: SnapshotCallback("ckpt", 100)),
        (ShapeError, "save_freq must be 1 or more, got 0", lambda: SnapshotCallback(0, "ckpt")),
        (DTypeError, "save_path must be a folder, such as 'checkpoints', got int", lambda: SnapshotCallback(100, 100)),
        (
            DTypeError,
            "algorithm must be the class of an algorithm, such as DQN, got str",
            lambda: resume("ckpt", DQN, "CartPole-v1"),
        ),
        (DTypeError, "path must be a folder, such as 'checkpoints', got int", lambda: resume(DQN, 3, "CartPole-v1")),
    ):
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            call()


@pytest.mark.parametrize("buffer_class", [NStepReplayBuffer, CompressedNStepReplayBuffer])
def test_n_steps_are_arguments_of_the_buffer_as_with_the_class_of_sb3(buffer_class):
    arguments = {"gamma": 0.9, "buffer_size": 100, "replay_buffer_class": buffer_class, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 2.9 says that it does not pass its own n_steps on
        buffer = DQN("MlpPolicy", "CartPole-v1", n_steps=5, **arguments).replay_buffer
    assert (buffer.n_steps, buffer.gamma) == (3, 0.99)
    kwargs = {"n_steps": 5, "gamma": 0.9}
    buffer = DQN("MlpPolicy", "CartPole-v1", replay_buffer_kwargs=kwargs, **arguments).replay_buffer
    assert (buffer.n_steps, buffer.gamma) == (5, 0.9)


def test_a_space_is_asked_for():
    text = "{0} must be a space of Gymnasium, such as env.{0}, got {1}"
    refused(obscodec.DTypeError, text.format("observation_space", "tuple"), CompressedReplayBuffer, 9, (4, 84, 84), 2)
    refused(obscodec.DTypeError, text.format("action_space", "int"), CompressedReplayBuffer, 9, IMAGES, 2)
