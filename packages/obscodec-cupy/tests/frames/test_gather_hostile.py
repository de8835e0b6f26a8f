"""Stored blocks that are truncated, altered or noise: the gather says what the CPU says, and stays in its memory."""

from collections.abc import Iterator

import numpy as np
import pytest
from atari_frames import frames
from cuda_on_cpu.build import forget
from cuda_on_cpu.device import SimulatedDevice
from mirrors import DeviceTables, launch
from obscodec import CorruptStream, FrameStack, FrameStore, Layout, SlotError
from obscodec.segments import Segments
from obscodec.statuses import check
from obscodec.streams import frame_scratch, read_blocks
from obscodec.varint import encode_varint
from obscodec_cupy.device import sources
from obscodec_cupy.device.device import Device
from obscodec_cupy.frames.gather import Gather, Source
from side_by_side import GUARD, GUARD_NBYTES, fenced

N_FRAMES = 6  # of a block
WANTED = [0, 3, 3, 5]  # what the stack is made of


class Reader:
    """Reads a stack of frames of one block, in whose place any bytes can be."""

    def __init__(self, device: Device, rows: np.ndarray, codec: str = "delta-rle") -> None:
        self.device = device
        self.layout = Layout.of(rows[0])
        self.store = FrameStore(self.layout, block_frames=N_FRAMES, codec=codec)
        assert len(set(self.store.append(rows).tolist())) == N_FRAMES
        self.stream = DeviceTables(device, self.store).streams[1]
        stack = Layout((len(WANTED), *self.layout.shape), self.layout.dtype)
        self.gather = Gather(device, stack, N_FRAMES, frame_stack=FrameStack(len(WANTED)), codec=codec)
        self.references = self.store.log.open.reference_frames[: self.store.log.open.n_reference_frames]

    def on_device(self, stream: bytes) -> tuple[str, np.ndarray]:
        """What is wrong, empty if nothing is; and the frames."""
        device, nbytes = self.device, self.layout.nbytes
        mirror = DeviceTables(device, self.store, [b"", stream, b"", b""])
        placed = fenced(device, np.frombuffer(stream, np.uint8))
        ids = device.upload(np.array([-1], np.int32))
        listed = device.upload(np.array([WANTED], np.int32) + N_FRAMES)
        blocks = device.upload(np.array([[0, 0], [device.address(placed), len(stream)]], np.uint64))
        header = mirror.words.copy()
        header[[0, 1, 4, 5]] = device.address(blocks), 2, device.address(listed), 1
        memory = fenced(device, np.full(GUARD_NBYTES + len(WANTED) * nbytes, GUARD, np.uint8))
        out = memory[GUARD_NBYTES:].reshape((1, len(WANTED), *self.layout.shape))
        scratch = fenced(device, np.zeros(self.gather.scratch_nbytes(1), np.uint8))
        launch(self.gather, device.upload(header), 1, [Source(ids, out)], None, scratch)
        wrong = mirror.found_wrong()
        guarded = device.download(memory)
        assert (guarded[:GUARD_NBYTES] == GUARD).all()
        return wrong, guarded[GUARD_NBYTES:].reshape(len(WANTED), nbytes)

    def on_cpu(self, stream: bytes, place: int) -> tuple[str, np.ndarray]:
        """The same for one frame."""
        memory, row = np.frombuffer(stream, np.uint8), np.zeros((1, self.layout.nbytes), np.uint8)
        one = np.array([0, 1]), np.array([place]), np.zeros(1, np.int64), row
        try:
            where, scratch = (
                (np.array([memory.ctypes.data]), np.array([len(stream)])),
                frame_scratch(self.references.shape[1]),
            )
            check(read_blocks(*one, *where, self.references, -1, np.zeros((1, 3), np.int64), scratch))
        except CorruptStream as error:
            return str(error), np.zeros_like(row[0])
        return "", row[0]

    def compare(self, stream: bytes) -> bool:
        """Whether all frames can be read. Those before the damage must be right, those behind it zeros."""
        wrong, found = self.on_device(stream)
        expected = [self.on_cpu(stream, place) for place in WANTED]
        assert wrong == expected[-1][0], stream.hex(" ")
        np.testing.assert_array_equal(found, [frame for _, frame in expected], stream.hex(" "))
        return wrong == ""


def small_frames() -> np.ndarray:
    changed = np.random.default_rng(0).random((N_FRAMES, 30)) < 0.15
    changed[:, 7] = True
    return np.cumsum(changed, axis=0, dtype=np.uint8)


def test_every_prefix_and_every_byte_changed(device: Device) -> None:
    reader = Reader(device, small_frames())
    stream = reader.stream
    assert reader.compare(stream)
    assert not any(reader.compare(stream[:end]) for end in range(1, len(stream)))
    assert reader.compare(stream + b"\0")  # bytes that no wanted frame needs are not noticed
    for at in range(len(stream)):
        for byte in {0, 1, 2, 127, 128, 255, stream[at] ^ 1, stream[at] ^ 128}:
            reader.compare(stream[:at] + bytes([byte]) + stream[at + 1 :])


def without_patches(rows: np.ndarray) -> bytes:
    return bytes([0, 127]) + rows.tobytes()


def test_blocks_without_patches(device: Device) -> None:
    """Of any length, and with wanted frames that lie in the bytes that are there."""
    reader = Reader(device, small_frames())
    stream = without_patches(small_frames())
    assert reader.compare(stream)
    assert reader.compare(stream + b"\0")
    assert not any(reader.compare(stream[:end]) for end in range(1, len(stream)))


@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|lz4"])
@pytest.mark.parametrize("shared_kib", [227, 0])
def test_large_blocks_without_patches(
    device: Device, codec: str, shared_kib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than what is staged; the frame is in shared memory, or in a scratch."""
    monkeypatch.setattr(device, "shared_nbytes", shared_kib << 10)
    rows = real_frames()
    reader = Reader(device, rows, codec)
    stream = without_patches(rows)
    assert reader.compare(stream)
    assert not reader.compare(stream[:-1])


def real_frames() -> np.ndarray:
    played = frames("MsPacman", 80, 0)
    changed = np.flatnonzero((played[1:] != played[:-1]).any((1, 2)))
    return played[changed[-N_FRAMES:]]


@pytest.mark.parametrize("shared_kib", [227, 99, 48, 0])
def test_real_blocks_that_are_altered(device: Device, shared_kib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "shared_nbytes", shared_kib << 10)
    reader = Reader(device, real_frames())
    assert (reader.gather.scratch_nbytes(1) == 0) == (shared_kib > 0)
    compare_altered(reader)


def compare_altered(reader: Reader) -> None:
    rng = np.random.default_rng(0)
    n_read = 0
    for _ in range(80):
        stream = bytearray(reader.stream)
        for at in rng.integers(len(stream), size=rng.integers(1, 4)):
            stream[at] = rng.integers(256) if rng.random() < 0.5 else stream[at] ^ 1 << rng.integers(8)
        cut = int(rng.integers(len(stream))) if rng.random() < 0.2 else len(stream)
        n_read += reader.compare(bytes(stream[:cut]) or b"\0")
    assert 0 < n_read < 80


class Changed:
    """A change of the kernels' source."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, name: str, line: str, change: str) -> None:
        read = sources.read
        assert read(name).count(line) == 1
        self._monkeypatch.setattr(
            sources, "read", lambda other: read(other).replace(line, change) if other == name else read(other)
        )
        forget()


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Changed]:
    with monkeypatch.context() as patched:
        yield Changed(patched)
    forget()


def test_frames_that_are_read_run_by_run_are_the_same(changed: Changed) -> None:
    changed("patches.cuh", "if (next_of_tile(patches, frame)) {", "if (false) {")
    reader = Reader(SimulatedDevice(seed=1), real_frames())
    assert reader.compare(reader.stream)
    compare_altered(reader)


def test_only_what_is_unusual_is_read_run_by_run(changed: Changed) -> None:
    changed("patches.cuh", "if ((code = next_by_runs(patches, frame)) != OK) return code;", "return BAD_ID;")
    device = SimulatedDevice(seed=1)
    reader = Reader(device, real_frames())
    assert reader.compare(reader.stream)
    dense = np.zeros((N_FRAMES, 84, 84), np.uint8)
    dense[:, :, ::5] = np.arange(1, N_FRAMES + 1)[:, None, None]
    reader = Reader(device, dense)
    assert reader.compare(reader.stream)
    with pytest.raises(SlotError):
        reader.on_device(reader.stream[:2] + b"\1\x80" + reader.stream[4:])


def test_more_counts_than_a_tile_holds(device: Device) -> None:
    """Frames that change nothing, thousands in a block, and after them one that changes a byte."""
    n, layout = 5000, Layout((30,), np.uint8)
    store = FrameStore(layout, block_frames=n)
    store.append(np.ones((1, 30), np.uint8))
    stream = b"\0\0" + encode_varint(n + 2) + bytes(n - 1) + b"\1\4\1" + b"\7"
    mirror, out = DeviceTables(device, store, [b"", stream]), device.empty((2, 30), np.uint8)
    ids = device.upload(np.array([2 * n - 1, 2 * n - 2], np.int32))
    launch(Gather(device, layout, n), mirror.header, 2, [Source(ids, out)])
    mirror.check()
    np.testing.assert_array_equal(device.download(out), [np.eye(1, 30, 4, np.uint8)[0] * 7, np.zeros(30, np.uint8)])


def test_a_stack_of_frames_of_bad_blocks(device: Device) -> None:
    """Each block is bad in its own way, and the damage of one does not reach the next."""
    rows = small_frames()
    store = FrameStore(Layout.of(rows[0]), block_frames=1)
    ids = store.append(rows)
    good = DeviceTables(device, store).streams
    bad = [b"\1", b"\0\x80", b"\0\1\xff\1", b"\0\0\1\1", good[5][:-1]]
    mirror = DeviceTables(device, store, [b"", *bad, good[6]])
    stack = device.upload(np.append(ids, ids[5]).astype(np.int32).reshape(1, 7))
    header = mirror.words.copy()
    header[4:6] = device.address(stack), 1
    out = device.empty((1, 7, 30), np.uint8)
    gather = Gather(device, Layout((7, 30), np.uint8), 1, frame_stack=FrameStack(7))
    launch(gather, device.upload(header), 1, [Source(device.upload(np.array([-1], np.int32)), out)])
    with pytest.raises(CorruptStream) as caught:
        mirror.check()
    assert str(caught.value) == "block 1 can't be decoded: it is of a version that this store does not have"
    np.testing.assert_array_equal(device.download(out)[0], [*np.zeros((5, 30)), rows[5], rows[5]])


@pytest.mark.parametrize("noise", range(8))
def test_noise(device: Device, noise: int) -> None:
    """Small values, so that it has a chance to look like runs."""
    reader, rng = Reader(device, small_frames()), np.random.default_rng(noise)
    for _ in range(20):
        body = rng.integers(0, 256, rng.integers(1, 3000)) >> noise
        reader.compare(b"\0\0" + body.astype(np.uint8).tobytes())


def test_a_plain_block_that_is_too_short_or_of_another_version(device: Device) -> None:
    reader = Reader(device, small_frames(), codec="raw")
    rows = small_frames()[WANTED]
    wrong, found = reader.on_device(reader.stream)
    assert wrong == ""
    np.testing.assert_array_equal(found, rows)
    for nbytes in (1, 29, 31, 120, 121, 150, 180):
        wrong, found = reader.on_device(reader.stream[:nbytes])
        assert wrong == "it has fewer frames than are wanted of it"
        n_good = (np.array(WANTED) * 30 + 31 <= nbytes).sum()
        np.testing.assert_array_equal(found[:n_good], rows[:n_good])
        assert not found[n_good:].any()
    wrong, found = reader.on_device(b"\1" + reader.stream[1:])
    assert wrong == "it is of a version that this store does not have"
    assert not found.any()


def test_blocks_of_rle_that_are_altered(device: Device) -> None:
    """One frame of 40 numbers of two bytes; what is wrong is what the CPU says."""
    layout = Layout((40,), np.uint16)
    store = FrameStore(layout, codec="rle", block_frames=1)
    first, _ = store.append(
        np.repeat(np.arange(20, dtype=np.uint16), [1, 3] * 10)[None] * np.array([[300], [77]], "u2")
    )
    store.stats()  # which stores full blocks
    stream = DeviceTables(device, store).streams[1]
    assert stream[0] == 1
    gather = Gather(device, layout, 1, codec="rle")

    def on_device(block: bytes) -> tuple[str, np.ndarray]:
        mirror = DeviceTables(device, store, [b"", block])
        out = device.upload(np.full((1, 40), GUARD, np.uint16))
        launch(gather, mirror.header, 1, [Source(device.upload(np.array([first], np.int32)), out)])
        return mirror.found_wrong(), device.download(out)

    def on_cpu(block: bytes) -> tuple[str, np.ndarray]:
        store.log.heap.put([1], Segments.of([block]))
        try:
            return "", store.read([first])
        except CorruptStream as error:
            return str(error).rpartition(": ")[2], np.zeros((1, 40), np.uint16)

    def compare(block: bytes) -> bool:
        (wrong, found), (expected_wrong, expected) = on_device(block), on_cpu(block)
        assert wrong == expected_wrong, block.hex(" ")
        np.testing.assert_array_equal(found, expected, block.hex(" "))
        return wrong == ""

    assert compare(stream)
    assert not any(compare(stream[:end]) for end in range(2, len(stream)))
    assert not compare(stream + b"\0")
    for at in range(1, len(stream)):
        for byte in {0, 1, 2, 127, 128, 255, stream[at] ^ 1, stream[at] ^ 128}:
            compare(stream[:at] + bytes([byte]) + stream[at + 1 :])
    without_runs = b"\1\0" + store.layout.rows(on_cpu(stream)[1]).tobytes()
    assert compare(without_runs)
    assert not any(compare(without_runs[:end]) for end in range(2, len(without_runs)))
    assert not compare(without_runs + b"\0")
    plain = b"\0" + store.layout.rows(on_cpu(stream)[1]).tobytes()
    assert compare(plain)
    assert on_device(plain[:-1])[0] == "it has fewer frames than are wanted of it"
    assert on_device(b"\2" + stream[1:])[0] == "it is of a version that this store does not have"
