"""How long batches and their preparation take, next to uncompressed tensors on the GPU."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from gpu_parts.buffers import Transitions
from gpu_parts.frames import noise, played
from gpu_parts.machine import Call, Machine, host_us, nothing
from gpu_parts.record import Record

_SCALE = 1 / 255
_ENCODED_TOGETHER = 16


def run(machine: Machine, record: Record) -> None:
    """Rows with times of the GPU, then rows with times of the CPU."""
    if find_spec("torch") is None:
        record.left_out("all times", "torch is not installed")
        return
    sizes = machine.sizes
    name, frames = played(sizes.n // 5, tiny=sizes.tiny)
    _time_contents(machine, record, name, Transitions(frames, sizes.n, sizes.n_envs))
    with record.check("encode"):
        _time_encoding(machine, record, name, frames[: sizes.encoded])
    if not sizes.tiny:
        _time_contents(machine, record, "noise", Transitions(noise(2000), sizes.n // 10, sizes.n_envs))


def _time_contents(machine: Machine, record: Record, name: str, transitions: Transitions) -> None:
    batches = None
    with record.check(f"{name}: fill"):
        batches = Batches(machine, transitions)
    if batches is None:
        return
    with record.check(f"{name}: all ways give the same batch"):
        batches.check()
    with record.check(f"{name}: times of the GPU"):
        for n_reads in (1, machine.sizes.in_graph):
            for way, measured in machine.timed(batches.graphs(record, n_reads)).items():
                per_read = {key: value if key.startswith("n_") else value / n_reads for key, value in measured.items()}
                record.row(table="graph", data=name, way=way, reads_in_graph=n_reads, **per_read)
    with record.check(f"{name}: times of the CPU"):
        _time_host(machine, record, name, batches)


class Batches:
    """Ways to read a batch of the same places.

    Args:
        machine: where.
        transitions: what is read.
    """

    def __init__(self, machine: Machine, transitions: Transitions) -> None:
        import torch
        from obscodec_cupy import BatchReader

        self._torch, self._machine, self.transitions = torch, machine, transitions
        sizes = machine.sizes
        self.n = transitions.n_steps * transitions.n_envs
        shape = (sizes.batch, *transitions.shape)
        generator = torch.Generator().manual_seed(0)
        draws = torch.randint(self.n, (sizes.in_graph, sizes.batch), generator=generator)
        self._places = list(draws.to(machine.torch_device))
        self._shifts = [
            torch.randint(-4, 5, (sizes.batch, 2), dtype=torch.int32).to(machine.torch_device) for _ in range(2)
        ]
        arrays = {heap: transitions.compressed(heap) for heap in ("device", "pinned")}
        self.arrays = arrays["device"]
        self._outs: dict[str, list[Any]] = {}
        self._reads: dict[str, Callable[[Any], object]] = {}
        self.readers: dict[str, BatchReader] = {}
        for heap, of_heap in arrays.items():
            self._add(f"{heap} heap, uint8", BatchReader(of_heap), self._empty(shape, torch.uint8))
        floats = BatchReader(self.arrays, dtype="float32", scale=_SCALE)
        self._add("device heap, float32 scaled", floats, self._empty(shape, torch.float32))
        shifted = BatchReader(self.arrays, shifted_axes=(1, 2))
        self._add("device heap, uint8 shifted", shifted, self._empty(shape, torch.uint8))
        self._add_plain(shape)
        for reader in self.readers.values():
            reader.sync(self._places[0])
        self.plain_ways = {
            "device heap, uint8": "index_select, uint8",
            "pinned heap, uint8": "index_select, uint8",
            "device heap, float32 scaled": "index_select, then float32 scaled",
        }

    def check(self) -> None:
        """Make sure that compressed and uncompressed batches are the same, bit for bit.

        Raises:
            AssertionError: they are not; the text names the way.
        """
        for read in self._reads.values():
            read(self._places[0])
        for way, plain in self.plain_ways.items():
            for out, expected in zip(self._outs[way], self._outs[plain], strict=True):
                if not self._torch.equal(out, expected):
                    raise AssertionError(f"{way} gave another batch than {plain}")
        for reader in self.readers.values():
            reader.check()

    def graphs(self, record: Record, n_reads: int) -> dict[str, Call]:
        """For each way that can be recorded a CUDA graph of some reads, each of other places."""
        graphs = {}
        for way, read in self._reads.items():
            with record.check(f"record a graph of {n_reads}: {way}"):
                graphs[way] = self._graph(read, n_reads)
        return graphs

    def read(self, way: str) -> None:
        """Read a batch without a graph."""
        self._reads[way](self._places[0])

    def sync(self, way: str) -> None:
        """Have one reader look for new steps."""
        self.readers[way].sync(self._places[0])

    def _graph(self, read: Callable[[Any], object], n_reads: int) -> Call:
        read(self._places[0])
        self._machine.synchronize()

        def reads() -> None:
            for places in self._places[:n_reads]:
                read(places)

        return self._machine.recorded(reads)

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> list[Any]:
        return [self._torch.empty(shape, dtype=dtype, device=self._machine.torch_device) for _ in range(2)]

    def _add(self, way: str, reader: Any, outs: list[Any]) -> None:
        shifts = (self._shifts,) if "shifted" in way else ()
        self.readers[way], self._outs[way] = reader, outs
        self._reads[way] = lambda places: reader.read(places, outs, *shifts)

    def _add_plain(self, shape: tuple[int, ...]) -> None:
        torch, transitions = self._torch, self.transitions
        tensors = self._empty((self.n, *transitions.shape), torch.uint8)
        for t in range(transitions.n_steps):
            rows = slice(t * transitions.n_envs, (t + 1) * transitions.n_envs)
            for tensor, x in zip(tensors, transitions.step(t), strict=True):
                tensor[rows] = torch.from_numpy(np.ascontiguousarray(x)).to(tensor.device)
        outs, floats = self._empty(shape, torch.uint8), self._empty(shape, torch.float32)

        def select(places: Any) -> None:
            for tensor, out in zip(tensors, outs, strict=True):
                torch.index_select(tensor, 0, places, out=out)

        def select_floats(places: Any) -> None:
            select(places)
            for out, converted in zip(outs, floats, strict=True):
                torch.mul(out, _SCALE, out=converted)

        self._reads["index_select, uint8"], self._outs["index_select, uint8"] = select, outs
        way = "index_select, then float32 scaled"
        self._reads[way], self._outs[way] = select_floats, floats


def _time_host(machine: Machine, record: Record, name: str, batches: Batches) -> None:
    """The CPU's time of single calls, and of whole samples until they are on the GPU."""
    way, t = "device heap, uint8", batches.transitions.n_steps

    def new_step() -> None:
        nonlocal t
        batches.transitions.assign(batches.arrays, t)
        t += 1

    rows: dict[str, tuple[Call, Call]] = {
        "sync, nothing new": (nothing, lambda: batches.sync(way)),
        f"sync, one new step of {batches.transitions.n_envs} environments": (new_step, lambda: batches.sync(way)),
        "read": (nothing, lambda: batches.read(way)),
    }
    for what, (prepare, call) in rows.items():
        measured = host_us(machine, prepare, call, machine.sizes.rounds)
        record.row(table="host", data=name, way=what, until="the call returns", **measured)

    def sample() -> None:
        batches.sync(way)
        batches.read(way)
        machine.synchronize()

    record.row(
        table="host",
        data=name,
        way=f"sync and read, {way}",
        until="the batch is on the GPU",
        **host_us(machine, nothing, sample, machine.sizes.rounds),
    )


def _time_encoding(machine: Machine, record: Record, name: str, frames: Any) -> None:
    """Encoding frames that are on the GPU; a FrameStore downloads them for that."""
    import torch
    from obscodec import FrameStore, Layout, codec

    on_gpu: Any = torch.from_numpy(frames.copy()).to(machine.torch_device)
    blocks = on_gpu.reshape(-1, _ENCODED_TOGETHER, *frames.shape[1:])
    calls: dict[str, Call] = {}
    for spec, x in (("rle", on_gpu), ("delta-rle", blocks)):
        encoder = codec(spec, Layout(tuple(x.shape[1:]), "uint8"), device="cuda")
        room = torch.empty(len(x) * encoder.bound(), dtype=torch.uint8, device=machine.torch_device)
        calls[f"{spec}, encode"] = partial(encoder.encode_batch, x, out=room)
        calls[f"{spec}, decode"] = partial(encoder.decode_batch, encoder.encode_batch(x), torch.empty_like(x))
    for call in calls.values():
        call()
    for way, measured in machine.timed(calls).items():
        record.row(table="codecs", data=name, way=way, frames=len(frames), nbytes=frames.nbytes, **measured)
    store = FrameStore(Layout(frames.shape[1:], "uint8"), device="cuda")

    def append() -> None:
        store.release(store.append(on_gpu))

    append()  # so that it has its reference frames
    measured = host_us(machine, nothing, append, min(20, machine.sizes.rounds))
    way = "FrameStore.append, which downloads, and release"
    record.row(table="codecs", data=name, way=way, frames=len(frames), nbytes=frames.nbytes, **measured)
