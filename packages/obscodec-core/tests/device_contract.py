"""DeviceContract: the laws of the backend of a device."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from obscodec.codecs import new_codec
from obscodec.devices import Backend, backend
from obscodec.errors import DTypeError, ShapeError, SpecError
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.stores import FrameStore, Store
from obscodec.testing.law import accepted, check, check_refused, equal

Tensors = npt.NDArray[np.generic]

_LAYOUTS = (
    Layout((6, 5), "uint8"),
    Layout((), "float64"),
    Layout((3, 7), "float32"),
    Layout((0, 4), "int16"),
    Layout((9,), "bool"),
)
_BLOCK = Layout((3, 12, 9), "uint8")
_FRAME = Layout((12, 9), "uint8")
_N_TENSORS = 30


class DeviceContract:
    """The laws that every device keeps. Its backend must be an entry point of ``obscodec.backends``.

    Attributes:
        device: its name, such as ``"cuda"``.
        heaps: where its stores can have their streams.
        codecs: the specs of the codecs that run on the device.
        block_codecs: codecs to try for blocks of frames, whether the device decodes them or the CPU does.
        frame_codecs: codecs to try for single frames, whether the device decodes them or the CPU does.
    """

    device: ClassVar[str]
    heaps: ClassVar[tuple[str, ...]] = ("device", "pinned")
    codecs: ClassVar[tuple[str, ...]] = ("rle", "delta-rle")
    block_codecs: ClassVar[tuple[str, ...]] = ("delta-rle", "raw", "zstd:1")
    frame_codecs: ClassVar[tuple[str, ...]] = ("rle", "delta-rle", "raw", "zstd:1")

    @property
    def backend(self) -> Backend:
        """The backend under test."""
        return backend(self.device)

    def test_check_takes_arrays_of_the_device_only(self) -> None:
        """``check`` accepts arrays in the memory of the device, and refuses arrays of the host and other objects."""
        own = [self.backend.empty(self.device, 2, layout) for layout in _LAYOUTS]
        with accepted(self.backend, "checking the device, alone and with arrays of its own"):
            self.backend.check(self.device)
            self.backend.check(self.device, *own)
        for what, wrong in (("an array of the host", np.zeros(3)), ("a list", [1, 2]), ("None", None)):
            call = partial(self.backend.check, self.device, own[0], wrong)
            check_refused(DTypeError, self.backend, f"checking {what}", call)

    def test_empty_has_the_layout(self) -> None:
        """``empty`` returns ``[n, *shape]`` of the dtype, also for no tensors, in memory of its own."""
        for layout in _LAYOUTS:
            for n in (0, 1, 4):
                x = self.backend.empty(self.device, n, layout)
                found = tuple(x.shape), self.backend.download(self.device, x).dtype
                check(found == ((n, *layout.shape), layout.dtype), self.backend, f"empty of {n} {layout} gives {found}")
        one, other = (self._uploaded(np.full((2, *_FRAME.shape), value, np.uint8)) for value in (1, 2))
        values = [int(self.backend.download(self.device, x).max()) for x in (one, other)]
        check(values == [1, 2], self.backend, "two arrays of empty() have the same memory")

    def test_download_inverts_fill(self) -> None:
        """``download`` returns bit for bit what ``fill`` wrote; other shapes, dtypes and places are refused."""
        for layout in _LAYOUTS:
            tensors = _noise(layout, 5)
            there = self._uploaded(tensors)
            found = self.backend.download(self.device, there)
            check(equal(found, tensors), self.backend, f"filling and downloading changes tensors of {layout}")
            self.backend.fill(self.device, there, 5, layout, partial(_copy, np.zeros_like(tensors)))
            check(equal(found, tensors), self.backend, "what was downloaded changes with the device")
        there = self.backend.empty(self.device, 5, _FRAME)
        host = np.zeros((5, *_FRAME.shape), np.uint8)
        floats = Layout(_FRAME.shape, "float32")
        for error, what, out, n, layout in (
            (ShapeError, "filling five tensors with four", there, 4, _FRAME),
            (DTypeError, "filling tensors of uint8 with float32", there, 5, floats),
            (DTypeError, "filling an array of the host", host, 5, _FRAME),
        ):
            call = partial(self.backend.fill, self.device, out, n, layout, lambda to: to.fill(0))
            check_refused(error, self.backend, what, call)
        what = "downloading an array of the host"
        check_refused(DTypeError, self.backend, what, partial(self.backend.download, self.device, host))

    def test_codecs_have_the_bytes_of_the_cpu(self) -> None:
        """A codec of the device writes the streams that the codec of the CPU writes, and reads them."""
        tensors = np.concatenate([_walk(_BLOCK, 6), _noise(_BLOCK, 3)])
        for spec in self.codecs:
            there, here = self.backend.codec(spec, _BLOCK, self.device), new_codec(spec, _BLOCK)
            streams = there.encode_batch(self._uploaded(tensors))
            rows = _BLOCK.rows(tensors)
            expected = here.encode_batch(rows, np.empty(len(rows) * here.bound(), np.uint8))
            same = list(map(bytes, streams.download())) == list(map(bytes, expected))
            check(same, self.backend, f"its codec {spec!r} writes other streams than that of the CPU")
            out = self.backend.empty(self.device, len(tensors), _BLOCK)
            there.decode_batch(streams, out)
            found = self.backend.download(self.device, out)
            check(equal(found, tensors), self.backend, f"its codec {spec!r} reads other tensors than were written")

    def test_unknown_codecs_are_refused(self) -> None:
        """A codec that does not exist, or not on this device, raises SpecError."""
        for spec in ("no-such-codec", "shuffle|zstd:1"):
            call = partial(self.backend.codec, spec, _BLOCK, self.device)
            check_refused(SpecError, self.backend, f"the codec {spec!r}", call)

    def test_blocks_are_those_of_the_cpu(self) -> None:
        """A store of blocks of frames on the device has the ids and frames of a store on the CPU."""
        for spec in self.block_codecs:
            make = partial(FrameStore, _FRAME, codec=spec, block_frames=4)
            self._compare(make, _walk(_FRAME, _N_TENSORS), f"blocks of {spec!r}")

    def test_frames_are_those_of_the_cpu(self) -> None:
        """A store of single frames on the device has the ids and frames of a store on the CPU."""
        for spec in self.frame_codecs:
            make = partial(FrameStore, _FRAME, codec=spec, block_frames=1)
            self._compare(make, _walk(_FRAME, _N_TENSORS), f"frames of {spec!r}")

    def test_stacks_are_those_of_the_cpu(self) -> None:
        """A store of frame stacks on the device has the ids and stacks of a store on the CPU."""
        frames, layout = _walk(_FRAME, _N_TENSORS), Layout((3, *_FRAME.shape), _FRAME.dtype)
        stacks = np.stack([frames[i - 3 : i] for i in range(3, len(frames))])
        for spec in self.block_codecs:
            make = partial(FrameStore, layout, frame_stack=3, codec=spec, block_frames=4)
            self._compare(make, stacks, f"stacks of {spec!r}")

    def _compare(self, make: Callable[..., Store], tensors: Tensors, what: str) -> None:
        """Append the same tensors to two stores, from host memory and from memory of the device, and read them."""
        for heap in self.heaps:
            with warnings.catch_warnings(), accepted(self.backend, f"making a store for {what} in {heap!r}"):
                warnings.simplefilter("ignore")  # the CPU may have to decode
                here, there = make(device="cpu", heap="device"), make(device=self.device, heap=heap)
            ids = np.empty(0, np.int64)
            for i, some in enumerate(np.array_split(tensors, 5)):
                expected = here.append(some)
                with accepted(self.backend, f"appending {what}"):
                    given = there.append(self._uploaded(some) if i % 2 else some)
                check(equal(given, expected), self.backend, f"{what} have the ids {given}, on the CPU {expected}")
                ids = np.append(ids, given)
                self._compare_read(here, there, ids[::-1], what)
            for store in (here, there):
                store.release(ids[::3])
            self._compare_read(here, there, np.append(np.delete(ids, slice(None, None, 3)), [0, 0]), what)
            sizes = [(store.stats().n_tensors, store.stats().live_bytes) for store in (here, there)]
            check(sizes[0] == sizes[1], self.backend, f"{what} take (n_tensors, live_bytes) {sizes[1]}, not {sizes[0]}")

    def _compare_read(self, here: Store, there: Store, ids: Ints, what: str) -> None:
        expected, out = here.read(ids), self.backend.empty(self.device, len(ids), here.layout)
        with accepted(self.backend, f"reading {what}"):
            check(there.read(ids, out) is out, self.backend, f"{what} are not read into the array that is given")
            found = self.backend.download(self.device, out)
            check(equal(found, expected), self.backend, f"{what} are others on the device")
            check(equal(there.read(ids), expected), self.backend, f"{what} are others when the host reads them")

    def _uploaded(self, tensors: Tensors) -> Any:
        """A copy of tensors on the device."""
        layout = Layout(tensors.shape[1:], tensors.dtype)
        out = self.backend.empty(self.device, len(tensors), layout)
        self.backend.fill(self.device, out, len(tensors), layout, partial(_copy, tensors))
        return out


def _copy(tensors: Tensors, to: Tensors) -> None:
    if (to.shape, to.dtype) != (tensors.shape, tensors.dtype):
        raise AssertionError(f"fill() asks for {to.dtype}{to.shape}, it should be {tensors.dtype}{tensors.shape}")
    to[...] = tensors


def _noise(layout: Layout, n: int) -> Tensors:
    """Noise, after a tensor with all bits set (NaNs) and a tensor of negative zeros."""
    rows = np.random.default_rng(0).integers(0, 256, (n, layout.nbytes), np.uint8)
    rows[0] = 0xFF
    rows[1] = 0
    rows[1, layout.dtype.itemsize - 1 :: layout.dtype.itemsize] = 0x80
    if layout.dtype == np.bool_:
        rows &= 1
    return layout.tensors(rows)


def _walk(layout: Layout, n: int) -> Tensors:
    """Tensors that change little from one to the next; the first is zeros, one is noise."""
    rng = np.random.default_rng(1)
    rows = np.zeros((n, layout.nbytes), np.uint8)
    for i in range(1, n):
        rows[i] = rows[i - 1]
        begin, length = rng.integers(layout.nbytes), rng.integers(1, 20)
        rows[i, begin : begin + length] += rng.integers(1, 256, dtype=np.uint8)
    rows[n // 2] = rng.integers(0, 256, layout.nbytes, np.uint8)
    return layout.tensors(rows)
