"""An encoded batch decodes elsewhere to what its owner would decode, in few bytes; a strange message does no harm."""

import gc

import ml_dtypes
import numpy as np
import pytest
import xxhash
from atari_frames import frames
from obscodec import AutoStore, CorruptStream, Field, FrameStore, Layout, RingBuffer, SpecError
from obscodec.arrays import BorrowedArray, DeferredRead, TensorArray
from obscodec.stores import Store
from obscodec.stores.narrow.narrow import Narrow
from obscodec.stores.narrow.narrow_store import NarrowStore
from obscodec.trees import format_arrays
from obscodec.wire import EncodedBatch, Received, Sent, encoded_batch

HEAD = 14  # bytes


def equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert np.array_equal(found[name], array, equal_nan=array.dtype.kind == "f"), name


def played(n, seed=0):
    """A ring of games, with stacks, next observations, floats that are bytes, texts and rewards."""
    seen = frames("MsPacman", n + 1, seed)
    ring = RingBuffer(
        n,
        {
            "obs": Field((84, 84), np.uint8),
            "next_obs": Field((84, 84), np.uint8, next_of="obs"),
            "floats": Field((20, 30), np.float32),
            "text": Field((None,), np.int64, "zstd:1"),
            "half": Field((3,), ml_dtypes.bfloat16),
            "reward": Field((), np.float32),
            "done": Field((), np.bool_),
        },
        stack={"obs": 4},
        pad="zeros",
        episode_end="done",
    )
    for t in range(n):
        floats = np.full((20, 30), t % 200 / 255, np.float32) if t % 50 else np.full((20, 30), np.pi, np.float32)
        ring.append(
            obs=seen[t],
            next_obs=seen[t + 1],
            floats=floats,
            text=np.arange(7 * t),
            half=[t % 8, 1, 2],
            reward=t,
            done=t % 90 == 89,
        )
    return ring


@pytest.fixture(scope="module")
def ring():
    """A ring that has decided."""
    made = played(400)
    made.decide()
    return made


@pytest.mark.parametrize("n", [3, 90, 400])
def test_a_batch_of_a_ring_is_what_the_ring_decodes(n):
    ring, sent, received = played(n), Sent(), Received()
    for decided in (False, True):
        if decided:
            ring.decide()
        for seed in range(3):
            message = ring.sample(40, seed, to="encoded").to_bytes(sent)
            equal(EncodedBatch.from_bytes(message, received).read(), ring.sample(40, seed))
        alone = ring.sample(40, 9, to="encoded").to_bytes()
        equal(EncodedBatch.from_bytes(alone).read(threads=1), ring.sample(40, 9))
        more = {"n_step": 3, "gamma": 0.9}
        message = ring.sample(20, 4, to="encoded", **more).to_bytes()
        equal(EncodedBatch.from_bytes(message).read(), ring.sample(20, 4, **more))
        message = ring.sequences(5, 7, 4, strict_length=False, to="encoded").to_bytes()
        equal(EncodedBatch.from_bytes(message).read(), ring.sequences(5, 7, 4, strict_length=False))


def test_a_batch_of_a_game_takes_few_bytes_and_what_decodes_it_is_sent_once(ring):
    sent = Sent()
    first, later = (len(ring.sample(64, 0, to="encoded").to_bytes(sent)) for _ in range(2))
    assert later < first
    assert later < len(ring.sample(64, 0, to="encoded").to_bytes())
    raw = sum(array.nbytes for array in ring.sample(64, 0).values())
    assert later < 0.06 * raw


@pytest.mark.parametrize("spec", ["delta-rle", "delta-rle|zstd:3", "zstd:3", "pred", "palette", "raw", "lz4"])
@pytest.mark.parametrize("block_frames", [1, 16])
def test_noise_takes_no_more_than_its_pixels(spec, block_frames):
    store = FrameStore(Layout((32, 32), np.uint8), codec=spec, block_frames=block_frames)
    noise = np.random.default_rng(0).integers(0, 256, (300, 32, 32), np.uint8)
    array = TensorArray(store.append(noise), store)
    which = np.random.default_rng(1).permutation(300)[:64]
    sent, received, lengths = Sent(), Received(), []
    for wanted in (which[:1], which, np.repeat(which, 3)):
        message = EncodedBatch.of(DeferredRead(lambda wanted=wanted: {"x": array[wanted]})).to_bytes(sent)
        assert np.array_equal(EncodedBatch.from_bytes(message, received).read()["x"], noise[wanted])
        lengths.append(len(message))
    assert lengths[1] < 1.01 * noise[which].nbytes + 5000  # names and numbers
    assert lengths[2] < 1.1 * lengths[1]  # each frame once


def test_dictionaries_that_are_trained_later_are_sent():
    rng = np.random.default_rng(0)
    store = FrameStore(Layout((24, 24), np.uint8), codec="zstd:3", block_frames=1)
    tensors = rng.integers(0, 2, (600, 24, 24), np.uint8) * rng.integers(1, 9, (600, 1, 1), np.uint8)
    sent, received, ids = Sent(), Received(), np.empty(0, np.int64)
    for part in np.split(tensors, 6):
        ids = np.append(ids, store.append(part))
        store.log.train()
        array = BorrowedArray(ids, store, None)
        message = EncodedBatch.of(DeferredRead(lambda array=array: array[::7])).to_bytes(sent)
        assert np.array_equal(EncodedBatch.from_bytes(message, received).read(), tensors[: len(ids) : 7])
    assert len(store.log.coder.codecs) >= 1


def test_a_message_that_is_missed_is_told():
    store = FrameStore(Layout((84, 84), np.uint8), codec="delta-rle", block_frames=4)
    rng = np.random.default_rng(0)
    seen = np.repeat(rng.integers(0, 255, (10, 84, 84), np.uint8), 4, axis=0)
    seen[:, 0, 0] = np.arange(40)
    array, sent = TensorArray(store.append(seen), store), Sent()
    EncodedBatch.of(DeferredRead(lambda: array[:])).to_bytes(sent)
    later = EncodedBatch.of(DeferredRead(lambda: array[:])).to_bytes(sent)
    with pytest.raises(CorruptStream, match="messages are missing"):
        EncodedBatch.from_bytes(later)


def test_numbers_that_are_narrow_and_wide_come_in_their_places():
    narrow = Narrow(np.dtype(np.float32), 8, (("/", 255),), np.dtype(np.float32))
    store = NarrowStore(
        narrow,
        FrameStore(Layout((6, 5), np.uint8), block_frames=2),
        FrameStore(Layout((6, 5), np.float32), codec="zstd:1", block_frames=1),
    )
    rng = np.random.default_rng(0)
    tensors = (rng.integers(0, 256, (60, 6, 5)) / 255).astype(np.float32)
    tensors[::3] = rng.normal(size=(20, 6, 5))
    array = TensorArray(store.append(tensors), store)
    for which in (slice(None), slice(0, None, 3), slice(1, None, 3), [5, 0, 5]):
        message = EncodedBatch.of(DeferredRead(lambda which=which: [array[which], array[:2]])).to_bytes()
        first, second = EncodedBatch.from_bytes(message).read()
        assert np.array_equal(first, tensors[which])
        assert np.array_equal(second, tensors[:2])


def test_a_store_that_has_changed_its_codec_is_sent_from_both():
    store = AutoStore(Layout((4, 24, 24), np.uint8), frame_stack=4, codec="delta-rle", decide_after=8)
    seen = np.random.default_rng(0).integers(0, 3, (200, 24, 24), np.uint8)
    stacks = np.lib.stride_tricks.sliding_window_view(seen, 4, axis=0).transpose(0, 3, 1, 2)
    array = TensorArray(store.append(stacks), store)
    for _ in range(2):
        message = EncodedBatch.of(DeferredRead(lambda: array[::5])).to_bytes()
        assert np.array_equal(EncodedBatch.from_bytes(message).read(), stacks[::5])
        store.decide()


def with_checksum(content):
    return b"obsb\x01\x00" + xxhash.xxh3_64_intdigest(content).to_bytes(8, "little") + content


def test_a_message_that_is_altered_is_refused_or_read_without_harm(ring):
    rng = np.random.default_rng(0)
    messages = [ring.sample(n, n, to="encoded").to_bytes()[HEAD:] for n in (1, 8)]
    refused = 0
    for _ in range(1500):
        content = bytearray(messages[rng.integers(2)])
        for _ in range(rng.integers(1, 4)):
            end = len(content) if rng.random() < 0.4 else 4000
            content[rng.integers(min(end, len(content)))] = rng.integers(256)
        if rng.random() < 0.2:
            del content[rng.integers(len(content)) :]
        try:
            EncodedBatch.from_bytes(with_checksum(bytes(content)), max_bytes=1 << 24).read()
        except CorruptStream:
            refused += 1
    assert refused > 100


def test_what_is_no_message_is_refused(ring):
    message = ring.sample(4, 0, to="encoded").to_bytes()
    for wrong in (
        b"",
        b"obsb",
        message[:-1],
        message + b"x",
        b"x" * 100,
        with_checksum(b""),
        with_checksum(b"\0" * 40),
    ):
        with pytest.raises(CorruptStream):
            EncodedBatch.from_bytes(wrong)
    with pytest.raises(CorruptStream, match="format 2"):
        EncodedBatch.from_bytes(message[:4] + b"\x02" + message[5:])
    with pytest.raises(CorruptStream):
        EncodedBatch.from_bytes(message, max_bytes=1000)


def without_memory(*_):
    raise MemoryError


def test_a_message_that_fails_has_sent_and_brought_nothing(ring, monkeypatch):
    sent, received, batch = Sent(), Received(), ring.sample(20, 0, to="encoded")
    monkeypatch.setattr(encoded_batch, "format_message", without_memory)
    with pytest.raises(MemoryError):
        batch.to_bytes(sent)
    monkeypatch.undo()
    message = batch.to_bytes(sent)
    monkeypatch.setattr(encoded_batch, "_check", without_memory)
    with pytest.raises(MemoryError):
        EncodedBatch.from_bytes(message, received)
    monkeypatch.undo()
    equal(EncodedBatch.from_bytes(message, received).read(), ring.sample(20, 0))
    later = ring.sample(20, 1, to="encoded").to_bytes(sent)
    assert len(later) < len(message)
    equal(EncodedBatch.from_bytes(later, received).read(), ring.sample(20, 1))


def test_a_log_has_no_number_of_one_that_is_gone():
    rng, sent, received = np.random.default_rng(0), Sent(), Received()
    arrays = []
    for k in range(4):
        store = FrameStore(Layout((24, 24), np.uint8), codec="zstd:3", block_frames=1)
        tensors = rng.integers(0, 2, (300, 24, 24), np.uint8) * np.uint8(1 + k)
        ids = store.append(tensors)
        store.log.train()
        arrays = [*arrays[-1:], (TensorArray(np.append(ids, store.append(tensors[::-1])), store), tensors)]
        del store, ids
        gc.collect()
        for array, wanted in arrays:
            message = EncodedBatch.of(DeferredRead(lambda array=array: array[::7])).to_bytes(sent)
            whole = np.concatenate([wanted, wanted[::-1]])
            assert np.array_equal(EncodedBatch.from_bytes(message, received).read(), whole[::7])


class Plain(FrameStore):
    """A store of somebody else, which does not say how its tensors are stored."""

    parts = Store.parts


def test_a_store_that_does_not_say_how_it_keeps_tensors_decodes_them():
    store, rng = Plain(Layout((6, 5), np.float32)), np.random.default_rng(0)
    tensors = rng.normal(size=(40, 6, 5)).astype(np.float32)
    array = TensorArray(store.append(tensors), store)
    message = EncodedBatch.of(DeferredRead(lambda: array[3::2])).to_bytes()
    assert np.array_equal(EncodedBatch.from_bytes(message).read(), tensors[3::2])


@pytest.mark.parametrize(
    "values", ["[]", "7", '{"leaves": [7]}', '{"leaves": [{"parts": "x"}]}', "[" * 5000, "{}", '{"leaves": [[]]}']
)
def test_values_of_another_kind_are_refused(values):
    content = format_arrays({"$values": np.frombuffer(values.encode(), np.uint8)})
    with pytest.raises(CorruptStream):
        EncodedBatch.from_bytes(with_checksum(content))


@pytest.mark.parametrize("chosen", [[0, 1 << 62, 1 << 62], [0, 1 << 61], [1] * 62 + [0], [1] * 3 + [True]])
def test_a_selection_of_a_shape_that_no_array_has_is_refused(chosen):
    store = FrameStore(Layout((5, 4), np.float32))
    array = TensorArray.zeros((3, 2), store)
    batch = EncodedBatch.of(DeferredRead(lambda: {"a": array[:0], "b": array[:1]}))
    batch._batch["a"]["chosen"] = chosen
    with pytest.raises(CorruptStream):
        EncodedBatch.from_bytes(batch.to_bytes())


def test_items_may_have_as_many_axes_as_numpy_has():
    array = TensorArray.zeros((3, 2), FrameStore(Layout((1,) * 61 + (4,), np.uint8)))
    message = EncodedBatch.of(DeferredRead(lambda: array[1:])).to_bytes()
    assert EncodedBatch.from_bytes(message).read().shape == (2, 2, *(1,) * 61, 4)


def test_nothing_is_converted_that_is_not_decoded(ring):
    with pytest.raises(SpecError, match="leave it out"):
        ring.sample(3, to="encoded", convert=list)
