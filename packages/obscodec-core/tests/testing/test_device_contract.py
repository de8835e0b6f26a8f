"""The contract finds broken backends: each one here breaks one law, and fails exactly that law."""

from typing import Any

import numpy as np
import pytest
from broken_laws import broken_laws, laws
from device_contract import DeviceContract
from obscodec import DTypeError, Layout, ShapeError, SpecError, codec
from obscodec.devices import Backend, FrameReader, backends
from obscodec.frames import WatchedLog
from obscodec.runtime import new_chunk
from obscodec.segments import Segments


class FarArray:
    """An array that the host can't read but through its backend."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.shape, self.dtype = memory.shape, memory.dtype


def memory_of(x: Any) -> np.ndarray:
    if not isinstance(x, FarArray):
        raise DTypeError(f"it is no array of the far device, but {type(x).__name__}")
    return x.memory


class FarStreams:
    def __init__(self, streams: list[bytes]) -> None:
        self.streams = streams

    def download(self) -> Segments:
        return Segments.of(self.streams)


class FarCodec:
    def __init__(self, spec: str, layout: Layout) -> None:
        self.cpu, self.layout = codec(spec, layout), layout

    def encode_batch(self, x: Any) -> FarStreams:
        rows = self.layout.rows(memory_of(x))
        streams = self.cpu.encode_batch(rows, np.empty(len(rows) * self.cpu.bound(), np.uint8))
        return FarStreams([bytes(stream) for stream in streams])

    def decode_batch(self, streams: FarStreams, out: Any) -> None:
        self.cpu.decode_batch(Segments.of(streams.streams), self.layout.rows(memory_of(out)))


class Sound(Backend):
    """A device that decodes nothing of stores, so that the CPU does and fills its arrays."""

    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        if spec not in ("rle", "delta-rle"):
            raise SpecError(f"{spec!r} does not run there")
        return FarCodec(spec, layout)

    def check(self, device: str, *arrays: object) -> None:
        for array in arrays:
            memory_of(array)

    def empty(self, device: str, n: int, layout: Layout) -> Any:
        return FarArray(np.empty((n, *layout.shape), layout.dtype))

    def pinned(self, device: str) -> Any:
        return new_chunk

    def fill(self, device: str, out: Any, n: int, layout: Layout, decode: Any) -> None:
        memory = memory_of(out)
        if memory.shape != (n, *layout.shape):
            raise ShapeError(f"out has shape {(n, *layout.shape)}, got {memory.shape}")
        if memory.dtype != layout.dtype:
            raise DTypeError(f"out has dtype {layout.dtype}, got {memory.dtype}")
        decode(memory)

    def decodes(self, spec: str, block_frames: int) -> bool:
        return False

    def frame_reader(self, device: str, heap: str, layout: Layout, frame_stack: Any, log: Any) -> Any:
        raise AssertionError("the CPU decodes")

    def batch_reader(self, arrays: Any) -> Any:
        raise AssertionError("the CPU decodes")

    def download(self, device: str, x: Any) -> Any:
        return memory_of(x).copy()


class TakesArraysOfTheHost(Sound):
    def check(self, device: str, *arrays: object) -> None:
        super().check(device, *(array for array in arrays if not isinstance(array, np.ndarray)))


class MakesRoomForOne(Sound):
    """Has no array of no tensors."""

    def empty(self, device: str, n: int, layout: Layout) -> Any:
        return super().empty(device, max(1, n), layout)


class HasOneArray(Sound):
    """Gives the same memory for two tensors, each time."""

    def __init__(self) -> None:
        self.made: dict[object, Any] = {}

    def empty(self, device: str, n: int, layout: Layout) -> Any:
        x = super().empty(device, n, layout)
        return self.made.setdefault(layout, x) if n == 2 else x


class LosesNegativeZeros(Sound):
    def fill(self, device: str, out: Any, n: int, layout: Layout, decode: Any) -> None:
        super().fill(device, out, n, layout, decode)
        if layout.dtype.kind == "f":
            np.nan_to_num(out.memory, copy=False)


class DownloadsItsMemory(Sound):
    def download(self, device: str, x: Any) -> Any:
        return memory_of(x)


class FillsAnyShape(Sound):
    def fill(self, device: str, out: Any, n: int, layout: Layout, decode: Any) -> None:
        super().fill(device, out, len(memory_of(out)), layout, decode)


class EncodesTheOtherWayRound(Sound):
    """Its streams are those of the items in another order."""

    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        class Reversed(FarCodec):
            def encode_batch(self, x: Any) -> FarStreams:
                return FarStreams(super().encode_batch(x).streams[::-1])

            def decode_batch(self, streams: FarStreams, out: Any) -> None:
                super().decode_batch(FarStreams(streams.streams[::-1]), out)

        super().codec(spec, layout, device)
        return Reversed(spec, layout)


class DecodesNothing(Sound):
    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        made = super().codec(spec, layout, device)
        made.decode_batch = lambda streams, out: memory_of(out).fill(0)
        return made


class TakesEveryCodec(Sound):
    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        return FarCodec(spec, layout)


class ZerosForStacks(FrameReader):
    """Reads frames on the host, and zeros for stacks of them."""

    def __init__(self, layout: Layout, log: WatchedLog) -> None:
        self.layout, self.log = layout, log

    def read(self, ids: Any, out: Any, there: Any = None) -> None:
        memory_of(out).fill(0)
        if self.log.depth == 1:
            self.log._log.read(ids, self.layout.rows(memory_of(out)), 1)


class ZerosForFrames(FrameReader):
    def read(self, ids: Any, out: Any, there: Any = None) -> None:
        memory_of(out).fill(0)


class ReadsZerosForStacks(Sound):
    def decodes(self, spec: str, block_frames: int) -> bool:
        return spec == "raw" and block_frames > 1

    def frame_reader(self, device: str, heap: str, layout: Layout, frame_stack: Any, log: Any) -> FrameReader | None:
        return ZerosForStacks(layout, log)


class ReadsZerosForBlocks(ReadsZerosForStacks):
    def frame_reader(self, device: str, heap: str, layout: Layout, frame_stack: Any, log: Any) -> FrameReader | None:
        return ZerosForFrames() if frame_stack is None else None  # the CPU puts stacks together


class ReadsZerosForFrames(ReadsZerosForBlocks):
    def decodes(self, spec: str, block_frames: int) -> bool:
        return spec == "raw" and block_frames == 1


BROKEN = {
    TakesArraysOfTheHost: "test_check_takes_arrays_of_the_device_only",
    MakesRoomForOne: "test_empty_has_the_layout",
    HasOneArray: "test_empty_has_the_layout",
    LosesNegativeZeros: "test_download_inverts_fill",
    DownloadsItsMemory: "test_download_inverts_fill",
    FillsAnyShape: "test_download_inverts_fill",
    EncodesTheOtherWayRound: "test_codecs_have_the_bytes_of_the_cpu",
    DecodesNothing: "test_codecs_have_the_bytes_of_the_cpu",
    TakesEveryCodec: "test_unknown_codecs_are_refused",
    ReadsZerosForBlocks: "test_blocks_are_those_of_the_cpu",
    ReadsZerosForFrames: "test_frames_are_those_of_the_cpu",
    ReadsZerosForStacks: "test_stacks_are_those_of_the_cpu",
}


class Contract(DeviceContract):
    device = "far"


def broken_by(monkeypatch: pytest.MonkeyPatch, kind: type[Backend]) -> list[str]:
    made = kind()
    monkeypatch.setattr(backends, "_made", lambda name: made)
    return broken_laws(DeviceContract, Contract())


@pytest.mark.parametrize("kind", [Sound, *BROKEN], ids=lambda kind: kind.__name__)
def test_a_backend_fails_the_law_that_it_breaks(monkeypatch: pytest.MonkeyPatch, kind: type[Backend]) -> None:
    assert broken_by(monkeypatch, kind) == ([BROKEN[kind]] if kind in BROKEN else [])


def test_each_law_is_broken_by_some_backend() -> None:
    assert set(BROKEN.values()) == set(laws(DeviceContract))
