"""The kernel that decodes LZ4 blocks: liblz4's verdicts and bytes, whatever a stream holds, within its memory."""

import os

import lz4.block
import numpy as np
import pytest
from fenced import fenced
from lz4_streams import LENGTHS, compressed, made_up
from obscodec import Layout, codec
from obscodec.statuses import BAD_LZ4, OK
from obscodec.streams.lz4 import N_HEADS, decode_lz4, encode_lz4, index_dictionary

N_STREAMS = int(os.environ.get("HOSTILE_CASES", "8000"))
MAX_NBYTES = 1 << 13
DICTIONARIES = (0, 1, 5, 30, 1000, 1 << 16)


class Kernel:
    """The kernel, in memory where it crashes if it reads or writes outside of what it was given."""

    def __init__(self, dictionary: bytes) -> None:
        self.dictionary = dictionary
        self._streams = fenced(MAX_NBYTES)
        n = len(dictionary) + MAX_NBYTES
        self._rooms = [fenced(n), fenced(n, before=True)]

    def decode(self, stream: bytes, nbytes: int) -> bytes | None:
        """What the stream holds, None if it is refused."""
        at = self._streams[MAX_NBYTES - len(stream) :]
        at[:] = np.frombuffer(stream, np.uint8)
        found = set()
        for room in self._rooms:
            n = len(self.dictionary)
            used = room[len(room) - n - nbytes :] if room is self._rooms[0] else room[: n + nbytes]
            room[:] = 0xEE
            used[:n] = np.frombuffer(self.dictionary, np.uint8)
            status = decode_lz4(at.ctypes.data, at.ctypes.data + len(at), used.ctypes.data + n, nbytes, n)
            assert status in (OK, BAD_LZ4)
            assert used[:n].tobytes() == self.dictionary
            assert np.count_nonzero(room == 0xEE) >= len(room) - n - nbytes
            found.add(used[n:].tobytes() if status == OK else None)
        assert len(found) == 1
        return found.pop()


def liblz4(stream: bytes, nbytes: int, dictionary: bytes) -> bytes | None:
    """What liblz4 says that the stream holds, None if it refuses it, or finds another number of bytes."""
    try:
        plain: bytes = lz4.block.decompress(stream, uncompressed_size=nbytes, dict=dictionary)
    except lz4.block.LZ4BlockError:
        return None
    return plain if len(plain) == nbytes else None


def has_offset_zero(stream: bytes) -> bool:
    """Whether a match of the stream has the offset 0."""
    at = 0

    def length(half: int) -> int:
        nonlocal at
        while half >= 15 and at < len(stream):
            half += stream[at]
            at += 1
            if stream[at - 1] != 255:
                break
        return half

    while at < len(stream):
        token = stream[at]
        at += 1
        at += length(token >> 4)
        if stream[at : at + 2] == b"\0\0":
            return True
        at += 2
        length(token & 15)
    return False


@pytest.mark.parametrize("dictionary_nbytes", DICTIONARIES)
def test_the_verdicts_and_bytes_are_those_of_liblz4(dictionary_nbytes: int) -> None:
    rng = np.random.default_rng(dictionary_nbytes)
    dictionary = rng.bytes(dictionary_nbytes)
    kernel, n_read, n_refused = Kernel(dictionary), 0, 0
    for i in range(N_STREAMS // len(DICTIONARIES)):
        stream, nbytes = made_up(rng) if i % 2 else compressed(rng, dictionary)
        expected = liblz4(stream, nbytes, dictionary)
        found = kernel.decode(stream, nbytes)
        if found is None and expected is not None:
            assert has_offset_zero(stream), stream.hex()
            continue
        assert found == expected, stream.hex()
        n_read += found is not None
        n_refused += found is None
    assert min(n_read, n_refused) > N_STREAMS // len(DICTIONARIES) // 20


def test_an_offset_of_zero_is_refused() -> None:
    kernel = Kernel(b"")
    good = b"\x11a\x01\x00" + b"\x70bcdefgh"
    assert kernel.decode(good, 13) == b"a" * 6 + b"bcdefgh"
    assert kernel.decode(good.replace(b"\x01\x00", b"\x00\x00"), 13) is None


def test_a_match_may_begin_in_the_dictionary_and_end_in_the_block() -> None:
    dictionary = bytes(range(100, 130))
    kernel = Kernel(dictionary)
    for offset in (4, 12, 20):
        stream = b"\x2fab" + offset.to_bytes(2, "little") + bytes([30]) + b"\x50cdefg"
        plain = bytearray(dictionary + b"ab")
        for _ in range(15 + 30 + 4):
            plain.append(plain[-offset])
        assert kernel.decode(stream, 56) == bytes(plain[30:]) + b"cdefg"


def encoded(plain: bytes, dictionary: bytes, n_attempts: int) -> bytes:
    """The LZ4 block that the kernel writes, into memory with just the room that it asks for."""
    n, n_dictionary = len(plain), len(dictionary)
    room, out = fenced(n_dictionary + n + 8), fenced(n + n // 255 + 16)
    room[: n_dictionary + n] = np.frombuffer(dictionary + plain, np.uint8)
    (heads, recent), chain = np.zeros((2, N_HEADS), np.int32), np.zeros(n_dictionary + n, np.uint16)
    index_dictionary(room[:n_dictionary], heads, chain)
    before = heads.copy()
    nbytes = encode_lz4(room.ctypes.data, n_dictionary, n, heads, recent, chain, n_attempts, out.ctypes.data)
    np.testing.assert_array_equal(heads, before)
    return out[:nbytes].tobytes()


def plain_bytes(rng: np.random.Generator, dictionary: bytes) -> bytes:
    """Bytes that repeat the dictionary, themselves, single bytes, or nothing."""
    plain = bytearray()
    for _ in range(rng.integers(8)):
        kind, n = rng.integers(4), int(rng.choice([*LENGTHS, 5000]))
        begin = int(rng.integers(len(dictionary) + 1))
        back = int(rng.integers(len(plain) + 1))
        plain += (rng.bytes(n), rng.bytes(1) * n, dictionary[begin : begin + n], bytes(plain[back : back + n]))[kind]
    return bytes(plain)


@pytest.mark.parametrize("dictionary_nbytes", DICTIONARIES)
@pytest.mark.parametrize("n_attempts", [1, 32])
def test_liblz4_reads_what_the_kernel_wrote(dictionary_nbytes: int, n_attempts: int) -> None:
    rng = np.random.default_rng(dictionary_nbytes)
    dictionary = rng.bytes(dictionary_nbytes)
    for i in range(200):
        plain = rng.bytes(i) if i < 20 else plain_bytes(rng, dictionary)
        assert liblz4(encoded(plain, dictionary, n_attempts), len(plain), dictionary) == plain


def test_a_block_far_behind_its_dictionary_leaves_the_dictionary_as_it_was() -> None:
    dictionary = np.random.default_rng(0).bytes(1 << 16)
    plain = dictionary[1000:6000] + bytes(70_000) + dictionary[1000:6000]  # the end is out of reach of what it repeats
    block = encoded(plain, dictionary, 32)
    assert liblz4(block, len(plain), dictionary) == plain
    assert 5000 < len(block) < 5500


def test_matches_are_found_in_all_of_a_long_block() -> None:
    """Words that come again after more than 64 KiB of others."""
    rng = np.random.default_rng(0)
    phases = [[rng.bytes(int(n)) for n in rng.integers(4, 12, 300)] for _ in range(3)]
    plain = b"".join(phases[i % 3][k] for i in range(6) for k in rng.integers(300, size=10_000))
    with_room = len(encoded(plain, b"", 32))
    assert with_room < 1.08 * len(lz4.block.compress(plain, store_size=False, mode="high_compression", compression=6))


def test_more_attempts_find_longer_matches_and_come_close_to_liblz4() -> None:
    rng = np.random.default_rng(0)
    words = [rng.bytes(int(n)) for n in rng.integers(3, 9, 60)]
    plain = b"".join(words[i] for i in rng.integers(60, size=2000))
    sizes = [len(encoded(plain, b"", n)) for n in (1, 8, 256)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1.06 * len(lz4.block.compress(plain, store_size=False, mode="high_compression"))


@pytest.mark.parametrize(("spec", "nbytes", "by_kernel"), [
    ("lz4", 1000, True), ("lz4:-5", 1000, True), ("lz4:9", 1000, True), ("lz4:10", 1000, False),
    ("lz4:9", 1 << 31, False),
])  # fmt: skip
def test_levels_and_sizes_that_the_kernel_does_not_encode_are_left_to_liblz4(spec, nbytes, by_kernel) -> None:
    lz4_codec = codec(spec, Layout((0,), np.uint8))
    assert (lz4_codec.lz4_encoder(nbytes) is not None) == by_kernel
