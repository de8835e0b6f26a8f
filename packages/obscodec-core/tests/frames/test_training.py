"""Codecs of blocks are trained in the background, while frames are stored and read as before."""

import threading

import numpy as np
import pytest
from forked import exit_status, forked
from obscodec import FrameStore, Layout
from obscodec.frames.block_coder import BlockCoder
from obscodec.frames.sealer import TRAINER
from obscodec.frames.trained_codecs import TrainedCodecs
from obscodec.segments import Segments

pytestmark = pytest.mark.in_background
LAYOUT = Layout((24, 24), np.uint8)
CODECS = pytest.mark.parametrize(("codec", "block_frames"), [("zstd:1", 1), ("delta-rle|zstd:3", 4)])


def frames(n: int, seed: int = 0) -> np.ndarray:
    """Made of a few tiles, which a dictionary knows."""
    rng = np.random.default_rng(seed)
    tiles = np.random.default_rng(0).integers(256, size=(30, 8, 8), dtype=np.uint8)
    return tiles[rng.integers(30, size=(n, 3, 3))].transpose(0, 1, 3, 2, 4).reshape(n, 24, 24)


def append(store: FrameStore, x: np.ndarray) -> np.ndarray:
    return np.concatenate([store.append(x[k : k + 4], np.arange(4) % 2) for k in range(0, len(x), 4)])


@CODECS
def test_frames_are_stored_and_read_while_a_codec_is_trained(monkeypatch, codec, block_frames):
    gate, train = threading.Event(), BlockCoder.train

    def wait(coder: BlockCoder, samples: object) -> None:
        assert gate.wait(60)
        train(coder, samples)

    monkeypatch.setattr(BlockCoder, "train", wait)
    store, x = FrameStore(LAYOUT, codec=codec, block_frames=block_frames), frames(4000)
    ids = append(store, x)
    store.stats()
    assert store.log.coder.versions.learning
    assert store.stats().dictionary_bytes == store.log.open.reference_bytes
    np.testing.assert_array_equal(store.read(ids), x)
    gate.set()
    TRAINER.finish()
    assert store.log.coder.versions.newest == 2
    more = append(store, frames(800, 1))
    store.stats()
    assert 2 in store.log.tables.versions
    np.testing.assert_array_equal(store.read(np.append(ids, more)), np.append(x, frames(800, 1), axis=0))


@CODECS
def test_codecs_that_are_trained_all_the_time_do_no_harm(monkeypatch, codec, block_frames):
    monkeypatch.setattr(TrainedCodecs, "is_due", property(lambda codecs: bool(codecs._samples) or not codecs.learning))
    monkeypatch.setattr("obscodec.frames.trained_codecs._MIN_GAIN", 9)  # each is kept
    store = FrameStore(LAYOUT, codec=codec, block_frames=block_frames)
    x, ids = frames(6000), np.zeros(0, np.int64)
    for k in range(0, 6000, 100):
        ids = np.append(ids, append(store, x[k : k + 100]))
        np.testing.assert_array_equal(store.read(ids[::7]), x[: len(ids) : 7])
        if k % 500 == 0:
            TRAINER.finish()
    assert store.log.coder.versions.newest > 4
    store.release(ids[:5000])
    append(store, x[:400])
    np.testing.assert_array_equal(store.read(ids[5000:]), x[5000:])


@CODECS
def test_a_block_names_the_codec_that_compressed_it(codec, block_frames):
    store, x = FrameStore(LAYOUT, codec=codec, block_frames=block_frames), frames(300)
    coder = store.log.coder
    compress, samples = coder.compress, [np.ascontiguousarray(frame).reshape(-1) for frame in x]
    if codec == "zstd:1":
        trained = [coder.versions._fit(coder.versions.current[1], samples[k : k + 100]) for k in (0, 100, 200)]
    else:
        trained = [coder.versions.current[1].train(Segments.of(samples[k : k + 100])) for k in (0, 100, 200)]

    def late(newest: object, plain: np.ndarray) -> np.ndarray:
        stream = compress(newest, plain)
        if trained:
            coder.versions._go_on(trained.pop())  # as another thread may
        return stream

    coder.compress = late
    ids = store.append(x[:64])
    store.stats()
    assert not trained
    np.testing.assert_array_equal(store.read(ids), x[:64])


def test_an_error_of_the_training_is_raised_once_and_loses_nothing(monkeypatch):
    train = BlockCoder.train
    monkeypatch.setattr(BlockCoder, "train", lambda *_: 1 // 0)
    store, x = FrameStore(LAYOUT, codec="zstd:1", block_frames=1), frames(1000)
    ids = append(store, x[:200])

    def go_on() -> None:
        for _ in range(2):
            append(store, x[:200])
            store.stats()  # which stores what waits
            TRAINER.finish()

    with pytest.raises(ZeroDivisionError):
        go_on()
    monkeypatch.setattr(BlockCoder, "train", train)
    ids = np.append(ids, append(store, x[200:]))
    store.stats()
    TRAINER.finish()
    np.testing.assert_array_equal(store.read(ids), x)
    assert not store.log.coder.versions.learning


def test_a_forked_process_trains_anew(monkeypatch):
    gate, train = threading.Event(), BlockCoder.train

    def wait(coder: BlockCoder, samples: object) -> None:
        assert gate.wait(60)
        train(coder, samples)

    monkeypatch.setattr(BlockCoder, "train", wait)
    store, x = FrameStore(LAYOUT, codec="zstd:1", block_frames=1), frames(1000)
    ids = append(store, x[:400])
    store.stats()  # which stores what waits

    def use() -> None:
        gate.set()
        more = np.append(ids, append(store, x[400:]))
        store.stats()
        TRAINER.finish()
        assert not store.log.coder.versions.learning
        np.testing.assert_array_equal(store.read(more), x)

    assert exit_status(forked(use)) == 0
    gate.set()
    TRAINER.finish()
    assert not store.log.coder.versions.learning
