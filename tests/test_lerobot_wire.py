"""What the example sends for LeRobot arrives as ``torch.load`` reads it, and is refused if it is damaged or made up."""

import math
import struct
from itertools import pairwise
from typing import Any

import lerobot_wire
import numpy as np
import pytest
import torch
from lerobot_wire import PLANS, bytes_to_transitions, loaded, saved, transitions_to_bytes
from obscodec import CorruptStream
from obscodec.arrays import DeferredRead
from obscodec.wire import EncodedBatch

IMAGE = 1, 3, 40, 40
DTYPES = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"


@pytest.fixture(autouse=True)
def _no_plans() -> None:
    PLANS.clear()


def noise(n: int) -> list[torch.Tensor]:
    return [*torch.randint(0, 256, (n, *IMAGE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))]


def episode(images: list[torch.Tensor]) -> list[dict[str, Any]]:
    """Transitions whose next image is the image of the next one."""
    return [
        {
            "state": {"observation.images.front": image, "observation.state": torch.full((1, 6), k * 0.1)},
            "action": torch.tensor([[k, -k]], dtype=torch.float32),
            "reward": k / 3,
            "next_state": {"observation.images.front": following, "observation.state": torch.full((1, 6), k * 0.2)},
            "done": k == len(images) - 2,
            "truncated": torch.tensor(k == 3),
            "complementary_info": {"discrete_penalty": torch.tensor([0.0]), "intervention": k} if k else None,
        }
        for k, (image, following) in enumerate(pairwise(images))
    ]


def bits(of: Any) -> Any:
    """A value in which all that is the same is equal, to the bit, and nothing else."""
    if isinstance(of, torch.Tensor):
        assert of.is_contiguous()
        return str(of.dtype), of.shape, of.device, of.requires_grad, of.reshape(-1).view(torch.uint8).tolist()
    if isinstance(of, dict):
        return type(of), [(key, bits(value)) for key, value in of.items()]
    if isinstance(of, (list, tuple)):
        return type(of), [bits(value) for value in of]
    return type(of), struct.pack("<d", of) if isinstance(of, float) else of


def assert_same(transitions: list[dict[str, Any]]) -> None:
    arrived = bytes_to_transitions(transitions_to_bytes(transitions))
    assert bits(arrived) == bits(loaded(saved(transitions)))


def message_of(batch: Any) -> bytes:
    """A message that is whole, of anything."""
    return EncodedBatch.of(DeferredRead(lambda: batch)).to_bytes()


@pytest.mark.parametrize("as_image", [lambda x: x, lambda x: x / 255, lambda x: x / 254.7, lambda x: x[0] // 2 * 2])
@pytest.mark.parametrize("n", [0, 1, 12])
def test_transitions_arrive_as_torch_loads_them(as_image: Any, n: int) -> None:
    transitions = episode([as_image(image) for image in noise(n + 1)])
    assert len(transitions) == n
    assert_same(transitions)
    assert_same([of for of in transitions for _ in range(2)])


@pytest.mark.parametrize("dtype", DTYPES.split())
def test_all_dtypes_and_shapes_arrive(dtype: str) -> None:
    """With bits that are no number of their dtype, such as those of a NaN with a payload."""
    values = torch.randint(0, 256, (1 << 15,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    bare = (values % 2).bool() if dtype == "bool" else values.view(getattr(torch, dtype))
    assert_same([{"x": bare[:n].reshape(shape)} for n, shape in ((1, ()), (0, (0, 4)), (6, (2, 3)), (2000, (20, 100)))])


def test_plain_values_arrive() -> None:
    (other_nan,) = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))  # negative, and with a payload
    numbers = [0.1, -0.0, math.inf, math.nan, other_nan, 5e-324, 1 << 80, -1, True, False, None, "\ud800é\0"]
    assert_same([{"values": numbers, "nested": ({}, [], (), {"": [(torch.ones(2),)]}), "next": {"float": "dict"}}])


def test_what_the_caller_does_afterwards_changes_nothing() -> None:
    images = noise(5)
    transitions = episode(images)
    message, expected = transitions_to_bytes(transitions), bits(loaded(saved(transitions)))
    for image in images:
        image.zero_()
    arrived = bytes_to_transitions(message)
    assert bits(arrived) == expected
    arrived[0]["next_state"]["observation.images.front"].zero_()
    assert bits(arrived[1:]) == (list, expected[1][1:])


def test_strides_and_gradients_stay_at_home() -> None:
    x = torch.rand(3, 40, 40)
    given = [{"x": x.permute(1, 2, 0)}, {"x": x.permute(1, 2, 0).clone().requires_grad_()}]
    arrived = bytes_to_transitions(transitions_to_bytes(given))
    assert bits(arrived) == bits([{"x": x.permute(1, 2, 0).contiguous()}] * 2)


def test_an_image_is_sent_once() -> None:
    images = noise(21)
    message = transitions_to_bytes(episode([image.clone() for image in images]))
    assert len(message) < 1.03 * sum(image.nbytes for image in images) + 500 * len(images)
    apart = transitions_to_bytes(episode(images[:1] * 21))
    assert len(apart) < 20_000


def test_the_codec_is_chosen_again_when_other_images_come() -> None:
    black = [torch.zeros(IMAGE, dtype=torch.uint8)] * 9
    ramp = torch.arange(IMAGE[-1], dtype=torch.float32)
    textured = [
        (128 + 60 * torch.sin((ramp + k) / 5) + 20 * torch.cos((ramp[:, None] - k) / 3)).expand(IMAGE).round().byte()
        for k in range(9)
    ]
    specs = []
    for images in (black, textured, textured):
        assert_same(episode(images))
        (plan, _, n) = PLANS[("observation.images.front", torch.uint8, torch.Size(IMAGE), "cpu")]
        specs.append((plan.spec, n))
    assert [n for _, n in specs] == [16, 32, 48]
    assert specs[0][0] != specs[1][0] == specs[2][0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros(3), "'x': a ndarray"),
        (np.float32(1), "'x': a float32"),
        ({1: 2}, "'x': a dict"),
        ({"y": [b""]}, "'y': a bytes"),
    ],
)
def test_other_values_are_refused(value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=rf"transitions have tensors, numbers, flags and texts, got {said}$"):
        transitions_to_bytes([{"x": value}])


def test_damaged_bytes_are_refused() -> None:
    message = transitions_to_bytes(episode(noise(3)))
    for at in {*range(200), *range(0, len(message), 97)}:
        for damaged in (message[:at], message[:at] + bytes([message[at] ^ 16]) + message[at + 1 :]):
            with pytest.raises(CorruptStream):
                bytes_to_transitions(damaged)
    for other in (b"", saved(episode(noise(3))), message + b"\0"):
        with pytest.raises(CorruptStream):
            bytes_to_transitions(other)


THREE = np.arange(3.0)
MADE_UP: dict[str, Any] = {
    "no list": 5,
    "too few parts": [[], []],
    "no devices": [[], ["cpu"], []],
    "a device that is none": [[{"next": 0}], ["somewhere"], [THREE]],
    "a device that is a number": [[{"next": 0}], [[]], [THREE]],
    "a column that is a number": [[{"next": 0}], ["cpu"], [np.float64(3).reshape(())]],
    "a column that is a text": [[{"next": 0}], ["cpu"], ["abc"]],
    "another column": [[{"next": 1}], ["cpu"], [THREE]],
    "no number of a column": [[{"next": "0"}], ["cpu"], [THREE]],
    "more than a column has": [[{"next": 0}] * 4, ["cpu"], [THREE]],
    "more than an empty column has": [[{"next": 0}], ["cpu"], [THREE[:0]]],
    "another node": [[{"tensor": 0}], [], []],
    "a list": [[[1]], [], []],
    "an array": [[THREE], [], []],
    "a number": [[0.5], [], []],
    "no items": [[{"dict": [1]}], [], []],
    "keys that are lists": [[{"dict": [[{"list": []}, 1]]}], [], []],
    "no digits": [[{"float": "zz"}], [], []],
    "too few digits": [[{"float": "00"}], [], []],
    "a text of digits that is none": [[{"float": 3}], [], []],
}


@pytest.mark.parametrize("name", MADE_UP)
def test_what_a_stranger_makes_up_is_refused(name: str) -> None:
    with pytest.raises(CorruptStream, match="no transitions: "):
        bytes_to_transitions(message_of(MADE_UP[name]))


def test_a_stranger_gets_no_more_than_the_memory_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    message = transitions_to_bytes(episode(noise(5)[:1] * 100))
    monkeypatch.setattr(lerobot_wire, "MAX_BYTES", 150 * math.prod(IMAGE))
    with pytest.raises(CorruptStream):
        bytes_to_transitions(message)
    many = np.zeros((1 << 40, 0), np.float32)  # no bytes, and more rows than anybody has memory for tensors
    (row,) = bytes_to_transitions(message_of([[{"next": 0}], ["cpu"], [many]]))
    assert row.shape == (0,)


def test_a_message_that_is_nested_deeply_is_read_or_refused() -> None:
    read = []
    for depth in range(20, 1000, 20):
        nested: Any = 0
        for _ in range(depth):
            nested = {"list": [nested]}
        try:
            message = message_of([[nested], [], []])
        except RecursionError:
            break
        try:
            read.append(len(bytes_to_transitions(message)))
        except CorruptStream:
            read.append(0)
    assert read[0] == 1
    assert len(read) > 5
