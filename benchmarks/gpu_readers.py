"""Ways to get a batch of transitions onto the GPU, as calls that take no arguments."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import obscodec
import torch
from gymnasium import spaces
from obscodec.arrays import assign_together
from obscodec_cupy import BatchReader
from obscodec_sb3 import CompressedReplayBuffer
from recorded_steps import STACK, read_steps, record
from stable_baselines3.common.buffers import ReplayBuffer

BATCH = 256
PLAIN, PLAIN_FLOAT = "index_select, uint8", "index_select, then float32 scaled"
SB3 = "SB3's buffer on the CPU, and upload"
DEVICE = torch.device("cuda")
_SCALE = 1 / 255
_CHUNK = 512  # steps to assign at a time

Call = Callable[[], object]


class Transitions(NamedTuple):
    """Observations and next observations, uncompressed and compressed.

    Attributes:
        plain: two tensors ``u8[n, 4, 84, 84]`` on the GPU.
        compressed: for each kind of heap two arrays like these.
        buffers: replay buffers of Stable-Baselines3, by name.
    """

    plain: list[torch.Tensor]
    compressed: dict[str, list[obscodec.TensorArray]]
    buffers: dict[str, ReplayBuffer]


def compressed_arrays(n: int, heap: str) -> list[obscodec.TensorArray]:
    """Observations and next observations of ``n`` transitions, on the GPU."""
    layout = obscodec.Layout(STACK, np.uint8)
    store = obscodec.AutoStore(layout, codec="delta-rle", device="cuda", heap=heap)
    return [obscodec.TensorArray.zeros((n,), store) for _ in range(2)]


def assign(arrays: list[obscodec.TensorArray], first: int, observations: list[np.ndarray]) -> None:
    """Assign observations and next observations ``[k, 4, 84, 84]`` from row ``first`` on."""
    together = np.stack(observations, axis=1)  # each followed by the next one
    ids = arrays[0].store.append(together.reshape(-1, *STACK)).reshape(together.shape[:2])
    assign_together(arrays, slice(first, first + len(ids)), np.ascontiguousarray(ids.T))


def filled(game: str, n: int) -> Transitions:
    """The first ``n`` transitions of a game."""
    plain = [torch.empty((n, *STACK), dtype=torch.uint8, device=DEVICE) for _ in range(2)]
    compressed = {heap: compressed_arrays(n, heap) for heap in ("device", "pinned")}
    space, actions = spaces.Box(0, 255, STACK, np.uint8), spaces.Discrete(2)
    buffers = {
        SB3: ReplayBuffer(n, space, actions, DEVICE),
        "CompressedReplayBuffer(buffer_device='cuda')": CompressedReplayBuffer(
            n, space, actions, DEVICE, buffer_device="cuda"
        ),
    }
    chunk: list[list[np.ndarray]] = []
    for at, step in enumerate(read_steps(record(game, 1, n)), 1):
        chunk.append([step.obs.copy(), step.next_obs.copy()])
        for buffer in buffers.values():
            buffer.add(step.obs, step.next_obs, np.zeros((1, 1)), step.reward, step.terminated, [{}])
        if len(chunk) == _CHUNK or at == n:
            observations = [np.concatenate(column) for column in zip(*chunk, strict=True)]
            for tensor, array in zip(plain, observations, strict=True):
                tensor[at - len(chunk) : at] = torch.from_numpy(array)
            for arrays in compressed.values():
                assign(arrays, at - len(chunk), observations)
            chunk.clear()
    return Transitions(plain, compressed, buffers)


class Batches:
    """Ways to get the same batch.

    Args:
        transitions: what to draw from.
        n: how many of them there are.
    """

    def __init__(self, transitions: Transitions, n: int) -> None:
        self._transitions = transitions
        self._n = n
        self._places = torch.empty(BATCH, dtype=torch.int64, device=DEVICE)
        self._outs: dict[str, list[torch.Tensor]] = {}
        self._draws: dict[str, Call] = {}
        self._calls: dict[str, Call] = {}
        for heap, arrays in transitions.compressed.items():
            self._add_reader(f"{heap} heap, uint8", arrays, torch.uint8)
        self._add_reader("device heap, float32 scaled", transitions.compressed["device"], torch.float32)
        self._add_plain()
        for name, buffer in transitions.buffers.items():
            self._calls[name] = partial(buffer.sample, BATCH)

    def calls(self) -> dict[str, Call]:
        """The calls to time: replays of CUDA graphs that draw and read, and ``sample`` of replay buffers."""
        return self._calls

    @staticmethod
    def plain_of(name: str) -> str:
        """The uncompressed gather with the same result."""
        return PLAIN_FLOAT if "float32" in name else PLAIN

    def check(self) -> None:
        """Make sure that all ways give the same for the same places, bit for bit."""
        self._places.random_(0, self._n)
        for draw in self._draws.values():
            draw()
        torch.cuda.synchronize()
        self._compare()

    def _compare(self) -> None:
        for name, outs in self._outs.items():
            expected = self._outs[self.plain_of(name)]
            assert all(map(torch.equal, outs, expected)), f"{name} gave another batch than {self.plain_of(name)}"

    def _add_reader(self, name: str, arrays: list[obscodec.TensorArray], dtype: torch.dtype) -> None:
        converts = None if dtype == torch.uint8 else str(dtype).removeprefix("torch.")
        reader = BatchReader(arrays, dtype=converts, scale=_SCALE)
        outs = [torch.empty((BATCH, *STACK), dtype=dtype, device=DEVICE) for _ in arrays]
        self._places.zero_()
        reader.sync(self._places)
        self._add(name, outs, lambda: reader.read(self._places, outs))

        def draw() -> None:
            self._places.random_(0, self._n)
            reader.sync(self._places)
            reader.read(self._places, outs)

        self._calls[f"{name}, without a graph"] = draw

    def _add_plain(self) -> None:
        tensors = self._transitions.plain
        outs = [torch.empty((BATCH, *STACK), dtype=torch.uint8, device=DEVICE) for _ in tensors]
        floats = [torch.empty((BATCH, *STACK), device=DEVICE) for _ in tensors]

        def gather() -> None:
            for tensor, out in zip(tensors, outs, strict=True):
                torch.index_select(tensor, 0, self._places, out=out)

        def gather_floats() -> None:
            gather()
            for out, converted in zip(outs, floats, strict=True):
                torch.mul(out, _SCALE, out=converted)

        self._add(PLAIN, outs, gather)
        self._add(PLAIN_FLOAT, floats, gather_floats)

    def _add(self, name: str, outs: list[torch.Tensor], read: Call) -> None:
        """Record a graph of drawing and reading."""
        self._outs[name], self._draws[name] = outs, read
        self._calls[name] = recorded(read, lambda: self._places.random_(0, self._n))


def recorded(read: Call, draw: Call) -> Call:
    """A CUDA graph of drawing and reading."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        read()  # so that its kernels are compiled
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        draw()
        read()
    return graph.replay
