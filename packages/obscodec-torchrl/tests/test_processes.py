"""Collectors, workers and actors of Ray, in this process and in others, fill a buffer, read and write it."""

import pickle
import subprocess
import sys
from functools import partial

import pytest
import ray_actors
import torch
from atari_steps import atari_steps
from moving_square import MovingSquare, read_and_write, stacked_square
from obscodec_torchrl import CompressedStorage
from ray_actors import N, compressed
from tensordict import TensorDict
from torch import multiprocessing
from torchrl.collectors import Collector, MultiAsyncCollector, MultiSyncCollector
from torchrl.data import (
    LazyTensorStorage,
    OneHot,
    RemoteTensorDictReplayBuffer,
    ReplayBuffer,
    SliceSampler,
    TensorDictReplayBuffer,
)
from torchrl.envs import CatFrames, SerialEnv
from torchrl.modules import RandomPolicy


def filled(collector: Collector, storage: type, n: int, **options: object) -> TensorDictReplayBuffer:
    """A buffer with ``n`` steps of a collector."""
    buffer = TensorDictReplayBuffer(storage=storage(n), batch_size=32, **options)
    torch.manual_seed(0)
    for steps in collector:
        buffer.extend(steps.reshape(-1))
    collector.shutdown()
    return buffer


def assert_whole(buffer: TensorDictReplayBuffer, n: int) -> None:
    """Every stack moves on by one frame, and most frames are stored once."""
    steps = buffer[torch.arange(n)]
    assert torch.equal(steps["pixels"][:, 1:], steps["next", "pixels"][:, :-1])
    assert len(buffer) == n
    buffer.storage.decide()  # most observations are alike, it would wait for more
    assert buffer.storage.stats().ratio > 10


def test_a_collector_fills_a_buffer_as_it_fills_a_stock_one() -> None:
    buffers = []
    for storage in (LazyTensorStorage, CompressedStorage):
        torch.manual_seed(0)
        collector = Collector(stacked_square, None, frames_per_batch=100, total_frames=600)
        buffers.append(filled(collector, storage, 600))
    assert (buffers[0][torch.arange(600)] == buffers[1][torch.arange(600)]).all()
    assert_whole(buffers[1], 600)


def test_a_collector_writes_into_the_buffer_itself() -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(600), batch_size=32)
    collector = Collector(stacked_square, None, frames_per_batch=100, total_frames=600, replay_buffer=buffer)
    assert all(steps is None for steps in collector)
    collector.shutdown()
    assert_whole(buffer, 600)


def test_environments_that_take_turns_fill_a_buffer_of_one_axis() -> None:
    environments = SerialEnv(4, [lambda speed=speed: stacked_square(speed) for speed in (1, 2, 3, 4)])
    collector = Collector(environments, None, frames_per_batch=80, total_frames=640)
    assert_whole(filled(collector, CompressedStorage, 640), 640)


def test_frames_that_are_stacked_when_they_are_sampled_are_stored_once() -> None:
    samples = []
    for storage in (LazyTensorStorage, CompressedStorage):
        torch.manual_seed(0)
        collector = Collector(MovingSquare, None, frames_per_batch=100, total_frames=600)
        sampler = SliceSampler(num_slices=4, traj_key=("collector", "traj_ids"), strict_length=False)
        buffer = filled(collector, storage, 600, sampler=sampler)
        torch.manual_seed(1)
        slices = buffer.sample().reshape(4, 8).refine_names(None, "time")
        samples.append(CatFrames(4, dim=-3, in_keys=["pixels", ("next", "pixels")])(slices))
    assert samples[1]["pixels"].shape == (4, 8, 4, 40, 40)
    assert (samples[0] == samples[1]).all()
    buffer.storage.decide()
    assert buffer.storage.stats().ratio > 10


@pytest.mark.slow
def test_workers_read_and_write_the_storage() -> None:
    pixels = torch.randint(0, 9, (20, 1, 40, 40), dtype=torch.uint8)
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(100), batch_size=32).share()
    buffer.extend(TensorDict({"pixels": pixels, "number": torch.arange(20)}, [20]))
    context = multiprocessing.get_context("spawn")
    queues = [context.Queue() for _ in range(2)]
    workers = [
        context.Process(target=read_and_write, args=(buffer, begin, queue))
        for begin, queue in zip((100, 200), queues, strict=True)
    ]
    for worker in workers:
        worker.start()
    for queue in queues:
        assert queue.get(timeout=600) == pixels.sum()
        assert queue.get(timeout=600) is True
        assert queue.get(timeout=600) == 32
        assert "key ('number',) is missing" in queue.get(timeout=600)
    for worker in workers:
        worker.join()
    assert len(buffer) == 40
    steps = buffer[torch.arange(20, 40)]
    assert sorted(steps["number"].tolist()) == [*range(100, 110), *range(200, 210)]
    assert (steps["pixels"] == steps["number"].to(torch.uint8).view(20, 1, 1, 1)).all()


@pytest.mark.slow
def test_workers_of_a_collector_write_into_the_buffer_themselves() -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(600), batch_size=32)
    workers = [stacked_square, stacked_square]
    collector = MultiAsyncCollector(workers, None, frames_per_batch=100, total_frames=600, replay_buffer=buffer)
    assert all(steps is None for steps in collector)
    collector.shutdown()
    assert_whole(buffer, 600)


@pytest.mark.slow
def test_a_worker_makes_the_first_write() -> None:
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(600), batch_size=32)
    collector = MultiSyncCollector(
        [stacked_square, stacked_square],
        policy_factory=[partial(RandomPolicy, OneHot(2))] * 2,
        frames_per_batch=100,
        total_frames=600,
        replay_buffer=buffer,
    )
    assert all(steps is None for steps in collector)
    collector.shutdown()
    assert_whole(buffer, 600)


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
def test_compressed_steps_are_filed(buffer_class: type[ReplayBuffer]) -> None:
    steps = atari_steps("Pong", N, seed=0)
    buffer = buffer_class(storage=CompressedStorage(2 * N), batch_size=32)
    for first in (0, 40):
        buffer.extend(pickle.loads(pickle.dumps(compressed(steps)[first:])))
    expected = torch.cat([steps, steps[40:]])
    assert (buffer[torch.arange(len(expected))].exclude("index") == expected).all()


@pytest.mark.slow
def test_actors_add_compressed_steps_to_a_buffer_on_another_machine() -> None:
    """In a process of its own, which Ray changes."""
    command = [sys.executable, ray_actors.__file__, "RemoteTensorDictReplayBuffer"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
