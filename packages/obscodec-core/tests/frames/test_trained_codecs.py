"""TrainedCodecs: when a dictionary is trained and trained again, which versions stay, and what a failure leaves."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from obscodec import Layout, ShapeError, codec
from obscodec.codecs import BytesCodec
from obscodec.frames.trained_codecs import TrainedCodecs
from obscodec.segments import Bytes, Segments

ZSTD = codec("zstd:1", Layout((0,), "uint8"))
LARGE = 1 << 20


def train(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
    return zstd.train(Segments.of(samples))


def samples_of(seed: int, n: int = 256) -> list[Bytes]:
    """``u8[400]``, made of a few words."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 256, (16, 20), np.uint8)
    return list(words[rng.integers(16, size=(n, 20))].reshape(n, 400))


def feed(codecs: TrainedCodecs, samples: Sequence[Bytes], ratio: float = 0.5) -> None:
    for sample in samples:
        codecs.encoded(sample, int(ratio * len(sample)))


def taught(fit=train) -> TrainedCodecs:
    """It has trained version 2, and knows how small its streams are."""
    codecs = TrainedCodecs(ZSTD, fit)
    feed(codecs, samples_of(0, 512))
    assert codecs.newest == 2
    return codecs


def test_a_dictionary_is_trained_on_the_first_streams() -> None:
    codecs, samples = TrainedCodecs(ZSTD, train), samples_of(0)
    feed(codecs, samples[:255])
    assert (codecs.newest, codecs.learning, codecs.dictionary_bytes, codecs.are_several) == (1, True, 0, False)
    feed(codecs, samples[255:])
    assert (codecs.newest, codecs.learning, codecs.are_several) == (2, False, True)
    assert 1 in codecs.by_version
    assert 2 in codecs.by_version
    assert 3 not in codecs.by_version
    assert codecs.by_version[1] == ZSTD
    assert codecs.by_version[2] == train(ZSTD, samples)
    assert codecs.dictionary_bytes == len(codecs.by_version[2].dictionary) > 0
    one, other = (codecs.by_version[version].compress(samples_of(0, 300)[280].data) for version in (1, 2))
    assert len(other) < len(one)


def test_what_is_learned_from_is_copied() -> None:
    seen: list[bytes] = []

    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        seen.extend(map(bytes, samples))
        return zstd

    codecs, memory = TrainedCodecs(ZSTD, fit), np.empty(7, np.uint8)
    for i in range(256):
        memory[:] = i
        codecs.encoded(memory[: i % 8], 1)
        memory[:] = 99
    assert seen == [bytes([i]) * (i % 8) for i in range(256)]


def test_four_megabytes_are_enough_and_no_sample_is_cut() -> None:
    seen: list[int] = []

    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        seen.extend(map(len, samples))
        return zstd

    codecs = TrainedCodecs(ZSTD, fit)
    feed(codecs, [np.zeros(LARGE + LARGE // 4, np.uint8)] * 3)
    assert codecs.learning
    feed(codecs, [np.zeros(LARGE, np.uint8)])
    assert not codecs.learning
    assert seen == [LARGE + LARGE // 4] * 3


def test_a_codec_without_dictionaries_stays_as_it_is() -> None:
    gzip = codec("gzip:1", Layout((0,), "uint8"))
    codecs = TrainedCodecs(gzip, train)
    feed(codecs, samples_of(0))
    assert (codecs.newest, codecs.learning, codecs.are_several) == (1, False, False)
    feed(codecs, samples_of(1, 256), 0.1)
    feed(codecs, samples_of(1, 300), 0.9)
    assert (codecs.newest, codecs.learning) == (1, False)


@pytest.mark.parametrize(("ratio", "learns"), [(0.5, False), (0.62, False), (0.63, True), (1.0, True), (0.1, False)])
def test_streams_that_are_a_quarter_larger_are_learned_from(ratio: float, learns: bool) -> None:
    codecs = taught()
    feed(codecs, samples_of(1, 255), ratio)
    assert not codecs.learning
    feed(codecs, samples_of(1, 1), ratio)
    assert codecs.learning == learns


def test_a_few_large_streams_are_no_drift() -> None:
    codecs = taught()
    for _ in range(5):
        feed(codecs, samples_of(1, 60), 0.9)
        feed(codecs, samples_of(1, 240), 0.5)
    assert not codecs.learning


def test_another_dictionary_is_trained_on_what_came_since() -> None:
    codecs = taught()
    second = codecs.by_version[2]
    feed(codecs, samples_of(1), 0.9)
    assert codecs.newest == 2
    feed(codecs, samples_of(2))
    assert codecs.newest == 3
    assert codecs.by_version[2] == second
    assert codecs.by_version[3] == train(second, samples_of(2))
    assert codecs.dictionary_bytes == len(second.dictionary) + len(codecs.by_version[3].dictionary)
    feed(codecs, samples_of(2, 300), 0.9)  # which is how well this one goes from the start
    assert not codecs.learning


def test_versions_that_nothing_needs_are_forgotten_but_the_newest() -> None:
    codecs = taught()
    feed(codecs, samples_of(1), 0.9)
    feed(codecs, samples_of(2))
    codecs.keep([1, 2, 3])
    assert [version in codecs.by_version for version in (1, 2, 3)] == [True, True, True]
    codecs.keep({2, 7})
    assert [version in codecs.by_version for version in (1, 2, 3)] == [False, True, True]
    codecs.keep([])
    assert [version in codecs.by_version for version in (1, 2, 3)] == [False, False, True]
    assert not codecs.are_several
    feed(codecs, samples_of(3), 0.5)
    feed(codecs, samples_of(3), 0.9)
    feed(codecs, samples_of(4))
    assert codecs.newest == 4  # no number comes twice


@pytest.mark.parametrize("error", [ShapeError("too few samples"), MemoryError()])
def test_a_training_that_fails_leaves_the_codec_as_it_is(error: Exception) -> None:
    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        raise error

    codecs = TrainedCodecs(ZSTD, fit)
    feed(codecs, samples_of(0))
    assert (codecs.newest, codecs.learning, codecs.are_several) == (1, False, False)
    assert codecs.by_version[1] is ZSTD
    feed(codecs, samples_of(0, 600))
    assert codecs.newest == 1


def test_a_training_again_that_fails_leaves_all_versions() -> None:
    fails = [False, True]

    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        if fails.pop(0):
            raise MemoryError
        return train(zstd, samples)

    codecs = taught(fit)
    second = codecs.by_version[2]
    feed(codecs, samples_of(1), 0.9)
    feed(codecs, samples_of(1))
    assert (codecs.newest, codecs.learning) == (2, False)
    assert codecs.by_version[1] == ZSTD
    assert codecs.by_version[2] is second


def test_an_interrupted_training_is_done_with_the_next_stream() -> None:
    interrupts = [True, False]

    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        if interrupts.pop(0):
            raise KeyboardInterrupt
        return train(zstd, samples)

    codecs, samples = TrainedCodecs(ZSTD, fit), samples_of(0, 257)
    with pytest.raises(KeyboardInterrupt):
        feed(codecs, samples[:256])
    assert (codecs.newest, codecs.learning) == (1, True)
    feed(codecs, samples[256:])
    assert codecs.by_version[2] == train(ZSTD, samples[:256])


def rebuilt(codecs: TrainedCodecs) -> TrainedCodecs:
    made = TrainedCodecs(ZSTD, train)
    made.restore(pickle.loads(pickle.dumps(codecs.state())))
    return made


def test_a_pickled_one_goes_on_learning() -> None:
    codecs, samples = TrainedCodecs(ZSTD, train), samples_of(0)
    feed(codecs, samples[:100])
    restored = rebuilt(codecs)
    assert len(pickle.dumps(codecs.state())) < 2 * 100 * 400
    for one in (codecs, restored):
        feed(one, samples[100:])
        assert one.by_version[2] == train(ZSTD, samples)
    feed(codecs, samples_of(1))
    again = rebuilt(codecs)
    assert (again.newest, again.learning, again.by_version[2]) == (2, False, codecs.by_version[2])
    feed(again, samples_of(1), 0.9)
    assert again.learning  # it knows how small streams were
