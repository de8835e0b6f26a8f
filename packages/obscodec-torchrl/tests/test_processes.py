"""Collectors, in this process and in others, fill a buffer; a worker gets a copy that it can read."""

from __future__ import annotations

import torch
from moving_square import MovingSquare, read_and_write, stacked_square
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torch import multiprocessing
from torchrl.collectors import Collector, MultiAsyncCollector, MultiSyncCollector
from torchrl.data import LazyTensorStorage, SliceSampler, TensorDictReplayBuffer
from torchrl.envs import CatFrames, SerialEnv


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


def test_collectors_in_other_processes_fill_a_buffer() -> None:
    for collector_class in (MultiSyncCollector, MultiAsyncCollector):
        collector = collector_class([stacked_square, stacked_square], None, frames_per_batch=100, total_frames=600)
        assert_whole(filled(collector, CompressedStorage, 600), 600)


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
    assert buffer.storage.stats().ratio > 10


def test_a_worker_reads_a_copy_and_can_not_write() -> None:
    steps = TensorDict({"pixels": torch.randint(0, 9, (40, 1, 40, 40), dtype=torch.uint8)}, [40])
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(100), batch_size=32)
    buffer.extend(steps[:20])
    context = multiprocessing.get_context("spawn")
    go_on, results = context.Queue(), context.Queue()
    worker = context.Process(target=read_and_write, args=(buffer, go_on, results))
    worker.start()
    buffer.extend(steps[20:])
    go_on.put(None)
    assert results.get(timeout=600) == steps["pixels"][:20].sum()
    assert results.get(timeout=600) == 20
    assert "a CompressedStorage is written by the process that made it" in results.get(timeout=600)
    worker.join()
    assert len(buffer) == 40
