"""What the kernels know of a store, made by hand of a store on the CPU."""

import numpy as np
from obscodec import CorruptStream, FrameStore, Layout
from obscodec_cupy.codecs.codec import check_failure
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device
from obscodec_cupy.frames.gather import Gather, Source

SCENE = Layout((24, 10), np.uint8)


def scenes(n: int, n_languages: int) -> np.ndarray:
    """Four frames of each scene: of words of a language, one of which changes from one frame to the next.

    LZ4 compresses their patches well behind a dictionary, until they are of another language.
    """
    rng = np.random.default_rng(n)
    words = rng.integers(0, 256, (n_languages, 12, 10), np.uint8)
    which = np.repeat(rng.integers(12, size=(n, 1, 24)), 4, axis=1)
    for i in range(1, 4):
        which[np.arange(n), i:, rng.integers(24, size=n)] = rng.integers(12, size=(n, 1))
    return words[np.arange(n)[:, None, None] % n_languages, which].reshape(4 * n, *SCENE.shape)


def addressed(device: Device, streams: list[bytes]) -> tuple[DeviceArray, np.ndarray]:
    """Streams one behind the other on the device, at all alignments; and the address and the bytes of each."""
    gaps = np.random.default_rng(len(streams)).integers(0, 17, len(streams))
    lengths = np.array([len(stream) for stream in streams], np.int64)
    offsets = np.cumsum(lengths + gaps) - lengths
    host = np.full(int((lengths + gaps).sum()) + 1, 0xEE, np.uint8)
    for offset, stream in zip(offsets.tolist(), streams, strict=True):
        host[offset : offset + len(stream)] = np.frombuffer(stream, np.uint8)
    memory = device.upload(host)
    addresses = np.where(lengths > 0, offsets + device.address(memory), 0)
    return memory, np.stack([addresses, lengths], 1).astype(np.uint64)


def launch(gather: Gather, *arguments: object, **named: object) -> None:
    """Queue what a gather has prepared, while its arrays are still held."""
    gather.prepared(*arguments, **named)()


class DeviceTables:
    """The tables of a store on a device.

    Args:
        store: on the CPU; later changes are not seen.
        streams: of the blocks, in place of those of the store.

    Attributes:
        words: ``u64[16]``, the header.
        header: the same on the device.
    """

    def __init__(self, device: Device, store: FrameStore, streams: list[bytes] | None = None) -> None:
        self.device = device
        blocks = store.log
        if streams is None:
            live = np.flatnonzero(blocks.tables.live[: blocks.n] > 0)
            streams = [b""] * blocks.n
            for number, stream in zip(live.tolist(), blocks.heap.locate(live), strict=True):
                streams[number] = bytes(stream) or bytes(blocks.open.content(number))
        self.streams = streams
        self._memory, table = addressed(device, streams)
        self._blocks = device.upload(table)
        previous = blocks.tables.previous[: blocks.n * blocks.block_frames]
        self._previous = device.upload(previous)
        listed = blocks.stacks.frames
        self._listed = device.upload(np.concatenate([listed, np.full((1, listed.shape[1]), -1, np.int32)]))
        references = blocks.open.reference_frames[: blocks.open.n_reference_frames]
        self._references = device.upload(references)
        self._failure = device.pinned(16).view(np.uint64)
        self._failure[:] = 0
        self.words = np.zeros(16, np.uint64)
        tables = [(self._blocks, len(table)), (self._previous, len(previous)), (self._listed, len(listed))]
        for i, (array, n) in enumerate([*tables, (self._references, len(references))]):
            self.words[2 * i : 2 * i + 2] = device.address(array), n
        self.words[8] = self._failure.ctypes.data
        versions = dict(blocks.coder.versions.by_version) if blocks.coder.versions else {}
        self._dictionaries, rows = [], np.zeros((1 + max(versions, default=0), 2), np.uint64)
        for version, codec in versions.items():
            memory = device.upload(np.frombuffer(codec.dictionary + b"\0", np.uint8))  # which is never empty
            rows[version] = device.address(memory) + len(codec.dictionary), len(codec.dictionary)
            self._dictionaries.append(memory)
        self._versions = device.upload(rows)
        self.words[9:11] = device.address(self._versions), len(rows)
        self.header = device.upload(self.words)

    def check(self) -> None:
        self.device.synchronize()
        word = int(self._failure[0])
        self._failure[:] = 0
        check_failure(word)

    def found_wrong(self) -> str:
        """What is wrong with block 1, empty if nothing is."""
        try:
            self.check()
        except CorruptStream as error:
            return str(error).removeprefix("block 1 can't be decoded: ")
        return ""


def gathered(
    device: Device,
    store: FrameStore,
    fields: list[np.ndarray],
    places: np.ndarray | None = None,
    *,
    dtype: str | None = None,
    shifts: np.ndarray | None = None,
    tables: DeviceTables | None = None,
    **options: object,
) -> list[np.ndarray]:
    """What is read of a store for the ids of one or two fields, at some places or all; bfloat16 as uint16."""
    spec, tables = store.log.coder.spec, tables or DeviceTables(device, store)
    options |= {"frame_stack": store.frame_stack, "codec": spec, "dtype": dtype}
    gather = Gather(device, store.layout, store.log.block_frames, **options)
    n, kind = len(fields[0] if places is None else places), "u2" if dtype == "bfloat16" else dtype or store.layout.dtype
    outs = [device.empty((n, *store.layout.shape), kind) for _ in fields]
    by = [None] * len(fields) if shifts is None else [device.upload(of) for of in shifts]
    ids = [device.upload(of.astype(np.int32)) for of in fields]
    at = None if places is None else device.upload(places.astype(np.int64))
    scratch = device.empty((gather.scratch_nbytes(n),), np.uint8)
    launch(gather, tables.header, n, [Source(*of) for of in zip(ids, outs, by, strict=True)], at, scratch)
    tables.check()
    return [device.download(out) for out in outs]


def appended(store: FrameStore, rows: np.ndarray) -> np.ndarray:
    """The ids of rows that are appended block by block; each block is stored before the next one comes."""
    ids = []
    for begin in range(0, len(rows), store.block_frames):
        ids.append(store.append(rows[begin : begin + store.block_frames]))
        store.stats()
    return np.concatenate(ids)
