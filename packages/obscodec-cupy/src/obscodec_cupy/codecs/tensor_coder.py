"""The tensors of a TensorStore, encoded and decoded on the device that has their streams."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from obscodec import CorruptStream, Layout
from obscodec.codecs import Codec
from obscodec.devices import TensorCoder
from obscodec.heap import HeapMemory, Places

from obscodec_cupy.codecs.by_stage import on_device
from obscodec_cupy.device.array import DeviceArray, checked
from obscodec_cupy.device.contiguous import contiguous
from obscodec_cupy.device.copies import Addresses, Lengths, move
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.status import check_failure
from obscodec_cupy.memory.heap_memory import CudaHeapMemory, PlacedStreams

_WORD_NBYTES: Final = 8


class CodedTensors(TensorCoder):
    """Tensors of a codec that the device has.

    Args:
        codec: that of the CPU.
        memory: of the heap with their streams.
    """

    def __init__(self, codec: Codec, memory: CudaHeapMemory[Any]) -> None:
        self._device, self._order = memory.device, memory.order
        self._codec = on_device(codec, memory.device)
        zeros = np.zeros((1, codec.layout.nbytes), np.uint8)
        self._zeros = _Zeros(codec.encode_batch(zeros, np.empty(codec.bound(), np.uint8))[0], memory)
        self._failure = self._device.pinned(_WORD_NBYTES).view(np.uint64)  # what kernels found wrong

    @contextmanager
    def encoded(self, tensors: Any) -> Iterator[PlacedStreams]:
        """See ``TensorCoder.encoded``."""
        with self._device.on_stream_of(tensors):
            items = _contiguous(self._device, self._codec.layout, tensors)
            streams = self._codec.encode_batch(items)
            lengths: Lengths = self._device.download(streams.lengths).astype(np.int64)
            yield _behind_each_other(self._device.address(streams.buffer), lengths, streams.buffer)

    def decode(self, places: Places, out: Any) -> None:
        """See ``TensorCoder.decode``."""
        self._check()
        found = np.stack([part.view(np.int64) for part in self._zeros.filled_in(places)])
        with self._device.on_stream_of(out), self._order:
            items = _items(self._device, self._codec.layout, len(places.lengths), out)
            self._codec.decode_at(self._device.upload(found), items, np.uint64(self._failure.ctypes.data))

    def _check(self) -> None:
        failure = int(self._failure[0])
        if failure:
            self._failure[0] = 0
            check_failure(failure, self._codec.cpu)


class RawTensors(TensorCoder):
    """Tensors as they are.

    Args:
        codec: that of the CPU.
        memory: of the heap with them.
    """

    def __init__(self, codec: Codec, memory: CudaHeapMemory[Any]) -> None:
        self._device, self._order = memory.device, memory.order
        self._codec = codec
        self._zeros = _Zeros(np.zeros(codec.layout.nbytes, np.uint8), memory)

    @contextmanager
    def encoded(self, tensors: Any) -> Iterator[PlacedStreams]:
        """See ``TensorCoder.encoded``; waits for nothing."""
        with self._device.on_stream_of(tensors):
            items = _contiguous(self._device, self._codec.layout, tensors)
            lengths = np.full(len(items), self._codec.layout.nbytes, np.int64)
            yield _behind_each_other(self._device.address(items), lengths, items)

    def decode(self, places: Places, out: Any) -> None:
        """See ``TensorCoder.decode``."""
        addresses, lengths = self._zeros.filled_in(places)
        nbytes = self._codec.layout.nbytes
        if (lengths != nbytes).any():
            why = f"it has {lengths[lengths != nbytes][0]} bytes, expected {nbytes}"
            raise CorruptStream(f"{self._codec.spec} stream of {self._codec.layout} can't be decoded: {why}")
        with self._device.on_stream_of(out), self._order:
            items = _items(self._device, self._codec.layout, len(lengths), out)
            targets = _behind_each_other(self._device.address(items), lengths, items)
            move(self._device, addresses, targets.addresses, lengths)


class _Zeros:
    """The stream of the tensor of zeros, which is not in the heap."""

    def __init__(self, stream: Any, memory: CudaHeapMemory[Any]) -> None:
        with memory.order:
            self._stream: DeviceArray = memory.device.upload(np.append(stream, np.uint8(0)))  # so that it has a place
        self._address = memory.device.address(self._stream)
        self._nbytes = len(stream)

    def filled_in(self, places: Places) -> tuple[Addresses, Lengths]:
        """Places, with this stream where there is none."""
        stored = places.addresses != 0
        addresses = np.where(stored, places.addresses, np.uint64(self._address))
        return addresses, np.where(stored, places.lengths, self._nbytes)


def tensor_coder(codec: Codec, memory: HeapMemory[Any]) -> TensorCoder:
    """What codes the tensors of one store; see ``Backend.tensor_coder``."""
    assert isinstance(memory, CudaHeapMemory)
    return RawTensors(codec, memory) if codec.spec == "raw" else CodedTensors(codec, memory)


def _contiguous(device: Device, layout: Layout, tensors: Any) -> DeviceArray:
    view = device.view(tensors)
    layout.check(cast("npt.NDArray[np.generic]", view))
    return contiguous(device, view)


def _items(device: Device, layout: Layout, n: int, out: Any) -> DeviceArray:
    return checked("out", device.view(out), (n, *layout.shape), layout.dtype.name)


def _behind_each_other(address: int, lengths: Lengths, owner: object) -> PlacedStreams:
    begins = np.uint64(address) + (np.cumsum(lengths) - lengths).astype(np.uint64)
    return PlacedStreams(begins, lengths, owner)
