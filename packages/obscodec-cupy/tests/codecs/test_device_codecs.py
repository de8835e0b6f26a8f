"""The codecs of a device against those of the CPU: the same streams, and the same items from them."""

import numpy as np
import pytest
from atari_frames import frames
from cuda_on_cpu.device import SimulatedDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import Layout
from obscodec_cupy.device.device import Device
from side_by_side import Pair

SPECS = ["rle", "delta-rle"]
GAMES = ["MsPacman", "Pong", "Breakout"]
# Sizes around 4, 8, 16, 32 and 128 bytes, and around a tile of 8 KiB; no axes, no bytes, no frames.
GEOMETRIES: list[tuple[tuple[int, ...], str]] = [
    ((), "uint8"),
    ((), "float64"),
    ((0,), "uint8"),
    ((3, 0), "float32"),
    ((0, 5), "uint8"),
    ((0, 2**40), "uint8"),
    ((1,), "bool"),
    ((2, 3), "int8"),
    ((3, 31), "uint8"),
    ((2, 32), "uint8"),
    ((2, 33), "uint8"),
    ((2, 5, 13), "uint16"),
    ((4, 127), "float16"),
    ((3, 41), "int32"),
    ((2, 7, 9), "float32"),
    ((3, 21), "uint64"),
    ((2, 17), "complex64"),
    ((2, 33), "complex128"),
    ((2, 11), "longdouble"),
    ((2, 8191), "uint8"),
    ((2, 8192), "uint8"),
    ((1, 67_001), "uint8"),
    ((2, 2, 10_007), "uint32"),
]
IDS = [f"{dtype}{list(shape)}" for shape, dtype in GEOMETRIES]


def sparse(rng: np.random.Generator, layout: Layout, n: int, share: float) -> np.ndarray:
    """``u8[n, nbytes]``: bytes that change from one to the next with a probability, within a row and between frames."""
    changes = rng.random((n, layout.nbytes)) < share
    return np.cumsum(changes, axis=1, dtype=np.uint8) if share < 0.5 else rng.integers(0, 256, changes.shape, np.uint8)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("shape", "dtype"), GEOMETRIES, ids=IDS)
def test_every_geometry(device: Device, spec: str, shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    pair = Pair(device, spec, Layout(shape, dtype))
    for share in (0, 0.01, 0.2, 1):
        pair.check(sparse(rng, pair.layout, 3, share))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "complex64"])
@pytest.mark.parametrize("shift", [1, 4, 8])
def test_addresses_that_are_not_aligned(device: Device, spec: str, dtype: str, shift: int) -> None:
    rng = np.random.default_rng(shift)
    pair = Pair(device, spec, Layout((3, 23), dtype))
    for share in (0.02, 0.3, 1):
        pair.check(sparse(rng, pair.layout, 3, share), shift)


@pytest.mark.parametrize("game", GAMES)
def test_real_frames(device: Device, game: str) -> None:
    played = frames(game, 32, seed=0)
    Pair(device, "rle", Layout((84, 84), "uint8")).check(played[:8].reshape(8, -1))
    blocks = Layout((16, 84, 84), "uint8")
    Pair(device, "delta-rle", blocks).check(played.reshape(2, -1))
    fitted = Pair(device, "delta-rle", blocks).cpu.fit(frames(game, 320, seed=1).reshape(20, 16, 84, 84))
    assert fitted.dictionary
    Pair(device, "delta-rle", blocks, fitted.dictionary).check(played.reshape(2, -1))


@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("spec", SPECS)
def test_every_schedule(spec: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = Pair(SimulatedDevice(seed=seed), spec, Layout((3, 9001), "uint8"))
    pair.check(np.concatenate([sparse(rng, pair.layout, 1, share) for share in (0.001, 0.1, 1)]))


@pytest.mark.parametrize("spec", SPECS)
def test_masks_and_images_of_floats(device: Device, spec: str) -> None:
    rows, columns = np.mgrid[:40, :52]
    discs = [(rows - 20) ** 2 + (columns - 7 * k) ** 2 < 90 + 10 * k for k in range(4)]
    masks = np.stack(discs)
    Pair(device, spec, Layout((40, 52), "bool")).check(masks.reshape(4, -1).view(np.uint8))
    images = (masks * np.float32(0.1)).reshape(1, -1).view(np.uint8)
    Pair(device, spec, Layout((4, 40, 52), "float32")).check(images)


@pytest.mark.parametrize("spec", SPECS)
def test_elements_that_only_look_alike(device: Device, spec: str) -> None:
    x = np.array([0.0, -0.0, np.nan, -np.nan, 0.0, 0.0, np.inf, np.inf, -0.0])
    Pair(device, spec, Layout((9,), "float64")).check(x.view(np.uint8)[None])
    Pair(device, spec, Layout((3, 3), "float64")).check(x.view(np.uint8)[None])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("length", [1, 127, 128, 129, 16_383, 16_384])
def test_runs_of_rle_of_every_size(device: Device, dtype: str, length: int) -> None:
    x = np.repeat(np.array([1, 2, 1], dtype), [length, 5, length])
    Pair(device, "rle", Layout(x.shape, dtype)).check(x.view(np.uint8)[None])


@pytest.mark.parametrize("gap", [0, 1, 2, 3, 4, 5, 7, 31, 127, 128])
@pytest.mark.parametrize("length", [1, 2, 8, 9, 32, 127, 128, 2000])
def test_runs_and_gaps_of_delta_rle_of_every_size(device: Device, gap: int, length: int) -> None:
    changed = np.resize(np.repeat([True, False], [length, gap]), 4100)
    block = np.stack([changed, ~changed, changed]).astype(np.uint8)
    Pair(device, "delta-rle", Layout(block.shape, "uint8")).check(block.reshape(1, -1))


@pytest.mark.slow
def test_runs_of_more_than_two_megabytes(device: Device) -> None:
    x = np.zeros((1, (1 << 21) + 300), np.uint8)
    x[0, 100:-5] = 1  # a length of 4 bytes
    Pair(device, "rle", Layout(x.shape[1:], "uint8")).check(x)
    Pair(device, "delta-rle", Layout(x.shape, "uint8")).check(x)


@pytest.mark.parametrize(
    ("dtype", "shift"), [("uint8", 0), ("uint8", 1), ("uint16", 4), ("uint32", 1), ("uint64", 0), ("uint64", 4)]
)
def test_items_whose_runs_are_as_long_as_they_are(device: Device, dtype: str, shift: int) -> None:
    """A byte less, as long, a byte more, and a count of two bytes: such with runs and such without, side by side."""
    n = 258
    lengths = [[2] * k + [1] * (n - 2 * k - m) + ([m] if m else []) for k in (0, 1, 126, 128) for m in (0, 1, 2)]
    lengths += [[1] * k + [n - k] for k in range(1, n)]  # through every size
    items = np.stack([np.repeat(np.arange(len(run)) % 250, run) for run in lengths]).astype(dtype)
    pair = Pair(device, "rle", Layout((n,), dtype))
    rows = items.view(np.uint8)
    assert {stream[0] == 0 for stream in pair.encode_on_cpu(rows)} == {False, True}
    pair.check(rows, shift)


@pytest.mark.parametrize(("shape", "shift"), [((1, 300), 1), ((5, 61), 4), ((350, 2), 0), ((3, 9000), 1)])
def test_items_whose_patches_are_as_long_as_they_are(device: Device, shape: tuple[int, int], shift: int) -> None:
    """Somewhat shorter, as long, longer, and noise: such with patches and such without, side by side."""
    pair, n = Pair(device, "delta-rle", Layout(shape, "uint8")), shape[0] * shape[1]
    changed = np.arange(shape[1]) < np.arange(shape[1] + 1)[-9:][:, None, None]
    runs = np.cumsum(np.broadcast_to(changed, (len(changed), *shape)), axis=1, dtype=np.uint8).reshape(-1, n)
    few = np.zeros((24, n), np.uint8)  # of one more frame each that changes everywhere
    for k, row in enumerate(few):
        row[n // 24 * (24 - k) :] = np.resize([1, 2, 3, 4, 5, 7, 9], n - n // 24 * (24 - k))
    rows = np.concatenate([runs, few, np.random.default_rng(0).integers(256, size=(2, n), dtype=np.uint8)])
    assert {stream[0] for stream in pair.encode_on_cpu(rows)} == {0, 127}
    pair.check(rows, shift)


def test_a_batch_of_more_streams_than_threads(device: Device) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (1500, 6), np.uint8)
    Pair(device, "rle", Layout((6,), "uint8")).check(rows)


def test_items_of_more_frames_than_threads(device: Device) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (2, 700), np.uint8)
    Pair(device, "delta-rle", Layout((700,), "uint8")).check(rows)


@pytest.mark.parametrize("nbytes", [7, 8, 15, 16, 24, 33, 700])
def test_the_reference_is_the_nearest_by_words(device: Device, nbytes: int) -> None:
    rng = np.random.default_rng(nbytes)
    references = rng.integers(0, 3, (40, nbytes), np.uint8)
    references[1] = references[0]  # the first one of equal ones
    pair = Pair(device, "delta-rle", Layout((1, nbytes), "uint8"), references.tobytes())
    rows = np.concatenate([references[:12], np.zeros((1, nbytes), np.uint8)])
    rows[3:, -1] += 1  # behind the last whole word, where nothing counts, or in it
    rows[6:9, 0] += 1
    pair.check(rows)


@st.composite
def batches(draw: st.DrawFn) -> np.ndarray:
    """``u8[n, n_frames, nbytes]`` of frames that change in few places, in many, or everywhere."""
    n, n_frames, nbytes = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.sampled_from([1, 37, 64, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    first = rng.integers(256, size=nbytes, dtype=np.uint8) * draw(st.booleans())
    changed = rng.random((n, n_frames, nbytes)) < draw(st.sampled_from([0, 0.003, 0.05, 0.2, 0.5, 1]))
    return first + np.cumsum(changed, axis=1, dtype=np.uint8)


@given(batches(), st.integers(0, 3), st.booleans())
@settings(max_examples=25, deadline=None)
def test_made_up_batches(batch: np.ndarray, seed: int, has_dictionary: bool) -> None:
    device = SimulatedDevice(seed=seed)
    layout = Layout(batch.shape[1:], "uint8")
    rows = batch.reshape(len(batch), -1)
    Pair(device, "rle", layout).check(rows)
    Pair(device, "delta-rle", layout, batch[0].tobytes() if has_dictionary else b"").check(rows)
