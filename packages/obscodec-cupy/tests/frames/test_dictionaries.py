"""Dictionaries of LZ4 on a device: each is there before the first block that needs it, as long as one does."""

import pickle

import numpy as np
import pytest
from cuda_on_cpu.fixtures import full_after
from mirrors import SCENE, appended, scenes
from obscodec import FrameStore, HeapFull, TensorArray
from obscodec.frames import trained_codecs
from obscodec_cupy import BatchReader
from obscodec_cupy.backend import CudaBackend
from stores_in_pairs import read

N_EARLY = 240  # of the frames, which have a language in common
FRAMES = np.concatenate([scenes(60, 1), scenes(90, 90)])


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codecs learn from a few blocks, and again."""
    monkeypatch.setattr(trained_codecs, "_N_SAMPLES", 16)
    monkeypatch.setattr(trained_codecs, "_MIN_GAIN", 9)


def new_store(heap: str = "device") -> FrameStore:
    return FrameStore(SCENE, block_frames=4, codec="delta-rle|lz4:9", device="cuda", heap=heap)


@pytest.mark.slow
@pytest.mark.parametrize("heap", ["device", "pinned"])
def test_a_dictionary_is_there_before_the_first_block_that_needs_it(cuda: str, heap: str) -> None:
    store, ids = new_store(heap), np.zeros(0, np.int64)
    for begin in range(0, len(FRAMES), 40):
        ids = np.append(ids, appended(store, FRAMES[begin : begin + 40]))
        np.testing.assert_array_equal(read(store, ids), FRAMES[: len(ids)])
    assert set(store.log.tables.versions[ids // 4].tolist()) == {0, 1, 2, 3}
    restored = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(read(restored, ids), FRAMES)


def test_dictionaries_that_no_block_needs_are_given_back(simulated) -> None:
    device, store = simulated(seed=1), new_store()
    ids = appended(store, FRAMES)
    np.testing.assert_array_equal(read(store, ids), FRAMES)
    mirror = store.device_reader(np.zeros(0, np.int64))[0].mirror
    assert mirror._versions == {1, 2, 3}
    before = device.free
    is_old = store.log.tables.versions[ids // 4] != 3
    store.release(ids[is_old])
    np.testing.assert_array_equal(read(store, ids[~is_old]), FRAMES[~is_old])
    assert mirror._versions == {3}
    device.synchronize()
    device.keep(None)
    assert device.free > before + 3000
    again = store.append(FRAMES[:80])
    np.testing.assert_array_equal(read(store, again), FRAMES[:80])


def test_a_launch_that_was_prepared_reads_blocks_of_later_versions(simulated) -> None:
    device = simulated(seed=1)
    array = TensorArray.zeros((len(FRAMES),), new_store())
    reader, places = BatchReader([array]), device.upload(np.arange(len(FRAMES)))
    out = device.empty(FRAMES.shape, np.uint8)
    for end in (20, N_EARLY, len(FRAMES)):
        array[:end] = FRAMES[:end]
        reader.sync()
        reader.read(places, [out])
        np.testing.assert_array_equal(device.download(out)[:end], FRAMES[:end])
    assert len(reader._known) == 1


@pytest.mark.parametrize("calls", range(6))
def test_a_sync_that_failed_has_all_dictionaries_come_again(simulated, calls: int) -> None:
    device, store = simulated(seed=1), new_store()
    ids = store.append(FRAMES[:20])
    np.testing.assert_array_equal(read(store, ids), FRAMES[:20])
    ids = np.append(ids, store.append(FRAMES[20:]))
    out = device.empty(FRAMES.shape, np.uint8)
    with full_after(device, calls), pytest.raises(HeapFull):
        store.read_into(ids, out)
    np.testing.assert_array_equal(read(store, ids), FRAMES)


@pytest.mark.parametrize(("spec", "decoded"), [
    ("delta-rle", True), ("raw", True), ("delta-rle|lz4", True), ("delta-rle|lz4:12", True), ("delta-rle|lz4:-7", True),
    ("delta-rle|zstd:3", False), ("lz4", False), ("shuffle|delta-rle|lz4", False),
    ("delta-rle|lz4|zstd:3", False), ("raw|lz4", False),
])  # fmt: skip
def test_what_is_decoded_on_a_device(spec: str, decoded: bool) -> None:
    assert CudaBackend().decodes(spec, 16) == decoded
    assert CudaBackend().decodes(spec, 1) == decoded
