"""Batches of TorchRL's RayReplayBuffer between two nodes, encoded and decoded by the owner of the buffer.

uv run --group torchrl benchmarks/ray_buffer.py

The nodes are processes of one machine, as Ray's cluster utility starts them. The owner of each buffer is on one, the
learner on the other. Batches of both buffers take turns, in random order, with as many bytes as an encoded batch has,
for which nobody does anything: what Ray takes by itself. The processor time of a role is that of all threads of its
process, those of Ray included.
"""

import os
import pickle
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
import typer
from atari_steps import atari_steps
from obscodec_torchrl import CompressedStorage, RayReplayBuffer
from obscodec_torchrl.storage import decoded
from ray._private import ray_constants
from ray.cluster_utils import Cluster
from result_tables import circumstances
from torchrl.data import TensorDictReplayBuffer
from torchrl.data.replay_buffers.ray_buffer import _RayReplayBufferClient

_RESULTS = Path(__file__).parent / "results" / "ray_buffer.md"
_PACKAGES = "obscodec", "obscodec-torchrl", "ray", "torch", "tensordict", "torchrl", "numpy", "ale-py"
_BATCH = 256
_CHUNK = 5000
_STORE_BYTES = 600 << 20
_FLOOR = "as many bytes, without a buffer"
_OURS, _STOCK, _DECODED = "encoded", "encoded, TorchRL's class", "decoded by the owner, TorchRL's class"


@ray.remote(num_cpus=0, resources={"learner": 0.1})
class Learner:
    """Asks for batches, on a node of its own."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def sample(self, client: Any) -> tuple[float, float, Any]:
        """Milliseconds until a batch is here, and of processor time; and what is in it."""
        began, used = time.perf_counter(), time.process_time()
        batch = client.sample()
        took = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - used)
        return *took, 0 if isinstance(batch, bytes) else int(batch["pixels"].sum()) + int(batch["next", "pixels"].sum())

    def together(self, client: Any, n: int, waiting: int) -> float:
        """How many batches come in a second, if so many threads ask for them."""
        began = time.perf_counter()
        with ThreadPoolExecutor(waiting) as pool:
            for done in [pool.submit(client.sample) for _ in range(n)]:
                done.result()
        return n / (time.perf_counter() - began)


def _used(buffer: Any) -> float:
    return time.process_time()


class Bytes:
    """A client that asks the owner of a buffer for some bytes."""

    def __init__(self, actor: Any, n: int) -> None:
        self._actor, self._n = actor, n

    def sample(self) -> bytes:
        """The bytes, as soon as they are here."""
        found: bytes = ray.get(self._actor.__ray_call__.remote(_zeros, self._n))
        return found


def _zeros(buffer: Any, n: int) -> bytes:
    return bytes(n)


def buffer_of(game: str, n: int, collate_fn: Callable[[Any], Any] | None) -> RayReplayBuffer:
    """A buffer with steps of a game."""
    buffer = RayReplayBuffer(
        storage=partial(CompressedStorage, n),
        replay_buffer_cls=TensorDictReplayBuffer,
        collate_fn=collate_fn,
        batch_size=_BATCH,
        remote_config={"num_cpus": 0, "resources": {"owner": 0.1}},
    )
    for seed in range(-(-n // _CHUNK)):
        steps = atari_steps(game, _CHUNK, seed)
        for k in range(0, _CHUNK, 500):
            buffer.extend(steps[k : k + 500].clone())
        atari_steps.cache_clear()
    ray.get(buffer._rb.__ray_call__.remote(lambda actor: actor.storage.decide()))
    return buffer


def measured(buffers: dict[str, RayReplayBuffer], learner: Any, n_rounds: int) -> dict[str, list[float]]:
    """For each way the bytes of a message, medians of milliseconds, of processor time of owner and learner.

    And how many batches come in a second, where they are of a buffer.
    """
    actors = {way: of._rb for way, of in buffers.items()}
    actors[_STOCK] = actors[_FLOOR] = actors[_OURS]
    nbytes = {way: ray.get(actor.__ray_call__.remote(_pickled_nbytes)) for way, actor in actors.items()}
    clients = {way: _RayReplayBufferClient(actors[way], has_gpu=False) for way in (_STOCK, _DECODED)}
    clients[_OURS] = buffers[_OURS].client()
    clients[_FLOOR] = Bytes(actors[_FLOOR], nbytes[_FLOOR])
    found: dict[str, list[list[float]]] = {way: [] for way in clients}
    order = torch.Generator().manual_seed(0)
    for k in range(n_rounds + 3):
        sums = set()
        for way in [list(clients)[i] for i in torch.randperm(len(clients), generator=order)]:
            actor = actors[way]
            ray.get(actor.__ray_call__.remote(lambda actor, seed: torch.manual_seed(seed) and None, k))
            before = ray.get(actor.__ray_call__.remote(_used))
            took, used, of = ray.get(learner.sample.remote(clients[way]))
            owner = 1000 * (ray.get(actor.__ray_call__.remote(_used)) - before)
            sums |= {of} - {0}
            if k >= 3:
                found[way].append([took, owner, used])
        if len(sums) != 1:
            raise AssertionError("the ways give different batches")
    each = {way: [nbytes[way], *map(statistics.median, zip(*rows, strict=True))] for way, rows in found.items()}
    for way in clients.keys() - {_FLOOR}:
        each[way].append(ray.get(learner.together.remote(clients[way], n_rounds, 4)))
    return each


def _pickled_nbytes(buffer: Any) -> int:
    return len(pickle.dumps(buffer.sample(), 5))


def main(n: int = 100_000, n_rounds: int = 60, games: str = "MsPacman,Pong", results: Path = _RESULTS) -> None:
    """Measure, print, and write after each game."""
    zero_copy = os.environ.get("RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", "0")
    ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = False
    lines = ["# Batches between two nodes", ""]
    lines += [f"- {what}: {text}" for what, text in circumstances("torchrl", _PACKAGES).items()]
    lines += [f"- environment: RAY_ENABLE_ZERO_COPY_TORCH_TENSORS={zero_copy}", ""]
    lines += [
        f"Batches of {_BATCH} transitions of {n:,}; medians of {n_rounds}, in ms. For batches / s, four threads ask.",
        "",
    ]
    lines += [
        "| observations | way | message, kB | `sample` | owner's processor | learner's | batches / s |",
        "| --- | --- |" + " ---: |" * 5,
    ]
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "resources": {"owner": 1}, "object_store_memory": _STORE_BYTES},
    )
    cluster.add_node(num_cpus=2, resources={"learner": 1}, object_store_memory=_STORE_BYTES)
    ray.init(address=cluster.address, log_to_driver=False)
    for game in games.split(","):
        buffers = {_OURS: buffer_of(game, n, None), _DECODED: buffer_of(game, n, decoded)}
        learner = Learner.remote(torch.get_num_threads())  # type: ignore[attr-defined]
        for way, numbers in measured(buffers, learner, n_rounds).items():
            times = " | ".join(f"{x:.1f}" for x in numbers[1:])
            lines.append(f"| {game} | {way} | {numbers[0] / 1e3:,.0f} | {times} |{' |' * (way == _FLOOR)}")
            print(lines[-1], flush=True)
        results.write_text("\n".join(lines) + "\n")
        for buffer in buffers.values():
            buffer.close()
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    typer.run(main)
