"""Targets that decode streams: of codecs, and of blocks in a FrameStore."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import numpy as np
from fenced import Fenced
from obscodec import CorruptStream, DictionaryMissing, FrameStore, Layout, streams
from obscodec import codec as new_codec
from obscodec.codecs import Codec
from obscodec.codecs.formats.lz4 import Lz4
from obscodec.errors import SpecError
from obscodec.frames import patch_coder
from obscodec.frames.block_coder import Wanted
from obscodec.segments import Segments
from obscodec.streams.blocks import NO_PATCHES
from obscodec.varint import decode_varint
from targets import READ, SKIPPED, Make, Target, outcome_of

MOST = 1 << 14  # bytes of an input, or of rows
_fenced_scratch: dict[int, np.ndarray] = {}
LAYOUTS = (
    Layout((300,), "|u1"), Layout((8, 40), "|u1"), Layout((5, 7), "<u2"), Layout((40, 3), "|b1"), Layout((6, 9), "<f4"),
    Layout((3, 11), "<i8"), Layout((0,), "|u1"), Layout((1,), "|u1"), Layout((), "<f8"), Layout((4, 700), "|u1"),
    Layout((2, 9, 11, 3), "|u1"), Layout((8, 8, 3), "|u1"), Layout((3, 16, 10), "|u1"), Layout((2, 9, 13), "<u2"),
)  # fmt: skip
SPECS = {
    "raw": ("raw",),
    "rle": ("rle",),
    "delta-rle": ("delta-rle",),
    "zstd": ("zstd:1", "zstd:19"),
    "lz4": ("lz4", "lz4:9"),
    "pred": ("pred",),
    "palette": ("palette",),
    "filters": (
        "shuffle|raw", "bitpack|raw", "delta|raw", "delta|rle", "shuffle|rle", "bitpack|delta-rle", "delta|shuffle|lz4",
        "lorenzo|raw", "lorenzo|shuffle|rle",
    ),
    "chains": (
        "rle|lz4", "rle|zstd:1", "delta-rle|lz4", "delta-rle|zstd:1", "rle|zstd:1|lz4",
        "shuffle|delta-rle|zstd:1|lz4", "raw|lz4|zstd:1", "delta|rle|lz4|zstd:1",
    ),
}  # fmt: skip
FITTED = ("zstd:1", "lz4", "pred", "palette", "delta-rle|zstd:1", "delta-rle|lz4", "shuffle|lz4", "shuffle|pred")


def items(layout: Layout, n: int, seed: int = 0) -> np.ndarray:
    """``[n, *shape]``: each as the one before it, but for some bytes."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.integers(256, size=(1, layout.nbytes), dtype=np.uint8) // 200, n, axis=0)
    for k in range(1, n):
        rows[k] = rows[k - 1]
        if layout.nbytes:
            begin = rng.integers(layout.nbytes)
            rows[k, begin : begin + rng.integers(9)] = rng.integers(2 if layout.dtype.kind == "b" else 256)
    return layout.tensors(rows)


def fence_scratch() -> None:
    """Have the kernels of this process work in scratch memory that is fenced, too."""

    def frame_scratch(nbytes: int) -> np.ndarray:
        if nbytes not in _fenced_scratch:
            n = original(nbytes).nbytes
            _fenced_scratch[nbytes] = Fenced(n).rows(1, n)[0]
        return _fenced_scratch[nbytes]

    def lz4_scratch(codec: Lz4, nbytes: int) -> tuple[np.ndarray, int, int, int]:
        n, dictionary = len(codec.dictionary), np.frombuffer(codec.dictionary, np.uint8)
        memory = Fenced(n + nbytes).rows(1, n + nbytes)[0]
        memory[:n] = dictionary
        return memory, memory.ctypes.data + n, n, nbytes

    original = streams.frame_scratch
    patch_coder.frame_scratch = frame_scratch
    import_module("obscodec.codecs.formats.delta_rle").frame_scratch = frame_scratch
    Lz4._new_scratch = lz4_scratch


def _codecs(specs: tuple[str, ...], *, fitted: bool) -> list[Codec]:
    codecs = []
    for spec in specs:
        for layout in LAYOUTS:
            try:
                made = new_codec(spec, layout)
            except (SpecError, TypeError, ValueError):  # a filter that does not take the layout
                continue
            if fitted and layout.nbytes > 100:
                made = made.fit(items(layout, 600))
            codecs.append(made)
    return codecs


class Decoding:
    """One stream of one codec of several; the first byte of an input says which."""

    def __init__(self, specs: tuple[str, ...], *, fitted: bool = False) -> None:
        self._codecs = _codecs(specs, fitted=fitted)
        self._source, self._target = Fenced(MOST), Fenced(MOST)

    def seeds(self) -> list[bytes]:
        """Streams of every codec."""
        made = []
        for at, codec in enumerate(self._codecs):
            for x in items(codec.layout, 6, seed=at)[::5]:
                made.append(bytes([at]) + codec.encode(x).stream.tobytes())
        return made

    def run(self, content: bytes) -> str:
        """Decode into fenced rows; a stream that is read decodes to the same bytes again."""
        if not content or len(content) > MOST:
            return SKIPPED
        which = content[0] % len(self._codecs)
        codec, stream = self._codecs[which], self._source.holding(content[1:])
        rows = self._target.rows(1, codec.layout.nbytes)
        said = READ
        try:
            codec.decode_batch(Segments.packed(stream, np.array([len(stream)])), rows)
        except (CorruptStream, DictionaryMissing) as error:
            said = outcome_of(error)
        self._target.check(rows)
        return f"{which} {said} {int(np.count_nonzero(rows != 0xA5)).bit_length()}" if said != READ else READ


@dataclass
class _Blocks:
    """A store, and what is read of it."""

    store: FrameStore
    ids: np.ndarray  # of the frames of the first full block
    frames: np.ndarray
    streams: list[bytes]


def _blocks(spec: str, layout: Layout) -> _Blocks:
    store, frames = FrameStore(layout, codec=spec, block_frames=4, threads=1), items(layout, 40)
    frames = frames[np.append(True, np.any(np.diff(frames.view(np.uint8).reshape(40, -1), axis=0), axis=1))]
    ids = store.append(frames)
    store.stats()
    versions = store.log.coder.versions
    if versions is not None:  # another version, with a dictionary
        samples = Layout((400,), "|u1") if store.log.coder.patches else versions.by_version[1].layout
        fitted = versions._fit(versions.by_version[1], list(samples.rows(items(samples, 600))))
        versions.by_version = {**versions.by_version, versions.newest + 1: fitted}
    streams = [stream.tobytes() for stream in store.log.heap.state()["streams"]]
    if store.log.coder.patches:  # a block without patches, which no store writes
        streams.insert(1, bytes([0, NO_PATCHES]) + frames[:4].tobytes())
    if versions is not None:
        for version, codec in list(versions.by_version.items()):
            for stream in streams[:2]:
                number, start = decode_varint(np.frombuffer(stream, np.uint8))
                if number == 0:
                    plain = np.frombuffer(stream, np.uint8)[start:]
                    try:
                        packed = store.log.coder.compress(codec, plain)
                    except (ValueError, TypeError):
                        continue
                    streams.append(bytes([version]) + bytes(packed))
    return _Blocks(store, ids[:4], frames[:4], streams)


class Blocks:
    """A stored block of a FrameStore.

    The first byte of an input says of which store, the second one which frames are read, and how: by the coder or by
    the store. The others are the block.
    """

    def __init__(self, specs: tuple[str, ...]) -> None:
        layouts = [Layout((8, 40), "|u1"), Layout((6, 9), "<f4"), Layout((70,), "|u1"), Layout((9, 11, 3), "|u1")]
        self._made = []
        for spec in specs:
            for layout in layouts:
                with suppress(SpecError):  # a codec that does not take the layout
                    self._made.append(_blocks(spec, layout))
        self._source, self._target = Fenced(MOST), Fenced(MOST)

    def seeds(self) -> list[bytes]:
        """Blocks of every store, read in all ways."""
        return [
            bytes([at, how]) + stream
            for at, made in enumerate(self._made)
            for stream in made.streams[:6]
            for how in (0x0F, 0x08, 0x8F)
        ]

    def run(self, content: bytes) -> str:
        """Read the block."""
        if len(content) < 3 or len(content) > MOST:
            return SKIPPED
        which, how = content[0] % len(self._made), content[1]
        made, places = self._made[which], np.flatnonzero([how >> k & 1 for k in range(4)])
        if not len(places):
            return SKIPPED
        block = self._source.holding(content[2:])
        rows = self._target.rows(len(places), made.store.layout.nbytes)
        try:
            if how & 0x80:
                made.store.log.heap.put(made.ids[:1] // made.store.block_frames, Segments.of([content[2:]]))
                made.store.read(made.ids[places])
            else:
                log = made.store.log
                wanted = Wanted(np.array([0, len(places)]), places, np.arange(len(places)), rows)
                blocks = Segments.packed(block, np.array([len(block)]))
                log.coder.read(blocks, wanted, log.open.reference_frames[: log.open.n_reference_frames], 1)
        except CorruptStream as error:
            self._target.check(rows)
            return f"{which} {how >> 7} {outcome_of(error)} {int(np.count_nonzero(rows != 0xA5)).bit_length()}"
        self._target.check(rows)
        return READ


def stream_targets() -> dict[str, Make]:
    """The targets of this file."""
    made: dict[str, Make] = {name: partial(_target, partial(Decoding, specs)) for name, specs in SPECS.items()}
    made["dictionaries"] = partial(_target, partial(Decoding, FITTED, fitted=True))
    blocks = {
        "blocks-of-patches": ("delta-rle",),
        "blocks-by-lz4": ("delta-rle|lz4", "lz4"),
        "blocks-by-others": ("delta-rle|zstd:1", "raw", "rle", "zstd:1", "delta-rle|lz4|zstd:1"),
        "blocks-of-images": ("pred", "palette"),
    }
    return made | {name: partial(_target, partial(Blocks, specs)) for name, specs in blocks.items()}


def _target(make: Callable[[], Decoding | Blocks]) -> Target:
    fence_scratch()
    of = make()
    return Target(of.seeds, of.run)
