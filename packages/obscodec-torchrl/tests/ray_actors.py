"""Actors of a local Ray cluster add compressed frames to buffers: ``ray_actors.py BUFFER ...``, classes of TorchRL.

Fails if a buffer holds anything else than what the actors have sent, or gives a batch otherwise than encoded.
"""

import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import ray
import torch
from obscodec import RateLimited, RateLimiter
from obscodec_torchrl import CompressedStorage, RayReplayBuffer
from ray._private import ray_constants
from tensordict import TensorDict
from torchrl import data

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from atari_steps import atari_steps

N = 300


def compressed(steps: TensorDict) -> TensorDict:
    """The same steps, in a store of their own, with which they are pickled."""
    storage = CompressedStorage(len(steps))
    storage.set(range(len(steps)), steps)
    return storage[:]


def add_from_actors(buffer_class: type[data.ReplayBuffer], ray_class: type[data.RayReplayBuffer]) -> None:
    """Extend a buffer on another machine, by an actor and from here, and compare what is in it."""
    buffer = ray_class(
        storage=partial(CompressedStorage, 2 * N),
        replay_buffer_cls=buffer_class,
        batch_size=32,
        remote_config={"num_cpus": 0},
    )

    @ray.remote
    def act(client: data.RayReplayBuffer, sent: TensorDict) -> int:
        client.extend(sent)
        return len(sent)

    steps = atari_steps("Pong", N, seed=0)
    sent = compressed(steps)
    assert ray.get(act.remote(buffer.client(), sent)) == N
    buffer.extend(steps.clone())  # encoded by the client, where it does so
    expected = torch.cat([steps, steps])
    assert (buffer[torch.arange(2 * N)].exclude("index") == expected).all()
    with TemporaryDirectory() as folder:
        for _ in range(2):
            sample = buffer.client().sample()
            assert type(sample["pixels"]) is torch.Tensor
            assert (sample.exclude("index") == expected[sample["index"]]).all()
            buffer.dumps(folder)
            buffer.empty()
            buffer.loads(folder)
    sent = ray.get(buffer._rb.__ray_call__.remote(lambda actor: type(actor.sample()["pixels"]).__name__))
    assert sent == "SentCompressedTensor", sent
    buffer.close()


def sample_in_flight() -> None:
    """Batches that are under way at the same time are of the stored steps, also while the codec is trained anew."""
    buffer = RayReplayBuffer(
        storage=partial(CompressedStorage, 2 * N, codec="zstd:3"),
        replay_buffer_cls=data.TensorDictReplayBuffer,
        batch_size=32,
        remote_config={"num_cpus": 0},
    )
    actor = buffer._rb

    def train(actor: data.ReplayBuffer) -> list[int]:
        actor.storage.decide()
        (store,) = actor.storage.stores()
        store.log.train()
        return sorted(store.log.coder.codecs)

    @ray.remote
    def learn(client: data.RayReplayBuffer) -> list[TensorDict]:
        return [client.sample() for _ in range(3)]

    steps = torch.cat([atari_steps("Pong", 60, seed=0), atari_steps("MsPacman", 2 * N - 60, seed=0)])
    versions = []
    for begin, end in ((0, 60), (60, 500), (500, 2 * N)):
        buffer.extend(steps[begin:end].clone())
        several = [actor.__ray_call__.remote(lambda actor: [actor.sample() for _ in range(3)]) for _ in range(2)]
        several += [learn.remote(buffer.client()) for _ in range(2)]
        single = [actor.sample.remote() for _ in range(3)]
        trained = actor.__ray_call__.remote(train)
        single += [actor.sample.remote() for _ in range(3)]
        single.append(actor.sample.remote(end))  # of blocks of all codecs
        versions.append(ray.get(trained))
        arrived = [*ray.get(single), *(sample for samples in ray.get(several) for sample in samples)]
        assert len(arrived) == 19
        for sample in arrived:
            assert type(sample["pixels"]) is torch.Tensor
            assert (sample.exclude("index") == steps[sample["index"]]).all()
    assert versions == [[1, 2], [1, 2, 3], [1, 2, 3]], versions
    with pytest.raises(RuntimeError, match="negative dimension"):
        buffer.sample(-1)
    buffer.close()


def share_a_limiter() -> None:
    """An actor that appends and a learner that samples ask one RateLimiter, which is an actor, too."""
    limiter = ray.remote(RateLimiter).options(num_cpus=0, max_concurrency=4).remote(4, min_size=10, timeout=60)

    @ray.remote(num_cpus=0)
    def call(method: str, n: int, times: int) -> float:
        return sum(ray.get([getattr(limiter, method).remote(n)])[0] for _ in range(times))

    waited = ray.get([call.remote("insert", 2, 105), call.remote("sample", 16, 50)])
    assert sum(waited) > 0
    refused = ray.remote(lambda: RateLimiter(4, timeout=0).sample(3))
    with pytest.raises(RateLimited, match="1 more steps must be inserted first"):
        ray.get(refused.remote())


if __name__ == "__main__":
    # Under `uv run`, Ray would begin each worker with another one, in a copy of this folder without .venv.
    ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = False
    own = {"address": "local", "num_cpus": 2}  # there may be a cluster already
    ray.init(**own, include_dashboard=False, object_store_memory=300 << 20, log_to_driver=False)
    for name in sys.argv[1:]:
        for ray_class in (data.RayReplayBuffer, RayReplayBuffer):
            add_from_actors(getattr(data, name), ray_class)
    sample_in_flight()
    share_a_limiter()
    ray.shutdown()
