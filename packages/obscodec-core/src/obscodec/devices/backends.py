"""Backends: they keep and code tensors on another device than the CPU. Packages offer them as entry points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from obscodec.arguments import kind_of, says_arguments, warn
from obscodec.codecs import Codec, new_codec
from obscodec.errors import BackendUnavailable, DTypeError, SpecError
from obscodec.heap import Allocate
from obscodec.installing import install_command
from obscodec.layout import FrameStack, Layout
from obscodec.segments import Ints

if TYPE_CHECKING:
    from obscodec.frames import WatchedLog  # which loads numba

ENTRY_POINT_GROUP = "obscodec.backends"
_HEAPS = ("device", "pinned")  # where a store on a device has its streams: in memory of the device, or of the host
_INSTALL = {"cuda": f"{install_command('obscodec-cupy[cuda12]')}, or [cuda13], for the CUDA version of the driver"}


class FrameReader(ABC):
    """Decodes the tensors of one FrameStore on a device, from a copy of the log that it keeps there.

    Safe to use from several threads. Work is queued on the current stream of the library of an array; the work of one
    call begins when that of the call before is done, on whichever streams the two are.
    """

    @abstractmethod
    def read(self, ids: Ints, out: Any, there: Any = None) -> None:
        """Decode tensors.

        Args:
            ids: ``i64[n]`` on the host.
            out: ``[n, *shape]`` in the memory of the device, an array of any library; contiguous.
            there: ``i32[n]`` in the memory of the device, the same ids; None to copy them there.

        Raises:
            SlotError: an id is of no tensor.
            DTypeError: ``out`` has another dtype, is read-only, or is in other memory.
            ShapeError: ``out`` has another shape.
            HeapFull: the device has not enough memory for the copy.
            CorruptStream: an earlier call found a damaged block; the tensors that it wrote are of no use.
        """


class Backend(ABC):
    """One kind of device. A package offers a subclass as an entry point of ``obscodec.backends``.

    ``device`` is a name such as ``"cuda"`` or ``"cuda:1"``. Each method with this argument raises BackendUnavailable if
    the device can't be used; the text names what is missing. An array is one of any library, unless it is a numpy
    array.
    """

    @abstractmethod
    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        """A codec for batches in the memory of ``device``.

        Raises:
            SpecError: the spec is malformed, or names no codec of this device.
        """

    @abstractmethod
    def check(self, device: str, *arrays: object) -> None:
        """Make sure that ``device`` can be used, and that ``arrays`` are in its memory.

        Raises:
            DTypeError: an argument is no array, or in the memory of another device.
        """

    @abstractmethod
    def empty(self, device: str, n: int, layout: Layout) -> Any:
        """An array ``[n, *shape]`` in the memory of ``device``, with unknown content.

        Raises:
            HeapFull: the device has not enough free memory.
        """

    @abstractmethod
    def pinned(self, device: str) -> Allocate:
        """What allocates chunks of a heap in host memory that kernels on ``device`` read at the same address.

        It raises HeapFull if the host has not enough memory that can be pinned.
        """

    @abstractmethod
    def fill(
        self, device: str, out: Any, n: int, layout: Layout, decode: Callable[[npt.NDArray[np.generic]], None]
    ) -> None:
        """Call ``decode`` with a numpy array to fill, and queue a copy of it into ``out``.

        Both arrays are ``[n, *shape]`` of ``layout``, and ``out`` is contiguous, in the memory of ``device``.

        Raises:
            DTypeError: ``out`` is no array, in the memory of another device, or of another dtype.
            ShapeError: ``out`` has another shape, or is not contiguous.
        """

    @abstractmethod
    def decodes(self, spec: str, block_frames: int) -> bool:
        """Whether this kind of device decodes the codec ``spec``, given in canonical form.

        ``block_frames`` is how many frames the codec encodes together; 1 for tensors, each encoded on its own.
        """

    @abstractmethod
    def frame_reader(
        self, device: str, heap: str, layout: Layout, frame_stack: FrameStack | None, log: WatchedLog
    ) -> FrameReader | None:
        """A reader of the tensors of ``layout`` in a log, whose codec the device :meth:`decodes`.

        None if it can't read tensors that are so made of frames; without a ``frame_stack``, a tensor is a frame.

        With the heap ``"pinned"``, :meth:`pinned` allocated the chunks of the log, and kernels read them in place; with
        ``"device"``, the reader copies them to the device.
        """

    @abstractmethod
    def batch_reader(self, arrays: Sequence[Any]) -> Any:
        """What reads items of several ``TensorArray`` s by places on their device: see ``obscodec_cupy.BatchReader``.

        Raises:
            ShapeError: one is a view.
            SpecError: they are not on one device.
        """

    @abstractmethod
    def download(self, device: str, x: Any) -> npt.NDArray[np.generic]:
        """A copy on the CPU of an array with any strides in the memory of ``device``; waits until it is there.

        Raises:
            DTypeError: ``x`` is no array, or in the memory of another device.
        """


@cache
def _made(kind: str) -> Backend:
    from importlib.metadata import entry_points  # it takes long to load

    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in found:
        if kind in _INSTALL:
            raise BackendUnavailable(f"device {kind!r} needs obscodec-cupy, which is not installed: {_INSTALL[kind]}")
        names = ", ".join(["cpu", *sorted({*found, *_INSTALL})])
        raise SpecError(f"no device is named {kind!r}, there are {names}; the CPU has no number")
    made = found[kind].load()()
    assert isinstance(made, Backend)
    return made


def backend(device: str) -> Backend:
    """The backend of a device such as ``"cuda"`` or ``"cuda:1"``, not of the CPU."""
    if not isinstance(device, str):
        raise SpecError(f"a device is a text such as 'cpu' or 'cuda:1', got {kind_of(device)}")
    return _made(device.partition(":")[0])


def from_device(device: str, x: Any) -> Any:
    """A copy on the CPU of an array in the memory of a GPU ``device``; anything else as it is."""
    if device == "cpu" or isinstance(x, np.ndarray):
        return x
    try:
        backend(device).check(device, x)
    except DTypeError:
        return x
    return backend(device).download(device, x)


def check_place(device: str, heap: str, new_batch: Callable[[], object] | None = None) -> None:
    """Make sure that compressed tensors can be kept on a device, and decoded into the memory of a batch.

    ``new_batch`` returns a batch, an array of any library such as ``torch.empty(1, device=...)``. It is only called for
    a device that can be used; for the CPU, batches may be anywhere, since the caller copies.

    Raises:
        SpecError: there is no such device or heap, or the device has no such heap.
        BackendUnavailable: the device can't be used; the text names what is missing.
        DTypeError: the batch is in the memory of another device.
    """
    if not isinstance(heap, str) or heap not in _HEAPS:
        raise SpecError(f"heap is 'device' or 'pinned', got {heap!r}")
    if not isinstance(device, str) or device != "cpu":
        made = backend(device)
        made.check(device)
        try:
            made.check(device, *([new_batch()] if new_batch else []))
        except DTypeError as error:
            what = f"what is kept on {device!r} is decoded there, so batches must be there"
            raise DTypeError(f"{what}: {error}") from None
    elif heap != "device":
        raise SpecError(f"heap={heap!r} is for a GPU, got it for the CPU: name another device, or leave it out")


def decoding_device(device: str, spec: str, block_frames: int, what: str) -> str:
    """``device`` if it decodes the codec ``spec``; else ``"cpu"``, with a warning about ``what`` is decoded there.

    See ``Backend.decodes`` for ``spec`` and ``block_frames``, and :func:`backend` for the errors.
    """
    if device == "cpu" or backend(device).decodes(spec, block_frames):
        return device
    others = "'delta-rle', 'delta-rle|lz4'" + (", 'raw' and 'rle'" if block_frames == 1 else " and 'raw'")
    warn(f"{what} are decoded on the CPU and copied to {device!r}, which only decodes {others}")
    return "cpu"


@overload
def codec(spec: str, layout: Layout, device: Literal["cpu"] = "cpu") -> Codec: ...


@overload
def codec(spec: str, layout: Layout, device: str) -> Any: ...


@says_arguments
def codec(spec: str, layout: Layout, device: str = "cpu") -> Any:
    """The codec that ``spec`` names, for items of ``layout``.

    Args:
        spec: such as ``"zstd:3"`` or ``"shuffle|lz4"``: filters, one codec, then codecs that compress its streams.
        layout: shape and dtype of one item.
        device: where batches are: ``"cpu"``, or a GPU such as ``"cuda:1"``, for which obscodec-cupy lists the codecs.

    Raises:
        SpecError: the spec is malformed, names no known codec, or has its stages in an impossible order.
        LevelError: a level is out of range.
        LayoutError: a filter does not take items of this layout, or ``layout`` is no Layout.
        BackendUnavailable: the device can't be used.

    Example:
        >>> codec("zstd", Layout((84, 84), "uint8")).spec
        'zstd:3'
    """
    if isinstance(device, str) and device == "cpu":
        return new_codec(spec, layout)
    Layout.require(layout)
    return backend(device).codec(spec, layout, device)
