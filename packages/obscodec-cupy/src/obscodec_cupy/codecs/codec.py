"""CudaCodec: a codec for batches in the memory of a device, with the same bytes as a codec of the CPU."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, cast

import numpy as np
import numpy.typing as npt
import obscodec
from obscodec import Layout, ShapeError
from obscodec.codecs import Codec

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device, Kernel
from obscodec_cupy.device.segments import DeviceSegments, Located
from obscodec_cupy.device.status import Status

OFFSETS: Final = Kernel("offsets.cu", "offsets")
KERNELS: Final = (OFFSETS,)
OFFSETS_THREADS: Final = 1024
MOST_THREADS: Final = 256  # of a thread block, see __launch_bounds__ in the kernels
MOST_BLOCKS: Final = 2**31 - 1  # of a launch
_WORD: Final = 32  # bytes of an item that a thread looks at


@dataclass(frozen=True)
class CudaCodec(ABC):
    """A lossless codec for items of one layout on one device. A value: compared, hashed and pickled like one.

    All work is queued on the current stream: torch's for its tensors, else CuPy's. Nothing is copied from or to the
    host, and nothing waits for the device.

    Attributes:
        cpu: the codec of the CPU that has the same streams.
        device: the name of the device, such as ``"cuda:0"``.
        on: the device.
    """

    cpu: Codec
    on: Device = field(repr=False, compare=False)
    device: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", self.on.name)
        if self.cpu.read_bound() > MOST_BLOCKS:
            raise ShapeError(
                f"a stream on a device has less than 2 GiB, one of {self.spec} of {self.layout} can have "
                f"{self.cpu.read_bound():,} bytes: use smaller items"
            )

    @property
    def spec(self) -> str:
        """The canonical text that builds this codec."""
        return self.cpu.spec

    @property
    def format(self) -> str:
        """The bytes that it writes, with a version: ``rle@2``."""
        return self.cpu.format

    @property
    def layout(self) -> Layout:
        """The layout of the items that it takes."""
        return self.cpu.layout

    def bound(self) -> int:
        """The most bytes that the stream of one item can have."""
        return self.cpu.bound()

    @property
    def dictionary(self) -> bytes:
        """Trained state that the streams need in order to be decoded, empty for none."""
        return self.cpu.dictionary

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This codec with another dictionary, such as that of a codec of the CPU which was fitted.

        Raises:
            SpecError: the format has no dictionaries, or none like this one.
        """
        return replace(self, cpu=self.cpu.with_dictionary(dictionary))

    def encode_batch(self, rows: object, out: object | None = None) -> DeviceSegments:
        """Encode many items.

        Args:
            rows: ``[n, *shape]`` or ``u8[n, nbytes]`` on this device, contiguous, of any library with DLPack.
            out: ``u8[:]`` on this device, at least ``n * bound()`` bytes, which take the streams; new memory if None.

        Returns:
            The streams, in ``out``, one behind the other. Byte for byte what the codec of the CPU writes.

        Raises:
            ShapeError: ``rows`` or ``out`` has the wrong size, or ``rows`` are not contiguous.
            DTypeError: ``rows`` have another dtype; or an array is in the memory of the host or of another device, or
                ``out`` is read-only.
            HeapFull: the device has not enough free memory.
        """
        with self.on.on_stream_of(rows, out):
            items = self._rows("rows", self.on.view(rows))
            n = len(items)
            buffer = self.on.empty((n * self.bound(),), np.uint8) if out is None else self._room(n, out)
            offsets, lengths = self.on.empty((n,), np.int64), self.on.empty((n,), np.int64)
            if n:
                self._encode(items, buffer, offsets, lengths)
            return DeviceSegments(buffer, offsets, lengths, self.on)

    def decode_batch(self, streams: DeviceSegments, out: object) -> Status:
        """Decode many items.

        Args:
            streams: ``n`` of them, on this device.
            out: ``[n, *shape]`` or ``u8[n, nbytes]`` on this device, contiguous, of any library with DLPack.

        Returns:
            What tells, when asked, whether all streams could be decoded.

        Raises:
            ShapeError: ``out`` has the wrong size, or is not contiguous.
            DTypeError: ``out`` has another dtype, or is read-only; or it or the streams are in the memory of the host
                or of another device.
        """
        with self.on.on_stream_of(out, streams.buffer):
            items = self._rows("out", self.on.writable_view("out", out))
            buffer, offsets, lengths = map(self.on.view, (streams.buffer, streams.offsets, streams.lengths))
            if not len(offsets) == len(lengths) == len(items):
                raise ShapeError(f"{len(offsets)} streams decode into {len(offsets)} items, got {len(items)}")
            failure = self.on.zeros((1,), np.uint64)
            if len(items):
                found = Located(self.address(buffer), np.uint64(buffer.nbytes), *map(self.address, (offsets, lengths)))
                self._decode(found, items, self.address(failure))
            return Status(self.on, failure, self.cpu)

    @abstractmethod
    def _encode(self, items: DeviceArray, buffer: DeviceArray, offsets: DeviceArray, lengths: DeviceArray) -> None:
        """Queue the kernels that write the streams of one item or more, their offsets and their lengths."""

    @abstractmethod
    def _decode(self, streams: Located, items: DeviceArray, failure: np.uint64) -> None:
        """Queue the kernels that fill one item or more; ``failure`` is the address of a word, see ``failure.cuh``."""

    def address(self, array: DeviceArray) -> np.uint64:
        """Where an array begins, as an argument of a kernel."""
        return np.uint64(self.on.address(array))

    def _place(self, lengths: DeviceArray, offsets: DeviceArray) -> None:
        """Queue what finds the offsets of streams that lie one behind the other."""
        n = np.uint64(len(lengths))
        self.on.launch(OFFSETS, 1, OFFSETS_THREADS, self.address(lengths), n, self.address(offsets))

    def _rows(self, what: str, array: DeviceArray) -> DeviceArray:
        is_rows = array.dtype == np.uint8 and len(array.shape) == 2 and array.shape[1] == self.layout.nbytes
        if not is_rows:
            self.layout.check(cast("npt.NDArray[np.generic]", array))
        if not array.flags.c_contiguous:
            raise ShapeError(f"{what} must be contiguous on the device, got strides: copy the array first")
        return array

    def _room(self, n: int, out: object) -> DeviceArray:
        buffer = self.on.writable_view("out", out)
        if buffer.dtype != np.uint8 or len(buffer.shape) != 1 or not buffer.flags.c_contiguous:
            raise ShapeError(f"out is u8[:] and contiguous, got {buffer.dtype}{list(buffer.shape)}")
        if buffer.nbytes < n * self.bound():
            raise ShapeError(f"{n} streams of {self.spec} need up to {n * self.bound()} bytes, out has {buffer.nbytes}")
        return buffer

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.spec, self.layout, self.dictionary, self.device)


def _rebuild(spec: str, layout: Layout, dictionary: bytes, device: str) -> Any:
    made = obscodec.codec(spec, layout, device)
    return made.with_dictionary(dictionary) if dictionary else made


def n_words(nbytes: int) -> int:
    """Words of 32 bits with one bit for each byte, and one for the end."""
    return nbytes // _WORD + 1


def n_threads(nbytes: int) -> int:
    """Threads of a block for an item of so many bytes: a multiple of 32."""
    return min(MOST_THREADS, -(-n_words(nbytes) // 32) * 32)
