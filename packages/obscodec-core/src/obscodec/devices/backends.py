"""Backends: what keeps and codes tensors in the memory of another device than the CPU, found by its entry point."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_kind, kind_of
from obscodec.codecs import Codec, new_codec
from obscodec.devices.frame_reader import FrameForm, FrameReader
from obscodec.devices.tensor_coder import TensorCoder
from obscodec.errors import BackendUnavailable, DTypeError, SpecError
from obscodec.heap import HeapMemory
from obscodec.layout import Layout

ENTRY_POINT_GROUP = "obscodec.backends"
HEAPS = ("device", "pinned")  # of a store on a device: in the memory of that, or in pinned memory of the host
_INSTALL = {"cuda": "obscodec-cupy[cuda12]' or 'obscodec-cupy[cuda13]"}


class Backend(ABC):
    """One kind of device. A package offers a subclass as an entry point of ``obscodec.backends``."""

    @abstractmethod
    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        """A codec for batches in the memory of ``device``, such as ``"cuda"`` or ``"cuda:1"``.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
            SpecError: the spec is malformed, or no codec that this device has.
        """

    @abstractmethod
    def check(self, device: str, *arrays: object) -> None:
        """Make sure that ``device`` can be used, and that it can write into arrays of any library.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
            DTypeError: an array is no array, or in the memory of another device.
        """

    @abstractmethod
    def empty(self, device: str, n: int, layout: Layout) -> Any:
        """An array ``[n, *shape]`` in the memory of ``device``, with unknown content.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
            HeapFull: the device has not enough free memory.
        """

    @abstractmethod
    def heap_memory(self, device: str, heap: str) -> HeapMemory[Any]:
        """Memory for a heap of its own, which kernels on ``device`` can read.

        Args:
            device: such as ``"cuda"`` or ``"cuda:1"``.
            heap: ``"device"`` for its own memory, ``"pinned"`` for host memory that it can reach.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
            SpecError: ``heap`` is neither.
        """

    @abstractmethod
    def fill(
        self, device: str, out: Any, n: int, layout: Layout, decode: Callable[[npt.NDArray[np.generic]], None]
    ) -> None:
        """Have ``decode`` fill a numpy array, and queue a copy of that into an array on the device.

        Args:
            device: the device.
            out: ``[n, *shape]``, an array of any library, contiguous.
            n: how many tensors it is for.
            layout: of each.
            decode: called with an array of the same shape and dtype, in memory that can be copied from at once.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
            DTypeError: ``out`` is no array, in the memory of another device, or of another dtype.
            ShapeError: it has another shape, or is not contiguous.
        """

    @abstractmethod
    def decodes(self, spec: str, block_frames: int) -> bool:
        """Whether what the codec ``spec``, in canonical form, encodes is decoded there.

        Args:
            spec: the codec.
            block_frames: how many frames it encodes together; 1 for tensors, each on its own.
        """

    @abstractmethod
    def frame_reader(
        self, device: str, form: FrameForm, memory: HeapMemory[Any], lock: AbstractContextManager[object]
    ) -> FrameReader:
        """What decodes the frames of one store.

        Args:
            device: the device.
            form: what the blocks of frames are; of a codec that this device decodes.
            memory: where they are, made by this backend for that device.
            lock: held while the heap works with that memory; reentrant.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
        """

    @abstractmethod
    def download(self, device: str, x: Any) -> npt.NDArray[np.generic]:
        """A copy on the CPU of an array of any library, with any strides, in the memory of ``device``; waits for it.

        Raises:
            BackendUnavailable: the device can't be used; the text names what is missing.
            DTypeError: ``x`` is no array, or in the memory of another device.
        """

    @abstractmethod
    def tensor_coder(self, codec: Codec, memory: HeapMemory[Any]) -> TensorCoder:
        """What encodes and decodes the tensors of one store.

        Args:
            codec: that of the CPU, with the same streams; one that the device decodes.
            memory: where they are, made by this backend for the device.

        Raises:
            ShapeError: its streams can be too long for the device.
            HeapFull: the device has not enough free memory.
        """


@cache
def _made(kind: str) -> Backend:
    from importlib.metadata import entry_points  # which takes long to load

    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in found:
        if kind in _INSTALL:
            raise BackendUnavailable(
                f"device {kind!r} needs obscodec-cupy, which is not installed: pip install '{_INSTALL[kind]}', "
                "for the CUDA version of the driver"
            )
        raise SpecError(f"no backend is named {kind!r}, there are {', '.join(['cpu', *sorted(found)])}")
    made = found[kind].load()()
    assert isinstance(made, Backend)
    return made


def backend(device: str) -> Backend:
    """The backend of a device such as ``"cuda"`` or ``"cuda:1"``, not of the CPU.

    Raises:
        BackendUnavailable: the package that it needs is not installed.
        SpecError: there is no such kind of device.
    """
    if not isinstance(device, str):
        raise SpecError(f"a device is a text such as 'cpu' or 'cuda:1', got {kind_of(device)}")
    return _made(device.partition(":")[0])


def check_place(device: str, heap: str, new_batch: Callable[[], object] | None = None) -> None:
    """Make sure that compressed tensors can be kept on a device, and decoded into the memory of a batch.

    Args:
        device: ``"cpu"``, or another one.
        heap: ``"device"``, or ``"pinned"`` for host memory that the device reads.
        new_batch: gives an array of any library, such as ``torch.empty(1, device=...)``. It is not called if the device
            can't be used, nor if that is the CPU, since whoever has batches elsewhere copies then.

    Raises:
        SpecError: there is no such device or heap, or the heap is not that of this device.
        BackendUnavailable: the device can't be used; the text names what is missing.
        DTypeError: the batch is in the memory of another device.

    Example:
        >>> check_place("cpu", "device")
    """
    if not isinstance(heap, str) or heap not in HEAPS:
        raise SpecError(f"heap is 'device' or 'pinned', got {heap!r}")
    if not isinstance(device, str) or device != "cpu":
        made = backend(device)
        made.check(device)
        try:
            made.check(device, *([] if new_batch is None else [new_batch()]))
        except DTypeError as error:
            what = f"what is kept on {device!r} is decoded there, so batches must be there"
            raise DTypeError(f"{what}: {error}") from None
    elif heap != "device":
        raise SpecError(f"heap={heap!r} is for a GPU, got it for the CPU: name another device, or leave it out")


def decoding_device(device: str, spec: str, block_frames: int, what: str) -> str:
    """``device`` if what the codec ``spec`` encodes is decoded there, else ``"cpu"``, with a warning.

    Args:
        device: ``"cpu"``, or another one.
        spec: the codec, in canonical form.
        block_frames: how many frames it encodes together; 1 for tensors, each on its own.
        what: what is decoded, for the warning.

    Raises:
        SpecError: there is no such device.
        BackendUnavailable: the package that it needs is not installed.
    """
    if device == "cpu" or backend(device).decodes(spec, block_frames):
        return device
    others = "'rle', 'delta-rle' and 'raw'" if block_frames == 1 else "'delta-rle' and 'raw'"
    warnings.warn(f"{what} are decoded on the CPU and copied to {device!r}, which decodes {others}", stacklevel=3)
    return "cpu"


@overload
def codec(spec: str, layout: Layout, device: Literal["cpu"] = "cpu") -> Codec: ...


@overload
def codec(spec: str, layout: Layout, device: str) -> Any: ...


def codec(spec: str, layout: Layout, device: str = "cpu") -> Any:
    """The codec that ``spec`` names, for items of ``layout``.

    Args:
        spec: such as ``"zstd:3"`` or ``"shuffle|lz4"``: filters, one codec, then codecs that compress its streams.
        layout: shape and dtype of one item.
        device: where its batches are: ``"cpu"``, or ``"cuda"`` or ``"cuda:1"`` with obscodec-cupy, whose codecs are
            described there.

    Raises:
        SpecError: the spec is malformed, names no known codec, or has its stages in an impossible order.
        LevelError: a level is out of range.
        LayoutError: a filter does not take items of this layout, or it is no layout.
        MissingPackage: a codec needs a package that is not installed.
        BackendUnavailable: the device can't be used.

    Example:
        >>> codec("zstd", Layout((84, 84), "uint8")).spec
        'zstd:3'
    """
    if isinstance(device, str) and device == "cpu":
        return new_codec(spec, layout)
    check_kind("layout", layout, Layout, "a Layout, such as Layout((84, 84), 'uint8')")
    return backend(device).codec(spec, layout, device)
