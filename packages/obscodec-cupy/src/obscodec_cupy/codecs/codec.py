"""CudaCodec: a codec for batches in the memory of a device, with the same bytes as a codec of the CPU."""

from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, cast

import numpy as np
from obscodec import Layout, ShapeError, SpecError
from obscodec.codecs import Codec

from obscodec_cupy.codecs.failures import Status
from obscodec_cupy.device import opened
from obscodec_cupy.device.array import DeviceArray, checked
from obscodec_cupy.device.device import Device, Kernel
from obscodec_cupy.device.frame_room import FrameScratch
from obscodec_cupy.device.segments import DeviceSegments

THREADS: Final = 256  # of a block, see __launch_bounds__ in the kernels
MOST_BLOCKS: Final = 2**31 - 1  # of a launch
OFFSETS: Final = Kernel("offsets.cu", "offsets")
OFFSETS_THREADS: Final = 1024


def _by_width(source: str, name: str, widths: tuple[int, ...]) -> dict[int, Kernel]:
    return {width: Kernel(source, name, (("WIDTH", width),)) for width in widths}


# By the bytes of an element of rle, 0 for delta-rle.
MEASURE, PLACE, WRITE = (
    _by_width("encode.cu", f"encode_{step}", (0, 1, 2, 4, 8)) for step in ("measure", "place", "write")
)
RLE_DECODE: Final = _by_width("rle.cu", "rle_decode", (1, 2, 4, 8))
DELTA_THREADS: Final = 128


def delta_decode(n_frames: int, room: FrameScratch) -> Kernel:
    """What decodes items of ``n_frames`` frames."""
    frame = ("FRAME_NBYTES", room.frame_nbytes), ("FRAME_IN_SHARED", int(room.shared))
    return Kernel("delta_decode.cu", "delta_decode", (("THREADS", DELTA_THREADS), ("N_FRAMES", n_frames), *frame))


def element_nbytes(layout: Layout) -> int:
    """Bytes of what ``rle`` repeats: the largest power of two that divides those of the dtype, at most 8."""
    itemsize = layout.dtype.itemsize
    return min(itemsize & -itemsize, 8)


@dataclass(frozen=True)
class CudaCodec:
    """A lossless codec for items of one layout on one device. A value: compared, hashed and pickled like one.

    All work is queued on the current stream: torch's for its tensors, else CuPy's. Nothing is copied from or to the
    host, and nothing waits for the device, but that building a codec waits until its dictionary is there.

    Attributes:
        cpu: the codec of the CPU that has the same streams.
        device: the name of the device, such as ``"cuda:0"``.
        on: the device.

    Raises:
        SpecError: the codec does not run on a device.
        ShapeError: its streams can be too long for a device, or its frames too large.
    """

    cpu: Codec
    on: Device = field(repr=False, compare=False)
    device: str = field(init=False)
    _references: DeviceArray = field(init=False, repr=False, compare=False)  # frames of which first frames are patches

    def __post_init__(self) -> None:
        if self.spec not in ("rle", "delta-rle"):
            raise SpecError(
                f"{self.spec!r} does not run on {self.on.name}, there are rle, delta-rle: stores with "
                f"device={self.on.name!r} decode others on the CPU and upload what they hold"
            )
        if (most := self.cpu.read_bound()) > MOST_BLOCKS:
            raise ShapeError(
                f"a stream on a device has less than 2 GiB, one of {self.spec} of {self.layout} can have "
                f"{most:,} bytes: use smaller items"
            )
        references = np.zeros((1, 0), np.uint8)
        if self._width == 0:
            _, nbytes = self._frames
            FrameScratch.on(self.on, nbytes)  # refuses frames that are too large
            known = np.frombuffer(bytes(nbytes) + self.dictionary, np.uint8)
            references = known.reshape(1 + len(self.dictionary) // max(1, nbytes), nbytes)
        object.__setattr__(self, "device", self.on.name)
        object.__setattr__(self, "_references", self.on.upload(references))
        self.on.synchronize()  # whichever stream is current at a call then

    @property
    def _width(self) -> int:
        """Bytes of an element of ``rle``; 0 for ``delta-rle``."""
        return element_nbytes(self.layout) if self.spec == "rle" else 0

    @property
    def _frames(self) -> tuple[int, int]:
        """The number of frames of an item, and the bytes of each; none if it has none, however long its axes are."""
        nbytes = self.layout.nbytes
        if self.spec == "rle":
            return 1, nbytes
        n_frames = self.layout.shape[0] if self.layout.shape else 1
        return (n_frames, nbytes // n_frames) if nbytes else (0, 0)

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

    @property
    def dictionary(self) -> bytes:
        """Trained state that the streams need in order to be decoded, empty for none."""
        return self.cpu.dictionary

    def bound(self) -> int:
        """The most bytes that the stream of one item can have."""
        return self.cpu.bound()

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
            ShapeError: ``rows`` or ``out`` has the wrong size, or is not contiguous.
            DTypeError: ``rows`` or ``out`` has another dtype, or is in the memory of the host or of another device;
                or ``out`` is read-only.
            HeapFull: the device has not enough free memory.
        """
        with self.on.on_stream_of(rows, out):
            items = self._items("rows", self.on.view(rows))
            n, nbytes = len(items), len(items) * self.bound()
            buffer = self.on.empty((nbytes,), np.uint8) if out is None else self.on.writable_view("out", out)
            if checked("out", buffer, (buffer.size,), "uint8").nbytes < nbytes:
                raise ShapeError(f"{n} streams of {self.spec} need up to {nbytes} bytes, out has {buffer.nbytes}")
            streams = DeviceSegments(buffer, self.on.empty((n,), np.int64), self.on.empty((n,), np.int64), self.on)
            if n:
                self._encode(items, streams)
            return streams

    def decode_batch(self, streams: DeviceSegments, out: object) -> Status:
        """Decode many items.

        Args:
            streams: ``n`` of them, on this device.
            out: ``[n, *shape]`` or ``u8[n, nbytes]`` on this device, contiguous, of any library with DLPack.

        Returns:
            What tells, when asked, whether all streams could be decoded.

        Raises:
            ShapeError: ``out`` has the wrong size; or it or an array of ``streams`` is not contiguous.
            DTypeError: ``out`` is read-only; or it or an array of ``streams`` has another dtype, or is in the memory of
                the host or of another device.
        """
        with self.on.on_stream_of(out, streams.buffer):
            items = self._items("out", self.on.writable_view("out", out))
            there = streams.viewed(self.on)
            if len(there) != len(items):
                raise ShapeError(f"{len(there)} streams decode into {len(there)} items, got {len(items)}")
            failure = self.on.zeros((1,), np.uint64)
            if len(items):
                self._decode(there, items, failure)
            self.on.keep((self._references, there))  # which may have come from another stream
            return Status(self.on, failure, self.cpu)

    def _encode(self, items: DeviceArray, streams: DeviceSegments) -> None:
        n, (n_frames, nbytes) = len(items), self._frames
        if n * n_frames > MOST_BLOCKS:
            raise ShapeError(f"a batch on a device has at most {MOST_BLOCKS:,} frames, got {n * n_frames:,}: split it")
        threads = min(THREADS, (nbytes // 1024 + 1) * 32)  # each looks at 32 bytes at a time
        sizes = self.on.empty((n * n_frames, 3), np.uint32), self.on.empty((n, 2), np.uint32)
        form = np.uint32(nbytes), np.uint32(n_frames)
        references = self._references
        measured = items, *form, references, np.uint32(len(references)), *sizes
        written = items, *form, references, *sizes, streams.offsets, streams.buffer
        self._launch(MEASURE[self._width], n * n_frames, threads, *measured)
        self._launch(PLACE[self._width], n, THREADS, *form, *sizes, streams.lengths)
        self._launch(OFFSETS, 1, OFFSETS_THREADS, streams.lengths, np.uint64(n), streams.offsets)
        self._launch(WRITE[self._width], n * max(1, n_frames), threads, *written)
        self.on.keep(references)  # which may have come from another stream

    def _decode(self, streams: DeviceSegments, items: DeviceArray, failure: DeviceArray) -> None:
        n, (n_frames, nbytes) = len(items), self._frames
        located = streams.buffer, np.uint64(streams.buffer.nbytes), streams.offsets, streams.lengths
        if width := self._width:
            self._launch(RLE_DECODE[width], n, THREADS, *located, items, np.uint32(nbytes // width), failure)
            return
        room, known = FrameScratch.on(self.on, nbytes), (self._references, np.uint32(len(self._references)))
        scratch = self.on.empty((room.scratch_nbytes(n),), np.uint8)
        arguments = self.on.scalars(*located, *known, items, failure, scratch)
        self.on.launch(delta_decode(n_frames, room), n, DELTA_THREADS, *arguments, shared_nbytes=room.shared_nbytes)

    def _launch(self, kernel: Kernel, n_blocks: int, n_threads: int, *arguments: DeviceArray | np.generic) -> None:
        self.on.launch(kernel, n_blocks, n_threads, *self.on.scalars(*arguments))

    def _items(self, what: str, array: DeviceArray) -> DeviceArray:
        if array.dtype != np.uint8 or array.shape[1:] != (self.layout.nbytes,):
            self.layout.check(cast("Any", array))
        return checked(what, array, array.shape, array.dtype.name)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.cpu, self.device)


def _rebuild(cpu: Codec, device: str) -> CudaCodec:
    return CudaCodec(cpu, opened.device(device))
