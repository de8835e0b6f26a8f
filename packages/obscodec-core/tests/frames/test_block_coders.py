"""PatchCoder and CodecCoder: blocks of each version are read as they were sealed, damaged ones are refused."""

import re

import numpy as np
import pytest
from fenced import Fenced
from obscodec import CorruptStream, Layout, SpecError, codec
from obscodec.frames import new_coder
from obscodec.frames.block_coder import BlockCoder, Wanted
from obscodec.segments import Bytes, Segments
from obscodec.varint import decode_varint, encode_varint

FRAME = Layout((24, 10), "uint8")
N = 4
SPECS = ["delta-rle", "delta-rle|zstd:1", "delta-rle|lz4:9", "zstd:1", "raw", "rle", "shuffle|lz4"]
TRAINED = ["delta-rle|zstd:1", "delta-rle|lz4:9", "zstd:1", "lz4"]
NO_REFERENCES = np.zeros((1, FRAME.nbytes), np.uint8)


def frames_of(seed: int, n: int = N) -> np.ndarray:
    """``u8[n, nbytes]``: words of a few bytes, some of which change from one frame to the next."""
    rng = np.random.default_rng(seed)
    words = np.random.default_rng(99).integers(0, 256, (12, 10), np.uint8)
    which = np.repeat(rng.integers(12, size=(1, 24)), n, axis=0)
    for i in range(1, n):
        which[i:, rng.integers(24)] = rng.integers(12)
    return words[which].reshape(n, FRAME.nbytes)


def full_block(coder: BlockCoder, frames: np.ndarray) -> Bytes:
    """A block of version 0, as a FrameLog hands it to its coder."""
    plain = frames.reshape(1, -1)
    if coder.patches:
        delta_rle = codec("delta-rle", Layout((len(frames), *FRAME.shape), "uint8"))
        plain = delta_rle.encode_batch(plain, np.empty(delta_rle.bound(), np.uint8))[0]
    return np.append(np.uint8(0), plain)


def seal(coder: BlockCoder, *frames: np.ndarray, learn: bool = False) -> list[Bytes]:
    """Blocks as they are stored."""
    blocks = Segments.of([full_block(coder, each) for each in frames])
    versions, sealed = coder.seal(blocks)
    assert versions.tolist() == [decode_varint(block)[0] for block in sealed]
    if learn:
        coder.note(blocks, versions, sealed)
        if coder.versions is not None and coder.versions.is_due:
            coder.train(Segments.of([]))
    return list(sealed)


def read(coder: BlockCoder, blocks: list[Bytes | bytes], places: list[list[int]], threads: int = 1) -> np.ndarray:
    """The frames at places of each block, put into rows from the last to the first."""
    starts = np.cumsum([0, *map(len, places)])
    memory = Fenced(sum(map(len, places)) * FRAME.nbytes)
    rows = memory.rows(sum(map(len, places)), FRAME.nbytes)
    wanted = Wanted(starts, np.array([p for each in places for p in each], np.int64), np.arange(len(rows))[::-1], rows)
    try:
        coder.read(Segments.of(blocks), wanted, NO_REFERENCES, threads)
    finally:
        memory.check(rows)
    return rows[::-1]


def learned(spec: str) -> BlockCoder:
    """A coder that has trained a dictionary, version 2."""
    coder = new_coder(spec, FRAME, N)
    for seed in range(256):
        seal(coder, frames_of(seed), learn=True)
    assert coder.versions.newest == 2
    return coder


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_a_block_is_read_as_it_was_sealed_or_opened(spec: str) -> None:
    coder = new_coder(spec, FRAME, N)
    contents = [frames_of(seed) for seed in range(3)]
    for blocks in ([full_block(coder, frames) for frames in contents], seal(coder, *contents)):
        found = read(coder, blocks, [[0, 1, 2, 3], [2], [1, 3]])
        np.testing.assert_array_equal(found, np.concatenate([contents[0], contents[1][[2]], contents[2][[1, 3]]]))
        assert read(coder, blocks, [[], [0], []]).tolist() == contents[1][:1].tolist()
    assert read(coder, [], []).shape == (0, FRAME.nbytes)


@pytest.mark.parametrize("spec", SPECS)
def test_an_empty_block_is_of_zeros(spec: str) -> None:
    coder, frames = new_coder(spec, FRAME, N), frames_of(0)
    (block,) = seal(coder, frames)
    found = read(coder, [b"", block, b""], [[0, 3], [1], [2]])
    np.testing.assert_array_equal(found[2], frames[1])
    assert not found[[0, 1, 3]].any()


@pytest.mark.parametrize("spec", SPECS)
def test_no_sealed_block_is_larger_than_an_open_one(spec: str) -> None:
    coder = new_coder(spec, FRAME, N)
    noise = np.random.default_rng(0).integers(0, 256, (N, FRAME.nbytes), np.uint8)
    for frames, version in ((noise, None if "|lz4" in spec else 0), (np.zeros_like(noise), None)):
        (sealed,), opened = seal(coder, frames), full_block(coder, frames)
        assert len(sealed) <= len(opened)
        if version == 0:
            np.testing.assert_array_equal(sealed, opened)
        np.testing.assert_array_equal(read(coder, [sealed], [[0, 1, 2, 3]]), frames)


@pytest.mark.parametrize("spec", TRAINED)
def test_blocks_of_each_version_are_read_together(spec: str) -> None:
    coder = new_coder(spec, FRAME, N)
    frames = [frames_of(seed) for seed in range(1000, 1003)]
    opened = full_block(coder, frames[0])
    (first,) = seal(coder, frames[1])
    for seed in range(256):
        seal(coder, frames_of(seed), learn=True)
    (second,) = seal(coder, frames[2])
    assert (first[0], second[0]) == (1, 2)
    assert coder.versions.dictionary_bytes > 0
    found = read(coder, [second, opened, first], [[0, 1, 2, 3]] * 3)
    np.testing.assert_array_equal(found, np.concatenate([frames[2], frames[0], frames[1]]))
    coder.versions.keep([])
    text = f"a stored block of {spec} can't be decoded: it is of "
    with pytest.raises(
        CorruptStream, match=f"^{re.escape(text)}(version 1, which|a version that) this store does not have$"
    ):
        read(coder, [first], [[0]])
    np.testing.assert_array_equal(read(coder, [second], [[3]]), frames[2][3:])


@pytest.mark.parametrize("spec", TRAINED)
def test_what_is_learned_again_are_stored_blocks_of_all_versions_that_can_be_read(spec: str) -> None:
    coder, learned_from = new_coder(spec, FRAME, N), []
    opened = full_block(coder, frames_of(1000))
    (first,) = seal(coder, frames_of(1001))
    for seed in range(256):
        seal(coder, frames_of(seed), learn=True)
    (second,) = seal(coder, frames_of(1002))
    good = [opened, first, second]
    bad = [b"\xff" * 11, opened[:-9], first[: len(first) // 2], b"\x09", b"", np.append(opened, opened)]
    if coder.patches:
        bad = [bad[k] for k in (0, 2, 3)]  # nobody knows how long patches are
    coder.versions.learn_again = lambda items, encode: learned_from.extend(items)
    coder.train(Segments.of([*bad, *good, *bad]))
    assert list(map(bytes, learned_from)) == [bytes(full_block(coder, frames_of(1000 + k))[1:]) for k in range(3)]


def test_patches_are_compressed_once() -> None:
    text = "'delta-rle|zstd:1|lz4' compresses patches more than once, use one codec behind 'delta-rle'"
    with pytest.raises(SpecError, match=f"^{re.escape(text)}$"):
        new_coder("delta-rle|zstd:1|lz4", FRAME, N)


@pytest.mark.parametrize("spec", SPECS)
def test_a_block_that_is_cut_is_refused(spec: str) -> None:
    coder = new_coder(spec, FRAME, N)
    for block in (*seal(coder, frames_of(0)), full_block(coder, frames_of(0))):
        for end in range(1, len(block)):
            with pytest.raises(CorruptStream, match=f"^a stored block of {re.escape(spec)} can't be decoded: "):
                read(coder, [block[:end]], [[0, 1, 2, 3]])


@pytest.mark.parametrize("spec", [*SPECS, "lz4"])
def test_an_altered_block_is_refused_or_read_within_bounds(spec: str) -> None:
    coder = learned(spec) if spec in TRAINED else new_coder(spec, FRAME, N)
    (block,) = seal(coder, frames_of(0))
    n_refused = 0
    for bit in range(0, 8 * len(block), 3):
        altered = block.copy()
        altered[bit // 8] ^= 1 << bit % 8
        try:
            assert read(coder, [altered], [[0, 1, 2, 3]]).shape == (4, FRAME.nbytes)
        except CorruptStream:
            n_refused += 1
    assert n_refused > 0


@pytest.mark.parametrize(("spec", "block", "text"), [
    ("delta-rle|zstd:1", encode_varint(7) + b"x", "it is of version 7, which this store does not have"),
    ("zstd:1", encode_varint(7) + b"x", "it is of version 7, which this store does not have"),
    ("delta-rle", encode_varint(1) + b"x", "it is of a version that this store does not have"),
    ("delta-rle|lz4", encode_varint(7) + b"x", "it is of a version that this store does not have"),
    ("delta-rle|lz4", encode_varint(2**60) + b"x", "it is of a version that this store does not have"),
    ("delta-rle|lz4", b"\x80", "it ends inside a varint"),
    ("delta-rle|lz4", b"\x01\x80", "it ends inside a varint"),
    ("delta-rle|lz4", encode_varint(0), "it ends inside a varint"),
    ("delta-rle|lz4", b"\x01" + encode_varint(10**9), "its patches have more bytes than is possible"),
    ("delta-rle|lz4", b"\x01\x05" + b"\x10a", "it is no LZ4 block of as many bytes as it says"),
    ("delta-rle|zstd:1", b"\x80", "it ends inside a varint"),
    ("delta-rle|zstd:1", b"\xff" * 9, "a varint has more than 9 bytes"),
    ("delta-rle", b"\0\x21\2\0\0", "it is a patch of a reference frame that does not exist"),
    ("zstd:1", b"\x80", "it ends inside a varint"),
    ("zstd:1", b"\x80\x00" + bytes(4 * 60), "a varint is longer than it needs to be, or than 9 bytes"),
    ("delta-rle|zstd:1", encode_varint(0), "it has no patches"),
    ("delta-rle|zstd:1", b"\x01" + encode_varint(10**9), "its patches have 1000000000 bytes, at most {n} are possible"),
])  # fmt: skip
def test_what_can_be_no_block_is_refused(spec: str, block: bytes, text: str) -> None:
    text = text.format(n=codec("delta-rle", Layout((N, *FRAME.shape), "uint8")).read_bound())
    with pytest.raises(CorruptStream) as caught:
        read(new_coder(spec, FRAME, N), [block], [[0]])
    assert str(caught.value) == f"a stored block of {spec} can't be decoded: {text}"


@pytest.mark.parametrize("spec", ["delta-rle", "delta-rle|zstd:1", "delta-rle|lz4", "zstd:1"])
def test_many_blocks_are_read_in_threads_as_by_one(spec: str) -> None:
    coder = new_coder(spec, FRAME, N)
    blocks = seal(coder, *(frames_of(seed) for seed in range(400)))
    places = [[0, 1, 2, 3][: 1 + i % 4] for i in range(len(blocks))] * 2
    blocks *= 2
    assert sum(map(len, places)) * FRAME.nbytes > 3 * (1 << 17)
    expected = np.concatenate([frames_of(i % 400)[each] for i, each in enumerate(places)])
    for threads in (1, 4):
        np.testing.assert_array_equal(read(coder, blocks, places, threads), expected)
    blocks[-1] = blocks[-1][:-1]
    places[-1] = [3]
    with pytest.raises(CorruptStream, match=f"^a stored block of {re.escape(spec)} can't be decoded: "):
        read(coder, blocks, places, 4)


@pytest.mark.parametrize("nbytes", [0, 1, 7])
def test_samples_of_another_size_teach_nothing(nbytes: int) -> None:
    """Those of a damaged file."""
    frame, n = Layout((20, 20, 3), "uint8"), 2
    versions = new_coder("palette", frame, n).versions
    assert versions is not None
    versions.encoded(np.zeros(n * frame.nbytes, np.uint8), 100, 1)
    restored = new_coder("palette", frame, n).versions
    assert restored is not None
    restored.restore({**versions.state(), "samples": Segments.of([bytes(nbytes)] * 2).state()})
    restored.train()
    assert (restored.newest, restored.learning) == (1, False)
