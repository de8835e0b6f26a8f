"""Blocks that LZ4 has compressed: the gather decodes those of each version, and says of bad ones what the CPU says."""

import itertools
import os
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from lz4_streams import compressed, long, made_up
from mirrors import SCENE, DeviceTables, appended, gathered, launch, scenes
from obscodec import CorruptStream, FrameStore, Layout, SlotError, codec
from obscodec.frames import trained_codecs
from obscodec.frames.block_coder import Wanted
from obscodec.segments import Segments, joined
from obscodec.varint import encode_varint
from obscodec_cupy.device.device import Device
from obscodec_cupy.frames import gather as gathers
from obscodec_cupy.frames.gather import Gather, Source
from side_by_side import GUARD, fenced

SPECS = ["delta-rle|lz4", "delta-rle|lz4:9", "delta-rle|lz4:-3"]
N_STREAMS = int(os.environ.get("HOSTILE_CASES", "2000")) // 20
BAD = "it is no LZ4 block of as many bytes as it says"
VERSION = "it is of a version that this store does not have"


@pytest.mark.parametrize("spec", SPECS)
def test_blocks_of_all_versions_in_one_batch(device: Device, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two dictionaries or none, those that are not compressed, and one that is open."""
    monkeypatch.setattr(trained_codecs, "_N_SAMPLES", 16)
    monkeypatch.setattr(trained_codecs, "_MIN_GAIN", 9)
    noise = np.random.default_rng(0).integers(256, size=(8, 24, 10), dtype=np.uint8)
    rows = np.concatenate([scenes(60, 1), noise, scenes(90, 90)])
    store = FrameStore(SCENE, block_frames=4, codec=spec)
    ids = appended(store, rows)
    versions = store.log.tables.versions[ids // 4]
    assert set(versions.tolist()) == {0, 1, 2, 3}
    assert [len(codec.dictionary) > 0 for codec in store.log.coder.versions.by_version.values()] == [False, True, True]
    assert store.log.open.blocks.tolist() == [ids[-1] // 4]
    order = np.random.default_rng(1).permutation(len(rows))
    np.testing.assert_array_equal(gathered(device, store, [ids[order]])[0], rows[order])


def large_steps(n: int) -> np.ndarray:
    """Frames with patches that are as large as they are, and repeat themselves."""
    pattern = np.random.default_rng(0).integers(256, size=500, dtype=np.uint8)
    return np.stack([np.roll(np.tile(pattern, 20), 7 * i) for i in range(n)])


def test_patches_that_do_not_fit_into_shared_memory(device: Device) -> None:
    rows = large_steps(40)
    store = FrameStore(Layout((10_000,), np.uint8), codec="delta-rle|lz4")
    ids = appended(store, rows)
    assert (store.log.tables.versions[ids[:32] // 16] == 1).all()
    np.testing.assert_array_equal(gathered(device, store, [ids[::-1]])[0], rows[::-1])


@pytest.mark.parametrize("shared_kib", [99, 0])
def test_samples_whose_rooms_are_too_large_together(device: Device, shared_kib: int, monkeypatch) -> None:
    """They are read in several launches, one after the other in the same rooms."""
    rows = large_steps(40)
    store = FrameStore(Layout((10_000,), np.uint8), codec="delta-rle|lz4")
    ids = store.append(rows)
    monkeypatch.setattr(device, "shared_nbytes", shared_kib << 10)
    each = Gather(device, store.layout, 16, codec="delta-rle|lz4").scratch_nbytes(1)
    for most in (0, 3 * each):
        monkeypatch.setattr(gathers, "_MOST_SCRATCH_NBYTES", most)
        assert Gather(device, store.layout, 16, codec="delta-rle|lz4").scratch_nbytes(40) == max(most, each)
        np.testing.assert_array_equal(gathered(device, store, [ids])[0], rows)
        with pytest.raises(SlotError, match=r"^sample 30 of a batch asks for"):
            gathered(device, store, [np.append(ids[:30], 5000)])


class Reader:
    """Reads the frame of a block that may be anything.

    Args:
        row: a frame that the store has.
        dictionary: of version 2; version 1 has none.
    """

    def __init__(self, device: Device, row: np.ndarray, dictionary: bytes) -> None:
        self.device, self.layout = device, Layout.of(row)
        self.store = FrameStore(self.layout, block_frames=1, codec="delta-rle|lz4")
        self.id = int(self.store.append(row[None])[0])
        self.coder = self.store.log.coder
        codecs = self.coder.versions.by_version
        codecs[2] = codecs[1].with_dictionary(dictionary)
        self.mirror = DeviceTables(device, self.store)
        self.gather = Gather(device, self.layout, 1, codec="delta-rle|lz4")

    def on_device(self, block: bytes) -> tuple[str, bytes]:
        """What is wrong, empty if nothing is; and the frame."""
        device = self.device
        placed = fenced(device, np.frombuffer(block, np.uint8))
        blocks = device.upload(np.array([[0, 0], [device.address(placed), len(block)]], np.uint64))
        header = self.mirror.words.copy()
        header[:2] = device.address(blocks), 2
        out = fenced(device, np.full(self.layout.nbytes, GUARD, np.uint8))
        scratch = device.upload(np.full(self.gather.scratch_nbytes(1), GUARD, np.uint8))
        source = Source(device.upload(np.array([self.id], np.int32)), out.reshape((1, -1)))
        launch(self.gather, device.upload(header), 1, [source], None, scratch)
        return self.mirror.found_wrong(), device.download(out).tobytes()

    def on_cpu(self, block: bytes) -> tuple[str, bytes]:
        row = np.zeros((1, self.layout.nbytes), np.uint8)
        wanted = Wanted(np.array([0, 1]), np.zeros(1, np.int64), np.zeros(1, np.int64), row)
        try:
            self.coder.read_range(Segments.of([block]), wanted, self.store.log.open.reference_frames[:2])
        except CorruptStream as error:
            return str(error), bytes(self.layout.nbytes)
        return "", row.tobytes()

    def compare(self, block: bytes) -> str:
        """What is wrong."""
        found = self.on_device(block)
        assert found == self.on_cpu(block), block.hex(" ")
        return found[0]


def one_run(append: Callable[[bytes, int], tuple[bytes, int]], n_repeated: int) -> bytes:
    """What is behind the version of a block: patches whose literals are all that a stream holds.

    It begins by repeating a byte; ``append`` gets that, and how many bytes it holds, and returns the same of it all.
    """
    length_nbytes = 2 if n_repeated < 16_384 else 3
    n = 4 + length_nbytes
    begin = bytes([n << 4 | 15, 0, n - 2, 1, 0]) + bytes(length_nbytes) + b"\1\0" + long(n_repeated - 4)
    stream, nbytes = append(begin, n + n_repeated)
    length = encode_varint(max(128, nbytes - n))[:length_nbytes]  # of the run, which begins at the first byte
    return encode_varint(nbytes) + stream[:5] + length + stream[5 + length_nbytes :]


# The frames are larger than what the streams hold; more than 16 KiB of patches are decoded into a room.
@pytest.mark.parametrize(("nbytes", "n_repeated"), [(15_900, 125), (15_900, 8000), (40_000, 16_500)])
@pytest.mark.parametrize("dictionary_nbytes", [0, 1, 30, 1 << 16])
def test_streams_that_are_made_up(device: Device, nbytes: int, n_repeated: int, dictionary_nbytes: int) -> None:
    rng = np.random.default_rng([n_repeated, dictionary_nbytes])
    reader = Reader(device, np.ones(nbytes, np.uint8), rng.bytes(dictionary_nbytes))
    wrong = [reader.compare(b"\2" + one_run(partial(made_up, rng), n_repeated)) for _ in range(N_STREAMS)]
    assert wrong.count("") > N_STREAMS // 20
    assert wrong.count(BAD) > N_STREAMS // 5


def last_match(
    n_literals: int, n_match: int, offset: int, n_last: int, stream: bytes, nbytes: int
) -> tuple[bytes, int]:
    """A stream that goes on with a match, and ends with some literals."""
    stream += bytes([min(n_literals, 15) << 4 | min(n_match - 4, 15)]) + long(n_literals) + bytes(range(n_literals))
    stream += offset.to_bytes(2, "little") + long(n_match - 4) + bytes([n_last << 4]) + bytes(range(50, 50 + n_last))
    return stream, nbytes + n_literals + n_match + n_last


@pytest.mark.parametrize("n_literals", [0, 5, 13, 14, 15])
def test_a_match_close_to_the_ends_of_stream_and_output(device: Device, n_literals: int) -> None:
    """It may reach into the dictionary; 136 bytes and the literals are before it."""
    reader, read = Reader(device, np.ones(400, np.uint8), bytes(range(30))), set()
    for last in itertools.product([4, 17, 18, 19, 30], [1, 7, 8, 9, 140, 160], range(7)):
        if reader.compare(b"\2" + one_run(partial(last_match, n_literals, *last), 130)) == "":
            read.add(last)
    assert set(itertools.product([18, 30], [1, 160], [5])) <= read
    assert ((18, 8, 0) in read) == (n_literals == 14)


@pytest.mark.parametrize("n_literals", [16_500, 20_000, 45_000])
def test_more_literals_than_the_stream_or_the_room_has(device: Device, n_literals: int) -> None:
    """In streams that are too long for shared memory, so that no access outside of them goes unnoticed."""
    reader = Reader(device, np.ones(40_000, np.uint8), b"")
    for n_there, nbytes in itertools.product(
        [16_400, n_literals - 1, n_literals], [16_400, n_literals - 1, n_literals]
    ):
        block = b"\1" + encode_varint(min(nbytes, 40_000)) + b"\xf0" + long(n_literals) + bytes(n_there)
        assert (reader.compare(block) == BAD) == (n_there < n_literals or min(nbytes, 40_000) < n_literals)


@pytest.mark.parametrize("dictionary_nbytes", [0, 30, 1000, 1 << 16])
def test_streams_of_liblz4_that_are_damaged(device: Device, dictionary_nbytes: int) -> None:
    """They hold no patches, but are told from what is no LZ4 block."""
    rng = np.random.default_rng(dictionary_nbytes)
    dictionary = rng.bytes(dictionary_nbytes)
    reader, wrong = Reader(device, np.ones(500, np.uint8), dictionary), []
    for _ in range(N_STREAMS):
        stream, nbytes = compressed(rng, dictionary)
        wrong.append(reader.compare(b"\2" + encode_varint(nbytes) + stream))
    assert 0 < wrong.count(BAD) < N_STREAMS


def test_every_prefix_and_every_byte_changed(device: Device) -> None:
    row = np.tile(np.arange(100, dtype=np.uint8), 3)
    row[[7, 50, 51, 250]] = 9
    reader = Reader(device, row, bytes(range(100)))
    plain = np.frombuffer(reader.mirror.streams[reader.id], np.uint8)[1:]
    block = joined(encode_varint(2), reader.coder.compress(reader.coder.versions.by_version[2], plain).data).tobytes()
    assert len(block) < 60
    assert reader.compare(block) == ""
    assert not any(reader.compare(block[:end]) == "" for end in range(1, len(block)))
    assert reader.compare(block + b"\0") == BAD
    for at in range(len(block)):
        for byte in {0, 1, 2, 15, 16, 127, 128, 255, block[at] ^ 1, block[at] ^ 128}:
            reader.compare(block[:at] + bytes([byte]) + block[at + 1 :])


@pytest.mark.parametrize(("block", "wrong"), [
    (b"\x80", "it ends inside a varint"),
    (b"\x80\x00", "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\x00", "it ends inside a varint"),
    (b"\x00\x00\x01\x00", ""),
    (b"\x01", "it ends inside a varint"),
    (b"\x01\x85", "it ends inside a varint"),
    (b"\x01\x85\x00", "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\x03\x03\x30\0\1\0", VERSION),
    (encode_varint(2**40), VERSION),
    (encode_varint(2**63 - 1), VERSION),
    (b"\x01\x03\x30\0\1\0", ""),
    (b"\x01\x03\x30\0\1", BAD),
    (b"\x01\x00", BAD),
    (b"\x01\x00\x00", "it ends inside a varint"),
    (b"\x01\x04\x30\0\1\0", BAD),
    (b"\x01\x02\x30\0\1\0", BAD),
    (b"\x01" + encode_varint(2**32 + 3) + b"\x30\0\1\0", "its patches have more bytes than is possible"),
])  # fmt: skip
def test_what_is_before_the_stream(device: Device, block: bytes, wrong: str) -> None:
    assert Reader(device, np.ones(50, np.uint8), b"").compare(block) == wrong


def test_a_version_that_no_block_needed_any_more(device: Device) -> None:
    reader = Reader(device, np.ones(50, np.uint8), b"")
    del reader.coder.versions.by_version[1]
    reader.mirror = DeviceTables(device, reader.store)
    assert reader.compare(b"\2\3\x30\0\1\0") == ""
    assert reader.compare(b"\1\3\x30\0\1\0") == VERSION


def test_the_most_bytes_that_patches_can_have(device: Device) -> None:
    reader = Reader(device, np.ones(50, np.uint8), b"")
    most = codec("delta-rle", Layout((1, 50), np.uint8)).read_bound()
    for nbytes in (most - 1, most, most + 1):
        stream = b"\xf0" + long(nbytes) + b"\0\1" + bytes(nbytes - 2)
        wrong = "its patches have more bytes than is possible" if nbytes > most else ""
        assert reader.compare(b"\1" + encode_varint(nbytes) + stream) == wrong
