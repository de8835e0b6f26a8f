"""TrainedCodecs: when a dictionary is trained and trained again, which versions stay, and what a failure leaves."""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

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


def compress(zstd: BytesCodec, sample: Bytes) -> Bytes:
    return np.frombuffer(zstd.compress(sample.data), np.uint8)


def samples_of(seed: int, n: int = 256) -> list[Bytes]:
    """``u8[400]``, made of a few words."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 256, (16, 20), np.uint8)
    return list(words[rng.integers(16, size=(n, 20))].reshape(n, 400))


def feed(codecs: TrainedCodecs, samples: Sequence[Bytes], ratio: float = 0.5, version: int | None = None) -> None:
    for sample in samples:
        codecs.encoded(sample, int(ratio * len(sample)), codecs.newest if version is None else version)
        if codecs.learning and codecs.is_due:
            codecs.train()


def taught(fit=train) -> TrainedCodecs:
    """It has trained version 2, and knows how small its streams are."""
    codecs = TrainedCodecs(ZSTD, fit)
    feed(codecs, samples_of(0, 512))
    assert codecs.newest == 2
    return codecs


def test_a_dictionary_is_trained_on_the_first_streams() -> None:
    codecs, samples = TrainedCodecs(ZSTD, train), samples_of(0)
    feed(codecs, samples[:255])
    assert (codecs.newest, codecs.learning, codecs.dictionary_bytes, len(codecs.by_version)) == (1, True, 0, 1)
    feed(codecs, samples[255:])
    assert (codecs.newest, codecs.learning, len(codecs.by_version)) == (2, False, 2)
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
        codecs.encoded(memory[: i % 8], 1, 1)
        memory[:] = 99
    codecs.train()
    assert seen == [bytes([i]) * (i % 8) for i in range(256)]


def test_four_megabytes_are_enough_and_no_sample_is_cut() -> None:
    seen: list[int] = []

    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        seen.extend(map(len, samples))
        return zstd

    codecs = TrainedCodecs(ZSTD, fit)
    feed(codecs, [np.zeros(7 * LARGE, np.uint8)])
    assert (seen, codecs.learning) == ([7 * LARGE], False)
    seen.clear()
    codecs = TrainedCodecs(ZSTD, fit)
    feed(codecs, [np.zeros(LARGE + LARGE // 4, np.uint8)] * 3)
    assert codecs.learning
    feed(codecs, [np.zeros(LARGE, np.uint8)])
    assert not codecs.learning
    assert seen == [LARGE + LARGE // 4] * 3


@pytest.mark.parametrize(("ratio", "is_due"), [(0.5, False), (0.62, False), (0.63, True), (1.0, True), (0.1, False)])
def test_a_training_is_due_when_streams_are_a_quarter_larger(ratio: float, is_due: bool) -> None:
    codecs = taught()
    feed(codecs, samples_of(1, 255), ratio)
    assert not codecs.is_due
    feed(codecs, samples_of(1, 1), ratio)
    assert codecs.is_due == is_due


def test_a_training_is_due_when_four_times_as_many_were_encoded() -> None:
    codecs = taught()
    for n, more in ((512, 512), (1024, 3072), (4096, 12288)):
        feed(codecs, samples_of(0, more - 1))
        assert not codecs.is_due
        feed(codecs, samples_of(0, 1))
        assert codecs.is_due, n
        codecs.learn_again(samples_of(0), compress)
        assert not codecs.is_due


@pytest.mark.parametrize(("nbytes", "newest"), [(101, 2), (96, 2), (95, 3)])
def test_a_dictionary_is_kept_that_makes_streams_5_percent_smaller(nbytes: int, newest: int) -> None:
    codecs = taught()
    second, tried = codecs.by_version[2], []

    def encode(zstd: BytesCodec, sample: Bytes) -> Bytes:
        tried.append(sample)
        return sample[: 100 if zstd == second else nbytes]

    feed(codecs, samples_of(1), 0.9)
    codecs.learn_again(samples_of(2), encode)
    assert np.array_equal(tried, 2 * samples_of(2)[1::2])
    assert (codecs.newest, codecs.is_due) == (newest, False)
    feed(codecs, samples_of(1, 255), 0.9)
    assert not codecs.is_due  # streams have not become larger since


@pytest.mark.parametrize("error", [ShapeError("too few samples"), MemoryError()])
def test_a_training_that_fails_leaves_the_codec_as_it_is(error: Exception) -> None:
    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        raise error

    codecs = TrainedCodecs(ZSTD, fit)
    feed(codecs, samples_of(0))
    assert (codecs.newest, codecs.learning, len(codecs.by_version)) == (1, False, 1)
    assert codecs.by_version[1] is ZSTD
    feed(codecs, samples_of(0, 600))
    assert codecs.newest == 1


@pytest.mark.parametrize(
    ("error", "met"), [(RuntimeError(), pytest.raises(RuntimeError)), (MemoryError(), nullcontext())]
)
def test_an_error_while_items_are_read_is_met_once_and_teaches_nothing(
    error: Exception, met: AbstractContextManager[object]
) -> None:
    def items() -> Iterator[Bytes]:
        yield from samples_of(1, 7)
        raise error

    codecs = taught()
    feed(codecs, samples_of(1), 0.9)
    with met:
        codecs.learn_again(items(), compress)
    assert (codecs.newest, codecs.is_due) == (2, False)


@pytest.mark.parametrize("n_trained", [1, 2])
def test_a_training_again_that_fails_leaves_all_versions(n_trained: int) -> None:
    fails = [False] * n_trained + [True]

    def fit(zstd: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
        if fails.pop(0):
            raise MemoryError
        return train(zstd, samples)

    codecs = taught(fit)
    second = codecs.by_version[2]
    feed(codecs, samples_of(1), 0.9)
    codecs.learn_again(samples_of(1), compress)
    assert (codecs.newest, codecs.is_due, fails) == (2, False, [])
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
    assert again.is_due  # it knows how small streams were
    again.learn_again(samples_of(1), compress)
    last = rebuilt(again)
    feed(last, samples_of(1, 4 * 768 - 769))
    assert not last.is_due
    feed(last, samples_of(1, 1))
    assert last.is_due  # it knows how many there were
