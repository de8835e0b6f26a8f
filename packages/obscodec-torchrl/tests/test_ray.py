"""Buffers on a local Ray cluster: actors add compressed frames, a learner samples them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial

import pytest
import ray
import torch
from atari_steps import atari_steps
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
    yield
    ray.shutdown()


def compressed(steps: TensorDict) -> TensorDict:
    """The same steps, in a store of their own, with which they are pickled."""
    storage = CompressedStorage(len(steps), codec="delta-rle")
    storage.set(range(len(steps)), steps)
    return storage[:]


def test_compressed_steps_travel_in_few_bytes() -> None:
    steps = atari_steps("Pong", N, seed=0)
    sent = pickle.dumps(compressed(steps))
    assert len(sent) < len(pickle.dumps(steps)) / 200
    assert (pickle.loads(sent) == steps).all()


@pytest.mark.filterwarnings("ignore")  # of Ray
@pytest.mark.parametrize("buffer_class", [TensorDictReplayBuffer, RemoteTensorDictReplayBuffer])
def test_actors_add_compressed_steps_to_a_buffer_on_another_machine(
    cluster: None, buffer_class: type[ReplayBuffer]
) -> None:
    steps = atari_steps("Pong", N, seed=0)
    buffer = RayReplayBuffer(
        storage=partial(CompressedStorage, 2 * N),
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
    buffer.extend(sent[:100])
    assert len(buffer) == N + 100
    given = buffer[torch.arange(N + 100)].exclude("index")
    assert (given == torch.cat([steps, steps[:100]])).all()
    sample = buffer.sample()
    assert (sample.exclude("index") == torch.cat([steps, steps[:100]])[sample["index"]]).all()
    buffer.close()
