"""``store.read_into`` and ``BatchReader`` give what was assigned: heaps, layouts, conversions, shifts, overwriting."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import obscodec
from obscodec import FrameStack, Layout, TensorArray
from obscodec_cupy import BatchReader

from gpu_parts.frames import DEPTH, drawn, noise, observations, played
from gpu_parts.machine import Array, Machine
from gpu_parts.record import Record

_CONVERSIONS = (("float32", 1 / 255), ("float16", 1 / 255), ("float16", 3.0), ("bfloat16", 1 / 255))


class Case(NamedTuple):
    """What is stored, and how.

    Attributes:
        name: for the results.
        tensors: two arrays ``[n, *shape]``, observations and those after them.
        stack: how a tensor is made of frames.
        codec: of the store.
        rows: the axes of a tensor that are its rows and columns.
    """

    name: str
    tensors: tuple[Array, Array]
    stack: FrameStack
    codec: str
    rows: tuple[int, int]


def run(machine: Machine, record: Record) -> None:
    """A check for each way to read, each heap and each case."""
    for case in _cases(machine.sizes.tiny):
        for heap in ("device", "pinned"):
            arrays: list[TensorArray] = []
            with record.check(f"{case.name}, {heap} heap: fill"):
                arrays = _filled(case, heap)
            if arrays:
                _read_all(machine, record, case, heap, arrays)


def _cases(tiny: bool) -> Iterator[Case]:
    n = 300 if tiny else 2000
    small = drawn(n, (9, 12))
    yield _case("drawn frames of 9x12", small, 0, "delta-rle")
    wide = small.astype(np.int16)
    # So many numbers that bytes can't stand for them: a store would keep bytes, which no BatchReader converts back.
    wide[:, 0, :4] = np.arange(n)[:, None] * [1, -1, 7, -7]
    yield _case("int16 frames of 9x12", wide, 0, "delta-rle")
    if tiny:
        yield _case("drawn frames of 8x16", drawn(n, (8, 16)), 0, "delta-rle")  # in units of 16 bytes
        yield _case("drawn frames of 84x84", drawn(n), 0, "delta-rle")  # what the sanitizers must see, too
        return
    yield _case("frames of 9x12, the stack along the last axis", small, -1, "delta-rle")
    yield _case("uncompressed frames of 9x12", small, 0, "raw")
    yield _case("frames of a game, 84x84", played(n, tiny=False)[1], 0, "delta-rle")
    yield _case("noise, 84x84", noise(n), 0, "delta-rle")
    yield _case("drawn frames of 210x160", drawn(n, (210, 160)), 0, "delta-rle")


def _case(name: str, frames: Array, axis: int, codec: str) -> Case:
    tensors = [observations(frames, first, len(frames)) for first in (0, 1)]
    if axis == -1:
        tensors = [np.ascontiguousarray(np.moveaxis(x, 1, -1)) for x in tensors]
    rows = (0, 1) if axis == -1 else (1, 2)
    return Case(name, (tensors[0], tensors[1]), FrameStack(DEPTH, axis), codec, rows)


def _filled(case: Case, heap: str) -> list[TensorArray]:
    """Two arrays with the tensors; some are written twice, as a buffer does that is full."""
    layout = Layout(case.tensors[0].shape[1:], case.tensors[0].dtype)
    store = obscodec.AutoStore(layout, codec=case.codec, frame_stack=case.stack, device="cuda", heap=heap)
    n = len(case.tensors[0])
    arrays = [TensorArray.zeros((n,), store) for _ in case.tensors]
    order = [*range(n // 2, n // 2 + 40), *range(n)]
    for t in range(0, len(order), 8):
        rows = np.array(order[t : t + 8])
        for array, tensors in zip(arrays, case.tensors, strict=True):
            array[rows] = tensors[rows]
    store.decide()
    return arrays


def _read_all(machine: Machine, record: Record, case: Case, heap: str, arrays: list[TensorArray]) -> None:
    rng, n = np.random.default_rng(0), len(case.tensors[0])
    places = rng.integers(0, n, 6 if machine.sizes.tiny else 512)
    expected = [tensors[places] for tensors in case.tensors]
    where = f"{case.name}, {heap} heap: "
    with record.check(f"{where}read_into"):
        for array, tensors in zip(arrays, expected, strict=True):
            out = machine.empty(tensors.shape, tensors.dtype)
            array.store.read_into(array.ids[places], out)
            _require_equal(machine.download(out), tensors)
    with record.check(f"{where}BatchReader"):
        reader = BatchReader(arrays)
        reader.sync()
        _compare(machine, reader, places, expected)
        for row in range(5):  # what is assigned later is read after the next sync
            for array, tensors in zip(arrays, case.tensors, strict=True):
                array[row] = tensors[row + 100]
        reader.sync()
        _compare(machine, reader, np.arange(5), [tensors[100:105] for tensors in case.tensors])
        for array, tensors in zip(arrays, case.tensors, strict=True):
            array[:5] = tensors[:5]
    with record.check(f"{where}BatchReader, shifts"):
        shifts = [rng.integers(-4, 5, (len(places), 2)).astype(np.int32) for _ in arrays]
        reader = BatchReader(arrays, shifted_axes=case.rows)
        reader.sync()
        shifted = [_shifted(x, of, case.rows) for x, of in zip(expected, shifts, strict=True)]
        _compare(machine, reader, places, shifted, shifts)
    if expected[0].dtype != np.uint8:
        return
    if not machine.has_graphs:
        record.left_out(f"{where}a graph", "torch is not installed, or there is no pool of memory")
    else:
        with record.check(f"{where}a graph that is replayed after new steps"):
            _replay(machine, case, arrays)
    for dtype, scale in _CONVERSIONS:
        with record.check(f"{where}BatchReader, {dtype} of {scale:.4g} x"):
            reader = BatchReader(arrays, dtype=dtype, scale=scale)
            reader.sync()
            _compare(machine, reader, places, [_converted(x, dtype, scale) for x in expected])


def _compare(
    machine: Machine, reader: BatchReader, places: Array, expected: list[Array], shifts: list[Array] | None = None
) -> None:
    outs = [machine.empty(x.shape, x.dtype) for x in expected]
    uploaded = None if shifts is None else [machine.upload(shift) for shift in shifts]
    reader.read(machine.upload(places), outs, uploaded)
    for out, x in zip(outs, expected, strict=True):
        _require_equal(machine.download(out), x)
    reader.check()


def _replay(machine: Machine, case: Case, arrays: list[TensorArray]) -> None:
    import torch

    reader = BatchReader(arrays)
    sync: Callable[[Any], object] = reader.sync  # returns True if graphs must be recorded again
    places = torch.arange(20, device=machine.torch_device)
    outs = [torch.empty((20, *x.shape[1:]), dtype=torch.uint8, device=machine.torch_device) for x in case.tensors]

    def read() -> None:
        reader.read(places, outs)

    sync(places)
    read()
    graph = machine.recorded(read)
    for first in (0, 40, 0):
        for array, tensors in zip(arrays, case.tensors, strict=True):
            array[:20] = tensors[first : first + 20]
        if sync(places):
            graph = machine.recorded(read)
        graph()
        for out, tensors in zip(outs, case.tensors, strict=True):
            _require_equal(out.cpu().numpy(), tensors[first : first + 20])
    reader.check()


def _converted(x: Array, dtype: str, scale: float) -> Array:
    values = x.astype(np.float32) * np.float32(scale)
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)  # to nearest even; there is no NaN


def _shifted(x: Array, shifts: Array, axes: tuple[int, int]) -> Array:
    """Items ``[n, ...]`` shifted along two axes, their border repeated."""
    shifted = []
    for item, (down, right) in zip(x, shifts, strict=True):
        for axis, by in zip(axes, (down, right), strict=True):
            size = item.shape[axis]
            item = np.take(item, np.clip(np.arange(size) + by, 0, size - 1), axis)
        shifted.append(item)
    return np.stack(shifted)


def _require_equal(found: Array, expected: Array) -> None:
    if found.tobytes() != expected.tobytes():
        wrong = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a.tobytes() != b.tobytes()]
        raise AssertionError(f"items {wrong[:10]} of {len(expected)} differ")
