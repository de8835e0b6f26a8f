"""CudaCodec: a codec for batches in the memory of a device, with the same bytes as a codec of the CPU."""

from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
from obscodec import CorruptStream, Layout, ShapeError, SlotError, SpecError
from obscodec.codecs import Codec
from obscodec.statuses import STATUS_TEXTS

from obscodec_cupy.device import opened
from obscodec_cupy.device.array import DeviceArray, checked
from obscodec_cupy.device.device import Device, Kernel
from obscodec_cupy.device.segments import DeviceSegments
from obscodec_cupy.device.sources import STATUSES

THREADS: Final = 256  # of a block, see __launch_bounds__ in the kernels
OFFSETS_THREADS: Final = 1024
DELTA_THREADS: Final = 128
MOST_BLOCKS: Final = 2**31 - 1  # of a launch
MAX_FRAME_NBYTES: Final = 1 << 30
STATIC_NBYTES: Final = 35 << 10  # more shared memory than the kernels take besides the frame
EXPLANATIONS: Final = {**STATUS_TEXTS, STATUSES["TOO_LONG"]: "it has 4 GiB or more, which are not read on a device"}

# By the bytes of an element of rle, 0 for delta-rle.
MEASURE, PLACE, OFFSETS, WRITE = (
    {width: Kernel("encode.cu", f"encode_{step}", (("WIDTH", width),)) for width in (0, 1, 2, 4, 8)}
    for step in ("measure", "place", "offsets", "write")
)
RLE_DECODE: Final = {width: Kernel("rle.cu", "rle_decode", (("ELEMENT_NBYTES", width),)) for width in (1, 2, 4, 8)}


def delta_decode(n_frames: int, frame_nbytes: int, *, in_shared: bool) -> Kernel:
    """The kernel that decodes items of ``n_frames`` frames, each in shared memory or in a scratch."""
    frame = ("FRAME_NBYTES", frame_nbytes), ("FRAME_IN_SHARED", int(in_shared))
    return Kernel("delta_decode.cu", "delta_decode", (("THREADS", DELTA_THREADS), ("N_FRAMES", n_frames), *frame))


def frame_scratch(device: Device, frame_nbytes: int) -> tuple[int, int]:
    """Bytes of shared memory in which a thread block keeps its frame, and of scratch if that is too large; one is 0.

    Raises ShapeError if the kernels read no frames that large.
    """
    if frame_nbytes > MAX_FRAME_NBYTES:
        raise ShapeError(f"frames of at most {MAX_FRAME_NBYTES} bytes are decoded on {device.name}, got {frame_nbytes}")
    rounded = -(-frame_nbytes // 16) * 16
    return (rounded, 0) if frame_nbytes + 15 + STATIC_NBYTES <= device.shared_nbytes else (0, rounded)


def element_nbytes(layout: Layout) -> int:
    """Bytes of what ``rle`` repeats: the largest power of two that divides those of the dtype, at most 8."""
    itemsize = layout.dtype.itemsize
    return min(itemsize & -itemsize, 8)


def check_failure(word: int, what: str = "") -> None:
    """Raise what a kernel reported: SlotError for an id or the place of one, CorruptStream for a stream.

    ``what`` names the stream; without it, the word has the number of its block.
    """
    number, code = word >> 32 ^ 0xFFFFFFFF, word & 0xFFFFFFFF
    if code == STATUSES["BAD_ID"]:
        raise SlotError(f"sample {number} of a batch asks for a tensor that the store does not have")
    if code:
        raise CorruptStream(f"{what or f'block {number}'} can't be decoded: {EXPLANATIONS[code]}")


class Status:
    """Whether all streams of a batch could be decoded: of what is queued on the current stream of a device by now."""

    def __init__(self, device: Device, failure: DeviceArray, what: str) -> None:
        self._device, self._failure, self._what = device, failure, what
        self._done = device.mark()  # None in a graph, which is replayed on the stream of the check

    def check(self) -> None:
        """Wait for the decoder; if it was recorded in a graph, for the current stream.

        Raises:
            CorruptStream: a stream is truncated, altered or of another format; with the same text as on the CPU. What
                it was decoded into may be partly written.
        """
        if self._done is not None:
            self._done.synchronize()
        check_failure(int(self._device.download(self._failure)[0]), self._what)


@dataclass(frozen=True)
class CudaCodec:
    """A lossless codec for items of one layout on one device. A value: compared, hashed and pickled like one.

    A batch is ``[n, *shape]`` or ``u8[n, nbytes]`` on the device, contiguous, of any library with DLPack. All work is
    queued on the current stream: torch's for its tensors, else CuPy's. Nothing is copied from or to the host, and
    nothing waits for the device, but that building a codec waits until its dictionary is there.

    Raises:
        SpecError: the codec does not run on a device.
        ShapeError: its streams can be too long for a device, or its frames too large.
    """

    cpu: Codec  # has the same streams
    on: Device = field(repr=False, compare=False)
    device: str = field(init=False)  # its name, such as "cuda:0"
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
        width, _, nbytes = self._form
        if width:
            nbytes = 0  # rle has no reference frames
        frame_scratch(self.on, nbytes)  # refuses frames that are too large
        dictionary = self.cpu.dictionary
        references = np.frombuffer(bytes(nbytes) + dictionary, np.uint8)
        references = references.reshape(1 + len(dictionary) // max(1, nbytes), nbytes)
        object.__setattr__(self, "device", self.on.name)
        object.__setattr__(self, "_references", self.on.upload(references))
        self.on.synchronize()  # whichever stream is current at a call then

    @property
    def _form(self) -> tuple[int, int, int]:
        """Bytes of an element of ``rle``, 0 for ``delta-rle``; the number of frames of an item, and the bytes of each.

        An item without bytes has no frames, however long its axes are.
        """
        nbytes = self.layout.nbytes
        if self.spec == "rle":
            return element_nbytes(self.layout), 1, nbytes
        n_frames = self.layout.shape[0] if self.layout.shape else 1
        return (0, n_frames, nbytes // n_frames) if nbytes else (0, 0, 0)

    @property
    def spec(self) -> str:
        """The canonical text that builds this codec."""
        return self.cpu.spec

    @property
    def layout(self) -> Layout:
        """The layout of the items that it takes."""
        return self.cpu.layout

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
        """Encode a batch: one stream behind the other, byte for byte as the codec of the CPU writes them.

        ``out`` takes the streams: ``u8[:]`` on this device, at least ``n * bound()`` bytes; new memory if None.

        Raises:
            ShapeError: ``rows`` or ``out`` has the wrong size, or is not contiguous.
            DTypeError: ``rows`` or ``out`` has another dtype, or is in other memory; or ``out`` is read-only.
            HeapFull: the device has not enough free memory.
        """
        with self.on.on_stream_of(rows, out):
            items, (width, n_frames, nbytes) = self._items("rows", self.on.view(rows)), self._form
            n, most = len(items), len(items) * self.bound()
            buffer = self.on.empty((most,), np.uint8) if out is None else self.on.writable_view("out", out)
            if checked("out", buffer, (buffer.size,), "uint8").nbytes < most:
                raise ShapeError(f"{n} streams of {self.spec} need up to {most} bytes, out has {buffer.nbytes}")
            if (n_blocks := n * n_frames) > MOST_BLOCKS:
                raise ShapeError(f"a batch on a device has at most {MOST_BLOCKS:,} frames, got {n_blocks:,}: split it")
            streams = DeviceSegments(buffer, self.on.empty((n,), np.int64), self.on.empty((n,), np.int64), self.on)
            sizes = self.on.empty((n_blocks, 3), np.uint32), self.on.empty((n, 2), np.uint32)
            form, references = (np.uint32(nbytes), np.uint32(n_frames)), self._references
            threads = min(THREADS, (nbytes // 1024 + 1) * 32)  # each looks at 32 bytes at a time
            measured = items, *form, references, np.uint32(len(references)), *sizes
            written = items, *form, references, *sizes, streams.offsets, streams.buffer
            self._launch(MEASURE[width], n_blocks, threads, *measured)
            self._launch(PLACE[width], n, THREADS, *form, *sizes, streams.lengths)
            self._launch(OFFSETS[width], 1, OFFSETS_THREADS, streams.lengths, np.uint64(n), streams.offsets)
            self._launch(WRITE[width], n * max(1, n_frames), threads, *written)
            self.on.keep(references)  # which may have come from another stream
            return replace(streams, written=self.on.mark())

    def decode_batch(self, streams: DeviceSegments, out: object) -> Status:
        """Decode a batch into ``out``. The result tells, when asked, whether all streams could be decoded.

        Raises:
            ShapeError: ``out`` has the wrong size; or it or an array of ``streams`` is not contiguous.
            DTypeError: ``out`` is read-only; or it or an array of ``streams`` has another dtype, or is in other memory.
            HeapFull: the device has not enough free memory.
        """
        with self.on.on_stream_of(out, streams.buffer):
            items, (width, n_frames, nbytes) = self._items("out", self.on.writable_view("out", out)), self._form
            buffer, offsets, lengths = map(self.on.view, (streams.buffer, streams.offsets, streams.lengths))
            checked("buffer", buffer, (buffer.size,), "uint8")
            checked("offsets", offsets, (lengths.size,), "int64")
            checked("lengths", lengths, (lengths.size,), "int64")
            if (n := len(items)) != len(lengths):
                raise ShapeError(f"{len(lengths)} streams decode into {len(lengths)} items, got {n}")
            failure = self.on.zeros((1,), np.uint64)
            located = buffer, np.uint64(buffer.nbytes), offsets, lengths
            if width:
                self._launch(RLE_DECODE[width], n, THREADS, *located, items, np.uint32(nbytes // width), failure)
            else:
                shared_nbytes, scratch_nbytes = frame_scratch(self.on, nbytes)
                scratch = self.on.empty((n * scratch_nbytes,), np.uint8)
                references = self._references, np.uint32(len(self._references))
                kernel = delta_decode(n_frames, nbytes, in_shared=scratch_nbytes == 0)
                arguments = self.on.scalars(*located, *references, items, failure, scratch)
                self.on.launch(kernel, n, DELTA_THREADS, *arguments, shared_nbytes=shared_nbytes)
            self.on.keep((self._references, buffer, offsets, lengths))  # which may have come from another stream
            return Status(self.on, failure, f"{self.spec} stream of {self.layout}")

    def _launch(self, kernel: Kernel, n_blocks: int, n_threads: int, *arguments: DeviceArray | np.generic) -> None:
        self.on.launch(kernel, n_blocks, n_threads, *self.on.scalars(*arguments))

    def _items(self, what: str, array: DeviceArray) -> DeviceArray:
        if array.dtype != np.uint8 or array.shape[1:] != (self.layout.nbytes,):
            self.layout.check(array)
        return checked(what, array, array.shape, array.dtype.name)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.cpu, self.device)


def _rebuild(cpu: Codec, device: str) -> CudaCodec:
    return CudaCodec(cpu, opened.device(device))
