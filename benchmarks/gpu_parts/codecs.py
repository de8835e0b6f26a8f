"""The codecs write the bytes of the CPU, and each side decodes them, for several layouts and contents."""

from collections.abc import Iterator

import numpy as np
from obscodec import Layout, codec

from gpu_parts.frames import played
from gpu_parts.machine import Array, Machine
from gpu_parts.record import Record

_SPECS = ("rle", "delta-rle")
_LAYOUTS = [
    *(((84, 84), "uint8"), ((4, 84, 84), "uint8"), ((16, 84, 84), "uint8"), ((3, 210, 160), "uint8")),
    *(
        ((1,), "uint8"),
        ((7, 5), "uint16"),
        ((17,), "float32"),
        ((5, 6), "bool"),
        ((9, 4), "float64"),
        ((3,), "complex64"),
    ),
]
_TINY = [((4, 8, 9), "uint8"), ((17,), "float32")]


def run(machine: Machine, record: Record) -> None:
    """A check for each codec, layout and content."""
    for shape, dtype in _TINY if machine.sizes.tiny else _LAYOUTS:
        layout = Layout(shape, dtype)
        for name, items in _contents(layout, machine.sizes.tiny):
            for spec in _SPECS:
                with record.check(f"{spec} of {dtype}{list(shape)}, {name}"):
                    _compare(machine, spec, layout, items)


def _contents(layout: Layout, tiny: bool) -> Iterator[tuple[str, Array]]:
    """Items ``[n, *shape]`` by name."""
    n, rng = 3 if tiny else 40, np.random.default_rng(0)
    shape = (n, layout.nbytes)
    walk = np.cumsum(rng.random(shape) < 0.02, axis=1).astype(np.uint8)
    walk[1:] = np.where(rng.random(shape)[1:] < 0.05, walk[1:] + 1, walk[:1])
    yield "few changes", _items(walk, layout)
    yield "noise", _items(rng.integers(0, 256, shape, np.uint8), layout)
    yield "all alike", _items(np.full(shape, 7, np.uint8), layout)
    if layout.shape[-2:] == (84, 84):
        frames = played(n * 16, tiny=False)[1]
        yield "frames of a game", np.ascontiguousarray(frames[: n * layout.nbytes // 7056].reshape(n, *layout.shape))


def _items(rows: Array, layout: Layout) -> Array:
    values = rows % 2 if layout.dtype == np.bool_ else rows
    return values.view(layout.dtype).reshape(len(rows), *layout.shape)


def _compare(machine: Machine, spec: str, layout: Layout, items: Array) -> None:
    on_cpu, on_gpu = codec(spec, layout), codec(spec, layout, device="cuda")
    expected = on_cpu.encode_batch(layout.rows(items), np.empty(len(items) * on_cpu.bound(), np.uint8))
    streams = on_gpu.encode_batch(machine.upload(items))
    found = streams.download()
    if [bytes(stream) for stream in found] != [bytes(stream) for stream in expected]:
        raise AssertionError("the GPU has written other bytes than the CPU")
    out = machine.empty(items.shape, items.dtype)
    on_gpu.decode_batch(streams, out).check()
    _require_equal("decoded on the GPU", machine.download(out), items)
    rows = np.zeros((len(items), layout.nbytes), np.uint8)
    on_cpu.decode_batch(found, rows)
    _require_equal("decoded on the CPU", rows.view(layout.dtype).reshape(items.shape), items)


def _require_equal(what: str, found: Array, expected: Array) -> None:
    if found.tobytes() != expected.tobytes():
        wrong = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a.tobytes() != b.tobytes()]
        raise AssertionError(f"{what}, items {wrong[:10]} of {len(expected)} differ")
