"""Buffers on a local Ray cluster: actors add compressed frames, a learner samples them."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import ray
import torch
from atari_steps import atari_steps
from obscodec.frames import FrameLog
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import RayReplayBuffer, RemoteTensorDictReplayBuffer, ReplayBuffer, TensorDictReplayBuffer

N = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # Under `uv run`, Ray would begin each worker with another one, in a copy of this folder without .venv.
        patch.setattr("ray._private.ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV", False)
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=300 << 20, log_to_driver=False)
    module = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(module)  # which can't be imported elsewhere
    yield
    ray.cloudpickle.unregister_pickle_by_value(module)
    ray.shutdown()


def compressed(steps: TensorDict) -> TensorDict:
    """The same steps, in a store of their own, with which they are pickled."""
    storage = CompressedStorage(len(steps))
    storage.set(range(len(steps)), steps)
    return storage[:]


class AdoptingStorage(CompressedStorage):
    """One that can't be written but by adopting: no frame is decoded, and none encoded."""

    def set(self, *args: Any, **options: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FrameLog, "take_in", None)  # which all that encodes goes through
            patch.setattr(FrameLog, "read", None)  # likewise all that decodes
            super().set(*args, **options)


@pytest.mark.parametrize("n", [N, 60])  # with so few, the store has not decided yet how to keep them
def test_compressed_steps_travel_in_few_bytes(n: int) -> None:
    steps = atari_steps("Pong", N, seed=0)[:n]
    sent = pickle.dumps(compressed(steps))
    assert len(sent) < len(pickle.dumps(steps)) / 250
    assert (pickle.loads(sent) == steps).all()


def test_a_part_of_a_storage_travels_alone_from_one_of_its_own() -> None:
    steps = atari_steps("Pong", N, seed=0)
    part = CompressedStorage(20)
    part.set(range(20), compressed(steps)[100:120])
    assert (part[:] == steps[100:120]).all()
    assert len(pickle.dumps(part[:])) < len(pickle.dumps(compressed(steps))) / 3


@pytest.mark.parametrize("buffer_class", [TensorDictReplayBuffer, RemoteTensorDictReplayBuffer, ReplayBuffer])
def test_compressed_steps_are_filed_as_they_are_encoded(buffer_class: type[ReplayBuffer]) -> None:
    steps = atari_steps("Pong", N, seed=0)
    buffer = buffer_class(storage=AdoptingStorage(2 * N), batch_size=32)
    for first in (0, 40):  # the first ones decide
        buffer.extend(pickle.loads(pickle.dumps(compressed(steps)[first:])))
    expected = torch.cat([steps, steps[40:]])
    assert (buffer[torch.arange(len(expected))].exclude("index") == expected).all()
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):  # these would be encoded
        buffer.extend(steps)


@pytest.mark.filterwarnings("ignore")  # of Ray
@pytest.mark.parametrize("buffer_class", [TensorDictReplayBuffer, RemoteTensorDictReplayBuffer])
def test_actors_add_compressed_steps_to_a_buffer_on_another_machine(
    cluster: None, buffer_class: type[ReplayBuffer]
) -> None:
    steps = atari_steps("Pong", N, seed=0)
    buffer = RayReplayBuffer(
        storage=partial(AdoptingStorage, 2 * N),
        replay_buffer_cls=buffer_class,
        batch_size=32,
        remote_config={"num_cpus": 0},
    )

    @ray.remote
    def act(client: RayReplayBuffer, sent: TensorDict) -> int:
        client.extend(sent)
        return len(sent)

    sent = compressed(steps)
    assert ray.get(act.remote(buffer.client(), sent)) == N
    buffer.extend(sent)
    expected = torch.cat([steps, steps])
    assert (buffer[torch.arange(2 * N)].exclude("index") == expected).all()
    sample = buffer.sample()
    assert (sample.exclude("index") == expected[sample["index"]]).all()
    buffer.close()
