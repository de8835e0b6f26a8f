"""Frames that are in the memory of a GPU when they come into a FrameStore: compared and encoded there."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt
from obscodec import (
    MAX_REFERENCES,
    FrameBatch,
    FrameEncoder,
    FrameKind,
    FramePlan,
    FrameStack,
    Layout,
    Patches,
    ShapeError,
    first_to_join,
)

from obscodec_cupy.array import DeviceArray
from obscodec_cupy.codec import n_threads, n_words
from obscodec_cupy.contiguous import contiguous
from obscodec_cupy.copies import move
from obscodec_cupy.device import Device, Kernel

KERNELS = [Kernel("born.cu", f"born_{name}") for name in ("mark", "compare", "measure", "write")]
_MARK, _COMPARE, _MEASURE, _WRITE = KERNELS
_MOST_NBYTES = (1 << 31) - 1  # of a frame, in the kernels

Ints = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]


class CudaFrameEncoder(FrameEncoder):
    """See ``obscodec.FrameEncoder``: keeps the recent frames of all streams and the reference frames on the device.

    Args:
        device: where the frames are.
        frame: shape and dtype of one.
        n_recent: how many slots a stream has.
    """

    def __init__(self, device: Device, frame: Layout, n_recent: int) -> None:
        if frame.nbytes > _MOST_NBYTES:
            raise ShapeError(f"a frame has at most {_MOST_NBYTES} bytes to be encoded on {device.name}, got {frame}")
        self.device = device
        self.frame = frame
        self.n_recent = n_recent
        self.order = device.order()
        self.recent = device.empty((0, frame.nbytes), np.uint8)
        self._references: DeviceArray | None = None
        self._n_sent = 0  # of the references

    def batch(self, tensors: Any, layout: Layout, stack: FrameStack | None) -> CudaFrameBatch:
        """See ``obscodec.FrameEncoder.batch``; frames that do not lie one behind the other are copied."""
        with self.device.on_stream_of(tensors):
            view = self.device.view(tensors)
        layout.check(cast("npt.NDArray[np.generic]", view))
        if stack is None or stack.axis == 0:
            return CudaFrameBatch(self, tensors, view, None)
        return CudaFrameBatch(self, tensors, view, (0, len(view.shape) - 1, *range(1, len(view.shape) - 1)))

    def reserve(self, n_streams: int) -> None:
        """See ``obscodec.FrameEncoder.reserve``."""
        old, n_slots = self.recent, n_streams * self.n_recent
        if n_slots > len(old):
            new = self.device.empty((max(n_slots, 2 * len(old)), self.frame.nbytes), np.uint8)
            every = np.arange(len(old))
            self.copy(self.addresses(old, every), self.addresses(new, every))
            self.device.synchronize()  # before the old memory goes, which may have come from another stream
            self.recent = new

    def send(self, streams: Ints, recent: npt.NDArray[np.uint8]) -> Ints:
        """See ``obscodec.FrameEncoder.send``."""
        sent = self.device.upload(recent)
        slots = np.add.outer(streams * self.n_recent, np.arange(self.n_recent)).reshape(-1)
        self.copy(self.addresses(sent, np.arange(len(recent))), self.addresses(self.recent, slots))
        return self.marks(sent)

    def marks(self, rows: DeviceArray) -> Ints:
        """See ``obscodec.FrameBatch.marks``."""
        marks = self.device.empty((len(rows),), np.int64)
        self.launch(_MARK, len(rows), rows, marks)
        return self.device.download(marks).astype(np.int64)

    def addresses(self, rows: DeviceArray, numbers: Ints) -> Addresses:
        """``u64[n]``: where rows of an array are."""
        return np.uint64(self.device.address(rows)) + (numbers * self.frame.nbytes).astype(np.uint64)

    def copy(self, sources: Addresses, targets: Addresses) -> None:
        """Copy frames on the device."""
        move(self.device, sources, targets, np.full(len(sources), self.frame.nbytes))

    def references(self, here: npt.NDArray[np.uint8]) -> DeviceArray:
        """``u8[33, nbytes]`` on the device that begins with the reference frames of the host."""
        if self._references is None:
            self._references = self.device.empty((MAX_REFERENCES, self.frame.nbytes), np.uint8)
        if len(here) > self._n_sent:
            self.device.write(here[self._n_sent :], self._references[self._n_sent : len(here)])
            self._n_sent = len(here)
        return self._references

    def __del__(self) -> None:
        """Wait for what works with the memory that goes now."""
        with suppress(Exception):  # at the end of the process there may be no device any more
            with self.order:
                done = self.device.mark()
            done.wait()

    def launch(self, kernel: Kernel, n_blocks: int, first: DeviceArray, *others: DeviceArray | np.generic) -> None:
        """Queue one of the kernels, which take bytes of a frame behind the first array."""
        given = (first, np.uint32(self.frame.nbytes), *others)
        arguments = [x if isinstance(x, np.generic) else np.uint64(self.device.address(x)) for x in given]
        self.device.launch(kernel, n_blocks, n_threads(self.frame.nbytes), *arguments)


class CudaFrameBatch(FrameBatch):
    """See ``obscodec.FrameBatch``; made by :class:`CudaFrameEncoder`."""

    def __init__(
        self, encoder: CudaFrameEncoder, tensors: Any, view: DeviceArray, axes: tuple[int, ...] | None
    ) -> None:
        self._encoder, self._device = encoder, encoder.device
        self._tensors, self._view, self._axes = tensors, view, axes
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self._device.on_stream_of(self._tensors))
            entered.enter_context(self._encoder.order)
            items = contiguous(self._device, self._view, self._axes)
            frame = self._encoder.frame
            self._rows = items.reshape((len(self), frame.nbytes // frame.dtype.itemsize)).view(np.uint8)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    def __len__(self) -> int:
        return self._view.nbytes // self._encoder.frame.nbytes

    def marks(self) -> Ints:
        """See ``FrameBatch.marks``."""
        return self._encoder.marks(self._rows)

    def rows(self) -> npt.NDArray[np.uint8]:
        """See ``FrameBatch.rows``."""
        return self._device.download(self._rows).view(np.uint8)

    def keep(self, slots: Ints, frames: Ints) -> None:
        """See ``FrameBatch.keep``."""
        self._encoder.copy(self._addresses(frames), self._addresses(-1 - slots))

    def encode(self, plan: FramePlan, references: npt.NDArray[np.uint8]) -> Patches | None:
        """See ``FrameBatch.encode``: measures all patches, then writes them one behind the other."""
        of_kind = [np.flatnonzero(plan.kinds == kind) for kind in (FrameKind.KNOWN, FrameKind.PATCH, FrameKind.FIRST)]
        known, new = of_kind[0], np.concatenate(of_kind[1:])
        pairs = np.zeros((len(known) + len(new), 2), np.uint64)
        pairs[:, 0] = self._addresses(plan.begin + np.concatenate([known, new]))
        sources = plan.sources[np.concatenate(of_kind[:2])]
        pairs[: len(sources), 1] = self._addresses(sources)
        measured = self._measured(pairs, len(known), len(of_kind[1]), references)
        if measured is None:
            return None
        lengths = np.zeros((2, len(plan.kinds)), np.int64)
        lengths[:, new] = measured.sizes[:, 1:3].T
        starts, nearest = np.zeros((2, len(plan.kinds)), np.int64)
        nearest[new] = measured.sizes[:, 3]
        starts[new] = np.cumsum(lengths[:, new].sum(axis=0)) - lengths[:, new].sum(axis=0)
        buffer = self._written(measured, starts[new], int(lengths.sum()))
        joined = [self._device.download(self._rows[k : k + 1]) for k in (plan.begin + new[measured.joined]).tolist()]
        rows = np.concatenate([references[:0], *joined]).view(np.uint8)
        return Patches(plan.begin, buffer, starts, lengths[0], lengths[1], nearest, len(references), rows)

    def _measured(
        self, pairs: Addresses, n_known: int, n_patches: int, here: npt.NDArray[np.uint8]
    ) -> _Measured | None:
        """Compare the pairs that should be equal; measure the others, until no first frame joins the references."""
        encoder, n = self._encoder, len(pairs) - n_known
        table, report = self._device.upload(pairs), self._device.zeros((1 + n, 4), np.uint32)
        differences = self._device.empty((n, n_words(encoder.frame.nbytes)), np.uint32)
        references, n_references, begin = encoder.references(here), len(here), 0
        joined: list[int] = []
        encoder.launch(_COMPARE, n_known, table, report)
        while True:
            rest = (
                table[n_known + begin :],
                references,
                np.uint32(n_references),
                differences[begin:],
                report[1 + begin :],
            )
            encoder.launch(_MEASURE, n - begin, *rest)
            measured = self._device.download(report).astype(np.int64)
            if measured[0, 0]:
                return None
            sizes, begin = measured[1:], max(begin, n_patches)
            begin += first_to_join(sizes[begin:, 1:3].sum(axis=1), encoder.frame.nbytes, n_references)
            if begin == n:
                break
            encoder.copy(pairs[n_known + begin, :1], encoder.addresses(references, np.array([n_references])))
            joined.append(begin)
            n_references += 1
            begin += 1
        sizes[joined] = 0, 1, 0, 0  # without a run
        sizes[joined, 3] = np.arange(len(here), n_references)
        return _Measured(table[n_known:], differences, report[1:], sizes, joined)

    def _written(self, measured: _Measured, starts: Ints, nbytes: int) -> npt.NDArray[np.uint8]:
        out = self._device.empty((nbytes,), np.uint8)
        joined = measured.joined
        on_device = starts.copy()
        on_device[joined] = -1
        where = measured.differences, measured.report, self._device.upload(on_device), out
        self._encoder.launch(_WRITE, len(starts), measured.pairs, *where)
        written = self._device.download(out).view(np.uint8)
        written[starts[joined]] = 0  # the count of the runs
        return written

    def _addresses(self, numbers: Ints) -> Addresses:
        """Where frames of the batch are, or recent ones, whose numbers are ``-1 - slot``."""
        of_batch = self._encoder.addresses(self._rows, numbers)
        return np.where(numbers < 0, self._encoder.addresses(self._encoder.recent, -1 - numbers), of_batch)


class _Measured(NamedTuple):
    """Patches that are measured, but not written yet.

    Attributes:
        pairs: ``u64[n, 2]`` on the device, addresses of frames.
        differences: ``u32[n, :]`` on the device, a bit for each byte that differs.
        report: ``u32[n, 4]`` on the device: runs, their bytes, literals, reference frame.
        sizes: ``i64[n, 4]``, the same, with those that joined the references.
        joined: the numbers of these.
    """

    pairs: DeviceArray
    differences: DeviceArray
    report: DeviceArray
    sizes: Ints
    joined: list[int]
