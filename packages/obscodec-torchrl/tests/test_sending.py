"""Batches that an actor of Ray sends encoded are what it would have decoded, and what clients write is what arrives.

The actors here are objects of this process, whose results go through pickle; ``ray_actors.py`` has real ones.
"""

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from atari_steps import atari_steps
from obscodec.wire import MAX_BYTES, EncodedBatch
from obscodec_torchrl import CompressedStorage
from obscodec_torchrl.ray_buffer import joined, sampled_in_parts
from obscodec_torchrl.sending import SentCompressedTensor, SentTensor, encoded, sent_encoded
from tensordict import LazyStackedTensorDict, TensorDict
from torchrl.data import ReplayBuffer, TensorDictReplayBuffer, TensorDictRoundRobinWriter
from torchrl.envs import ToTensorImage
from two_buffers import CAPACITY, SAMPLERS, assert_equal, samples

N = 600


class Actor(TensorDictReplayBuffer):
    """A buffer that says that it is an actor, as the class does that Ray makes of it."""

    __ray_actor_class__ = TensorDictReplayBuffer


@pytest.fixture(scope="module")
def steps() -> TensorDict:
    return atari_steps("MsPacman", N, seed=0)


def sent(of: Any) -> Any:
    """As another process gets it."""
    return pickle.loads(pickle.dumps(of, 5))


def two_buffers(sampler: Callable[[], Any], **options: Any) -> tuple[ReplayBuffer, ReplayBuffer]:
    """One that sends its batches encoded, and one that decodes them."""
    made = [
        kind(
            storage=CompressedStorage(CAPACITY, codec="delta-rle"),
            sampler=sampler(),
            writer=TensorDictRoundRobinWriter(track_generations=True),
            **{"batch_size": 32, **options},
        )
        for kind in (Actor, TensorDictReplayBuffer)
    ]
    return made[0], made[1]


def plain_leaves(of: TensorDict) -> dict[Any, torch.Tensor]:
    found = dict(of.items(include_nested=True, leaves_only=True))
    assert all(type(x) is torch.Tensor for x in found.values())
    return found


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_batch_is_what_the_owner_would_decode(steps: TensorDict, name: str) -> None:
    buffers = two_buffers(SAMPLERS[name])
    for k in range(4):
        for buffer in buffers:
            torch.manual_seed(k)
            buffer.extend(steps[150 * k : 150 * (k + 1)].clone())
        batches = samples(buffers, k)
        assert isinstance(batches[0]["pixels"], SentCompressedTensor)
        assert isinstance(batches[0]["action"], SentTensor)
        message, pickled = (pickle.dumps(batch, 5) for batch in batches)
        assert 5 * len(message) < len(pickled)
        arrived = pickle.loads(message)
        plain_leaves(arrived)
        assert_equal(arrived, batches[1])
        for buffer, batch in zip(buffers, (arrived, batches[1]), strict=True) if name == "prioritized" else ():
            buffer.update_priority(batch["index"], batch["next", "reward"].reshape(-1).abs() + k)


def test_what_was_drawn_arrives_though_it_is_overwritten_meanwhile(steps: TensorDict) -> None:
    buffer, other = two_buffers(SAMPLERS["random"])
    for of in (buffer, other):
        of.extend(steps.clone())
    drawn, expected = samples((buffer, other))
    for k in range(2):
        buffer.extend(atari_steps("Pong", N, seed=k).clone())
    assert_equal(sent(drawn), expected)


def test_rows_are_sent_as_batches_are(steps: TensorDict) -> None:
    buffer, other = two_buffers(SAMPLERS["random"])
    for of in (buffer, other):
        of.extend(steps.clone())
    rows = torch.tensor([5, 5, 0, 599])
    assert_equal(sent(buffer[rows]), other[rows])
    for index in (7, slice(3, 9)):
        message = pickle.dumps(buffer[index], 5)
        assert len(message) < 20_000  # without the other rows
        assert_equal(pickle.loads(message), other[index].apply(lambda x: x.clone()))
    for index in (slice(None), ..., 3):
        assert buffer[index] is not buffer.storage._storage
        assert not any(
            isinstance(x, (SentTensor, SentCompressedTensor)) for x in buffer.storage._storage.values(True, True)
        )
    buffer["pixels"][3] = 0
    assert not sent(buffer[3])["pixels"].any()


def test_a_transform_of_the_owner_gets_pixels(steps: TensorDict) -> None:
    seen = []

    def halved(batch: TensorDict) -> TensorDict:
        seen.append(batch["pixels"].float().mean())
        batch["next", "pixels"].div_(2, rounding_mode="floor")
        return batch.set("rows", batch["pixels"][:, 0, :5]).set("reward", batch["next", "reward"] + 1)

    made = []
    for buffer in two_buffers(SAMPLERS["random"], transform=halved):
        buffer.append_transform(ToTensorImage(in_keys=["pixels"], from_int=True, shape_tolerant=True))
        buffer.extend(steps.clone())
        torch.manual_seed(0)
        made.append(buffer.sample())
    arrived = sent(made[0])
    plain_leaves(arrived)
    assert_equal(arrived, made[1])
    assert seen[0] == seen[1] > 0


@pytest.mark.parametrize("kind", ["encoded", "large", "decoded by a transform"])
def test_a_batch_comes_in_parts(steps: TensorDict, kind: str) -> None:
    """Of which Ray sends each with its answer, if the batch is small enough."""
    transform = ToTensorImage(in_keys=["pixels"], from_int=True, shape_tolerant=True) if "transform" in kind else None
    buffers, given = two_buffers(SAMPLERS["random"], transform=transform, batch_size=400), steps.clone()
    if kind == "large":
        torch.manual_seed(0)
        given = TensorDict(pixels=torch.randint(256, (N, 84, 84), dtype=torch.uint8), batch_size=N)
    drawn = []
    for buffer in buffers:
        buffer.extend(given.clone())
        torch.manual_seed(1)
        drawn.append(sampled_in_parts(buffer, (), {"return_info": True}))
    parts, (wanted, wanted_info) = drawn[0], joined(drawn[1])
    of_kind = {"encoded": {bytes}, "large": {np.ndarray, type(None)}, "decoded by a transform": {tuple, type(None)}}
    assert {*map(type, parts)} == of_kind[kind]
    assert kind != "encoded" or max(map(len, parts)) < 100 << 10
    arrived, info = joined([sent(part) for part in parts])
    plain_leaves(arrived)
    assert_equal(arrived, wanted)
    assert torch.equal(info["index"], wanted_info["index"])


@pytest.mark.parametrize("made", [b"bytes", np.arange(9), (1, 2), None])
def test_what_a_transform_makes_comes_as_it_is(made: Any) -> None:
    arrived = joined([sent(part) for part in sampled_in_parts(SimpleNamespace(sample=lambda: made), (), {})])
    assert type(arrived) is type(made)
    assert np.array_equal(arrived, made) if made is not None else arrived is None


def test_views_of_what_is_sent_can_be_sent(steps: TensorDict) -> None:
    buffer, other = two_buffers(SAMPLERS["random"])
    for of in (buffer, other):
        of.extend(steps.clone())
    batch, expected = samples((buffer, other))
    assert_equal(sent(batch.reshape(8, 4)), expected.reshape(8, 4))
    assert_equal(sent(batch[5:9]), expected[5:9].clone())
    assert torch.equal(batch["pixels"].float().sum(), expected["pixels"].float().sum())


PARTS: dict[str, Callable[[TensorDict], Any]] = {
    "a slice": lambda steps: steps[100:164],
    "a rollout of environments": lambda steps: steps.reshape(10, 60)[:, 20:30],
    "a step": lambda steps: steps[5],
    "every other step": lambda steps: steps[::2],
    "a lazy stack": lambda steps: LazyStackedTensorDict(*[steps[k] for k in range(32)]),
    "numbers": lambda steps: steps[:40].exclude("pixels", ("next", "pixels")),
    "other dtypes": lambda steps: TensorDict(
        a=steps["pixels"][:20].bfloat16(),
        b=steps["pixels"][:20] > 100,
        next=TensorDict(a=steps["next", "pixels"][:20].bfloat16(), batch_size=20),
        batch_size=20,
    ),
    "next ones of another shape": lambda steps: steps[:20].clone().set(("next", "pixels"), steps["pixels"][:20, :3]),
    "more batch axes inside": lambda steps: TensorDict(
        agents=TensorDict(pixels=steps["pixels"][:40].reshape(20, 2, 4, 84, 84), batch_size=(20, 2)), batch_size=20
    ),
    "nothing": lambda steps: steps[:0],
}


@pytest.mark.parametrize("name", PARTS)
def test_what_a_client_writes_arrives(steps: TensorDict, name: str) -> None:
    part = PARTS[name](steps)
    arrived = sent(encoded(part))
    plain_leaves(arrived)
    assert_equal(arrived, part.contiguous())
    assert arrived.names == part.contiguous().names


def test_what_is_no_tensordict_is_sent_as_it_is() -> None:
    pixels = torch.zeros(4, 84, 84)
    assert encoded(pixels) is pixels


def test_a_client_sends_its_rows_only(steps: TensorDict) -> None:
    part = steps[100:356]
    assert len(pickle.dumps(encoded(part), 5)) < 500 * len(part)
    noise = part.clone()
    noise["pixels"].random_()
    noise["next", "pixels"].random_()
    nbytes = sum(x.nbytes for x in plain_leaves(noise).values())
    assert len(pickle.dumps(encoded(noise), 5)) < 1.01 * nbytes


@pytest.mark.slow
def test_a_batch_of_more_than_a_gibibyte_arrives() -> None:
    rows, index = torch.arange(2, dtype=torch.uint8)[:, None].repeat(1, 1 << 20), torch.arange(1025) % 2
    storage = CompressedStorage(2, codec="delta-rle")
    storage.set(range(2), TensorDict({"x": rows}, [2]))
    arrived = sent(sent_encoded(TensorDict({"x": storage._storage["x"].drawn(index)}, [1025])))["x"]
    assert arrived.nbytes > MAX_BYTES
    assert torch.equal(arrived[:, ::4096], rows[index, ::4096])


def test_a_frame_is_sent_once_however_the_next_step_is_called(steps: TensorDict) -> None:
    flat = steps.exclude("next")
    for name, _ in steps["next"].items():
        flat[f"next_{name}"] = steps["next", name]
    n_nested, n_flat = (len(pickle.dumps(encoded(of))) for of in (steps, flat))
    assert n_flat < 1.05 * n_nested


def test_a_client_sends_what_it_had_when_it_was_encoded(steps: TensorDict) -> None:
    part = steps[:64].clone()
    made = encoded(part)
    for x in plain_leaves(part).values():
        x.zero_()
    assert_equal(sent(made), steps[:64])


def test_a_stored_block_is_sent_once_for_all_leaves(steps: TensorDict, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, _ = two_buffers(SAMPLERS["random"])
    buffer.extend(steps.clone())
    messages: list[bytes] = []
    to_bytes = EncodedBatch.to_bytes
    monkeypatch.setattr(EncodedBatch, "to_bytes", lambda batch: messages.append(to_bytes(batch)) or messages[-1])
    together = len(pickle.dumps(buffer.sample(), 5))
    assert len(messages) == 1
    assert len(messages[0]) > 0.9 * together
