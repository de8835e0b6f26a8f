"""Arrays that share stores are written as if each had its own; environments that take turns are told apart."""

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from faults import at_every_line
from obscodec import AutoStore, FrameStore, HeapFull, Layout, ShapeError, TensorArray
from obscodec.arrays import BorrowedArray, Index
from obscodec_torchrl.new_tensors import NewTensors, append_together, interleaved_envs

FRAME = (20, 20)


def frames(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *FRAME), np.uint8)


@pytest.fixture
def store() -> FrameStore:
    return FrameStore(Layout(FRAME, np.uint8), codec="raw", block_frames=1)


@pytest.mark.parametrize("batch", [(), (0,), (7,), (400,), (5, 3), (2, 3, 4)])
@pytest.mark.parametrize("make", [FrameStore, AutoStore])
def test_arrays_of_several_stores_hold_what_they_were_given(batch: tuple[int, ...], make: type) -> None:
    one, other = make(Layout(FRAME, np.uint8)), make(Layout((1200,), np.uint8))
    n = math.prod(batch)
    given = {
        "obs": frames(n + 1)[:-1].reshape(*batch, *FRAME),
        "next_obs": frames(n + 1)[1:].reshape(*batch, *FRAME),
        "other": np.full((*batch, 1200), 3, np.uint8),
    }
    stores = {"obs": one, "next_obs": one, "other": other}
    arrays = {name: TensorArray.zeros(batch, store) for name, store in stores.items()}
    together = append_together(given, arrays, ...)
    assert len(together) == 2
    for new in together:
        new.put()
    for name, array in arrays.items():
        assert np.array_equal(array[...], given[name])


def test_a_batch_that_is_stored_in_several_calls_comes_back_in_order() -> None:
    store = FrameStore(Layout((50, 1000), np.uint8), codec="raw")
    noise = np.random.default_rng(0).integers(0, 256, (101, 50, 1000), np.uint8)  # twice 5 MB
    obs, next_obs = (TensorArray.zeros((100,), store) for _ in range(2))
    NewTensors([obs, next_obs], [noise[:-1], noise[1:]], ...).put()
    assert np.array_equal(obs[...], noise[:-1])
    assert np.array_equal(next_obs[...], noise[1:])
    assert store.stats().n_tensors == 101


@pytest.mark.parametrize("make", [FrameStore, AutoStore])
def test_what_another_store_encodes_is_decoded(store: FrameStore, make: type) -> None:
    other = make(Layout(FRAME, np.uint8))
    given = [TensorArray(other.append(frames(3, seed)), other) for seed in range(2)]
    arrays = [TensorArray.zeros((3,), store) for _ in range(2)]
    NewTensors(arrays, given, ...).put()
    for seed, array in enumerate(arrays):
        assert np.array_equal(array[...], frames(3, seed))


def test_few_compressed_tensors_are_decoded_at_a_time(store: FrameStore) -> None:
    layout = Layout((4, 84, 84), np.uint8)
    other, store = FrameStore(layout), FrameStore(layout, codec="zstd:1")
    stacks = np.zeros((400, *layout.shape), np.uint8)
    stacks[np.arange(400), :, :, np.arange(400) % 84] = 1
    given = [TensorArray(other.append(part), other) for part in (stacks, np.roll(stacks, -1, axis=0))]
    arrays = [TensorArray.zeros((10 * len(stacks),), store) for _ in range(2)]
    many = [BorrowedArray(np.tile(array.ids, 10), other, array) for array in given]
    NewTensors(arrays, many, ...)  # which has compiled all
    tracemalloc.start()
    NewTensors(arrays, many, ...).put()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert arrays[0].nbytes > 100 << 20
    assert peak < 16 << 20
    for array, of in zip(arrays, given, strict=True):
        assert np.array_equal(array[-400:], of[...])


def test_a_refused_array_leaves_nothing_behind() -> None:
    arrays = {
        "a": TensorArray.zeros((60,), FrameStore(Layout(FRAME, np.uint8))),
        "b": TensorArray.zeros((60,), FrameStore(Layout((5,), np.uint8))),
    }
    with pytest.raises(ShapeError, match=r"^items have shape \(n, 5\), got \(3, 6\)$"):
        append_together({"a": frames(3), "b": np.zeros((3, 6), np.uint8)}, arrays, slice(3))
    assert arrays["a"].store.stats().n_tensors == 0
    full = FrameStore(Layout((50, 1000), np.uint8), codec="raw", block_frames=1, max_bytes=1 << 20)
    noise = np.random.default_rng(0).integers(0, 256, (60, 50, 1000), np.uint8)
    together = [TensorArray.zeros((60,), full) for _ in range(2)]
    with pytest.raises(HeapFull) as refused:
        NewTensors(together, [noise, noise], ...)
    assert refused.tb is not None  # which has the frames
    assert full.stats().n_tensors == 0


def test_tensors_that_nobody_put_are_dropped(store: FrameStore) -> None:
    new = NewTensors([TensorArray.zeros((10,), store)], [frames(3)], slice(3))
    assert store.stats().n_tensors == 3
    del new
    assert store.stats().n_tensors == 0


def test_of_several_places_for_one_item_the_last_stays(store: FrameStore) -> None:
    arrays = [TensorArray.zeros((10,), store) for _ in range(2)]
    for array in arrays:
        array[[0, 4]] = frames(2, seed=1)
    new = NewTensors(arrays, [frames(3), frames(3, seed=2)], [4, 2, 4])
    new.put()
    del new
    for array, seed in zip(arrays, (0, 2), strict=True):
        assert np.array_equal(array[[0, 2, 4]], np.stack([frames(2, seed=1)[0], *frames(3, seed)[1:]]))
    assert store.stats().n_tensors == 5  # of which row 0 of both arrays is one


def test_what_is_replaced_stays_until_all_are_put(store: FrameStore) -> None:
    array = TensorArray.zeros((3,), store)
    array[...] = frames(3)
    before, new = array.ids.copy(), NewTensors([array], [frames(3, seed=1)], ...)
    new.put()
    assert np.array_equal(store.read(before), frames(3))
    del new
    assert store.stats().n_tensors == 3


@pytest.mark.parametrize("index", [slice(1, 4), [4, 2, 4]])
def test_what_was_put_is_taken_back_without_reading_or_storing(
    store: FrameStore, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [TensorArray.zeros((6,), store) for _ in range(2)]
    for seed, array in enumerate(arrays):
        array[:3] = frames(3, seed)
    before, n_before = [array.ids.copy() for array in arrays], store.stats().n_tensors
    new = NewTensors(arrays, [frames(3, seed=7), frames(3, seed=8)], index)
    new.undo()  # of nothing
    new.put()
    assert not np.array_equal(arrays[0].ids, before[0])
    with monkeypatch.context() as patch:
        patch.setattr(FrameStore, "take_in", None)
        patch.setattr(FrameStore, "read_into", None)
        new.undo()
    del new
    for seed, (array, ids) in enumerate(zip(arrays, before, strict=True)):
        assert np.array_equal(array.ids, ids)
        assert np.array_equal(array[:3], frames(3, seed))
    assert store.stats().n_tensors == n_before


def test_a_put_that_is_interrupted_anywhere_can_be_undone(store: FrameStore) -> None:
    arrays = [TensorArray.zeros((3,), store) for _ in range(2)]
    for seed, array in enumerate(arrays):
        array[...] = frames(3, seed)
    ids, made, n_interrupts = [array.ids.copy() for array in arrays], [], 0

    def prepare() -> Callable[[], None]:
        made[:] = [NewTensors(arrays, [frames(3, seed=7), frames(3, seed=8)], ...)]
        return made[0].put

    for where in at_every_line(prepare):
        made[0].undo()
        made.clear()
        n_interrupts += 1
        assert [array.ids.tolist() for array in arrays] == [before.tolist() for before in ids], where
        assert np.array_equal(arrays[1][...], frames(3, 1)), where
        assert store.stats().n_tensors == 6, where
    assert n_interrupts > 30


def taking_turns(n_envs: int, n_steps: int, episode: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Noise that nobody has twice; ``[n_steps, n_envs]`` as one axis, with an episode that ends every so often."""
    drawn = np.random.default_rng(n_envs).integers(0, 256, (n_steps + 1, n_envs, *FRAME), np.uint8)
    following = drawn[1:].copy()
    following[episode - 1 :: episode] ^= 1  # then another observation follows
    return drawn[:-1].reshape(-1, *FRAME), following.reshape(-1, *FRAME)


@pytest.mark.parametrize("n_envs", [1, 2, 3, 8, 64])
def test_the_number_of_environments_is_found(n_envs: int) -> None:
    assert interleaved_envs(*taking_turns(n_envs, 40)) == n_envs


def test_what_shows_no_turns_is_one_stream() -> None:
    observations, following = taking_turns(1, 100)
    assert interleaved_envs(observations[:0], following[:0]) == 1
    assert interleaved_envs(observations[:1], following[:1]) == 1
    shuffled = np.random.default_rng(0).permutation(100)
    assert interleaved_envs(observations[shuffled], following[shuffled]) == 1
    assert interleaved_envs(*taking_turns(65, 3)) == 1
    still = np.zeros((50, *FRAME), np.uint8)
    assert interleaved_envs(still, still) == 1


@pytest.mark.parametrize("batch", [(50, 12), (50, 4, 3), (200, 3), (600,)])
def test_each_environment_and_each_of_its_agents_is_a_stream(batch: tuple[int, ...]) -> None:
    store = FrameStore(Layout(FRAME, np.uint8))
    arrays = [TensorArray.zeros(batch, store) for _ in range(2)]
    observations, following = (frames.reshape(*batch, *FRAME) for frames in taking_turns(12, 50, episode=10**9))
    for part in (slice(begin, begin + batch[0] // 5) for begin in range(0, batch[0], batch[0] // 5)):
        NewTensors(arrays, [observations[part], following[part]], part).put()
    assert store.stats().n_tensors == 12 * 51
