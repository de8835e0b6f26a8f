"""What ``auto`` chooses, and what it says about it."""

import numpy as np
import pytest
from atari_frames import frames
from obscodec import Field, Layout, codec
from obscodec.stats import Trial
from obscodec.stores import StoreOptions
from obscodec.stores.auto.choice import _by_cost, choose

STREAMS, OPTIONS = np.zeros(300, np.int64), StoreOptions()


@pytest.mark.parametrize("n", [17, 40, 300])
def test_noise_stays_raw(n):
    """Although the first frame of each block costs nothing where it becomes a reference."""
    noise = np.random.default_rng(0).integers(256, size=(n, 84, 84), dtype=np.uint8)
    choice = choose(noise, STREAMS[:n], OPTIONS)
    assert choice.chosen.spec == "raw"
    assert choice.chosen.frame_bytes <= 84 * 84 + 1


def test_the_smallest_of_the_fast_ones_is_chosen():
    choice = choose(frames("Breakout", 320, 0)[:300], STREAMS, OPTIONS)
    fast = [trial for trial in choice.trials if trial.fits]
    assert choice.chosen in fast
    assert choice.chosen.frame_bytes == min(trial.frame_bytes for trial in fast)
    why = "the smallest codec that reads as fast as plain arrays"
    assert choice.reason == f"{why}, on the first 300 frames"
    layout = Layout((84, 84), np.uint8)
    assert [codec(trial.spec, layout).spec for trial in choice.trials] == [trial.spec for trial in choice.trials]


def test_frames_that_only_a_slow_codec_shrinks_get_one():
    """They have eight values, at random: three bits each."""
    choice = choose(np.random.default_rng(0).integers(8, size=(300, 84, 84), dtype=np.uint8), STREAMS, OPTIONS)
    assert choice.chosen.frame_bytes < 84 * 84 / 2
    fast = min(trial.frame_bytes for trial in choice.trials if trial.fits)
    saved = f"{1 - choice.chosen.frame_bytes / fast:.0%}"
    why = f"{saved} smaller than any codec that reads as fast as plain arrays"
    assert choice.reason == f"{why}, on the first 300 frames"
    assert not choice.chosen.fits


def hills(n: int, *, moving: bool = True) -> np.ndarray:
    """``u8[n, 64, 64, 3]``: soft hills with some noise, as a camera sees them; all new in each frame, or moving by."""
    rng = np.random.default_rng(0)
    steps = np.arange(n)[:, None, None] * (3 if moving else 40)
    y, x = np.mgrid[:64, :64]
    height = 90 + 50 * np.sin((x + steps) / 9) + 40 * np.cos((y - steps) / 13)
    seen = height[..., None] + rng.normal([0, 8, 15], 1, (64, 64, 3) if moving else (n, 64, 64, 3))
    return np.clip(seen, 0, 255).astype(np.uint8)


def tiles(n: int) -> np.ndarray:
    """``u8[n, 64, 64]``: 16 squares of random brightness, the lower 8 all new in each frame."""
    brightness = np.random.default_rng(0).integers(1, 256, (n, 4, 4), np.uint8)
    brightness[:, :2] = 7
    return brightness.repeat(16, axis=1).repeat(16, axis=2)


def test_large_patches_that_become_small_enough_are_kept():
    """Half of each frame is new, in squares of one value, and half of all frames return."""
    choice = choose(tiles(256), STREAMS[:256], OPTIONS, n_seen=512)
    assert choice.chosen.spec == "delta-rle|lz4:6"
    assert not choice.chosen.fits
    assert choice.reason == "so small that no slow codec is needed, on the first 256 frames"
    assert choose(tiles(256), STREAMS[:256], OPTIONS, n_seen=512, thorough=True).chosen == choice.chosen


@pytest.mark.parametrize(
    ("seen", "are_small"),
    [(frames("Pong", 320, 0)[:256], True), (hills(256, moving=False), False)],
    ids=["game", "texture"],
)
def test_codecs_of_patches_are_fast_where_patches_are_small(seen, are_small):
    trials = choose(seen, STREAMS[:256], OPTIONS, thorough=True).trials
    fits = {trial.spec: trial.fits for trial in trials if trial.spec.startswith("delta-rle")}
    assert fits == {"delta-rle": are_small, "delta-rle|lz4:6": are_small, "delta-rle|zstd:3": False}
    costs = {trial.spec: trial.cost for trial in trials}
    assert costs["delta-rle|zstd:3"] > costs["delta-rle|lz4:6"] > costs["delta-rle"]


@pytest.mark.parametrize(
    ("seen", "specs"),
    [
        (hills(256, moving=False), {"raw"}),
        (np.random.default_rng(0).integers(8, size=(256, 84, 84), dtype=np.uint8), {"raw"}),
        (tiles(256), {"raw", "delta-rle"}),
        (frames("Pong", 320, 0)[:256], {"raw", "delta-rle", "delta-rle|lz4:6"}),
    ],
    ids=["texture", "eight values", "tiles", "game"],
)
def test_a_fast_budget_takes_no_slow_codec(seen, specs):
    choice = choose(seen, STREAMS[:256], StoreOptions(budget="fast"))
    assert {trial.spec for trial in choice.trials} == {"raw", "delta-rle", "delta-rle|lz4:6"}
    assert {trial.spec for trial in choice.trials if trial.fits} == specs
    assert choice.chosen.frame_bytes == min(trial.frame_bytes for trial in choice.trials if trial.fits)
    why = "the smallest codec that reads as fast as plain arrays, since budget='fast' leaves out the others"
    assert choice.reason == f"{why}, on the first 256 frames"


def test_blocks_are_larger_where_frames_resemble_the_one_before():
    still = np.repeat(hills(16, moving=False), 16, axis=0)
    still[:, :2, :2] = np.arange(256)[:, None, None, None]  # no two are equal
    alone = choose(hills(256, moving=False), STREAMS[:256], OPTIONS)
    assert alone.chosen.block_frames == 1
    assert choose(still, STREAMS[:256], OPTIONS).chosen.block_frames == 16


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize(("n_colours", "suits"), [(100, ["palette", "pred"]), (1 << 24, ["pred"])])
def test_one_codec_for_images_is_tried_unless_all_are_asked_for(n_colours, suits, thorough):
    seen = hills(64, moving=False)
    if n_colours == 100:
        seen = np.repeat(np.minimum(seen[..., :1] // 2 * 2, 240), 3, axis=-1) + np.arange(3, dtype=np.uint8)
    trials = choose(seen, STREAMS[:64], OPTIONS, thorough=thorough).trials
    found = list(dict.fromkeys(trial.spec for trial in trials if trial.spec.startswith(("palette", "pred"))))
    assert found == (suits if thorough else suits[:1])


def depths(n: int, *, noise: float = 0) -> np.ndarray:
    """``f64[n, 48, 64]``: ground that a camera moves over, and a wall, with some noise."""
    y, x = np.mgrid[:48, :64]
    at = np.arange(n)[:, None, None]
    seen = np.where((x - 3 * at) % 64 > 40, 2 + x / 300 + at / 50, 90 / (3 + y / 4 + np.cos(x / 30 + at)))
    return seen + noise * np.random.default_rng(0).normal(0, 1, seen.shape)


@pytest.mark.parametrize(
    ("seen", "chosen", "tried"),
    [
        (depths(64).astype(np.float32), "lorenzo|shuffle|pred", {"shuffle|pred", "lorenzo|shuffle|pred"}),
        (depths(64, noise=0.01).astype(np.float32), "shuffle|pred", {"shuffle|pred", "lorenzo|shuffle|pred"}),
        (depths(64).astype(np.float16), "pred", {"pred"}),
        ((1000 * depths(64)).astype(np.int32), "lorenzo|shuffle|pred", {"shuffle|pred", "lorenzo|shuffle|pred"}),
        (depths(64).astype(np.float32).reshape(64, -1), "shuffle|zstd:1", set()),
        ((30 * depths(64, noise=0.2)).astype(np.uint8), "pred", {"pred"}),
    ],
    ids=["smooth", "rough", "float16", "millimetres", "vectors", "bytes"],
)
def test_codecs_for_images_of_numbers(seen, chosen, tried):
    choice = choose(seen, STREAMS[:64], OPTIONS)
    assert {trial.spec for trial in choice.trials if trial.spec.endswith("pred")} == tried
    assert choice.chosen.spec == chosen
    assert any(trial.spec.startswith("shuffle") for trial in choice.trials) == (seen.dtype.itemsize > 1)


def test_slow_codecs_are_tried_only_if_no_fast_one_is_good_enough():
    played = frames("MsPacman", 320, 0)[:300]
    quick, thorough = choose(played, STREAMS, OPTIONS), choose(played, STREAMS, OPTIONS, thorough=True)
    assert all(trial.fits for trial in quick.trials)
    assert quick.chosen == thorough.chosen
    assert {"pred", "zstd:3"} < {trial.spec for trial in thorough.trials}


def test_frames_that_return_may_take_more_bytes():
    """In a tenth of all tensors, each frame is another one."""
    seen = hills(60)
    assert not choose(seen, STREAMS[:60], OPTIONS).chosen.fits
    assert choose(seen, STREAMS[:60], OPTIONS, n_seen=6_000).chosen.fits


def test_a_few_frames_of_many_sequences_show_as_much():
    played = frames("MsPacman", 320, 0)[:256]
    among_64 = choose(played, np.repeat(np.arange(64), 4), OPTIONS)
    assert among_64 == choose(played, STREAMS[:256], OPTIONS)
    mixed = np.arange(256).reshape(64, 4).T.reshape(-1)
    assert choose(played[mixed], mixed // 4, OPTIONS) == among_64


@pytest.mark.parametrize("n", [2, 4, 20])
def test_sequences_that_begin_alike_show_as_much_as_one(n):
    seen = hills(n, moving=False)
    alike, alone = (
        choose(np.tile(seen, (8, 1, 1, 1)), np.arange(8).repeat(n), OPTIONS),
        choose(seen, STREAMS[:n], OPTIONS),
    )
    assert (alike.chosen, alike.trials) == (alone.chosen, alone.trials)
    assert alike.chosen.spec.startswith("pred")


@pytest.mark.parametrize("shape", [(1024,), (32, 32), (1, 32, 32), (32, 32, 3), (32, 8, 4)])
def test_a_field_takes_each_codec_that_is_tried(shape):
    rng = np.random.default_rng(0)
    trials = choose(rng.integers(8, size=(64, *shape), dtype=np.uint8), STREAMS[:64], OPTIONS, thorough=True).trials
    assert {"raw", "zstd:3"} < {trial.spec for trial in trials}
    for trial in trials:
        assert Field(shape, "uint8", trial.spec).new_store() is not None


@pytest.mark.parametrize(
    ("patches", "lz4", "slow", "chosen"),
    [
        (511, 30, None, "delta-rle|lz4:6"),  # both are small enough
        (511, 500, None, "delta-rle"),
        (513, 511, None, "delta-rle"),  # twice as slow for nothing
        (900, 511, None, "delta-rle|lz4:6"),
        (5000, 2000, 1900, "delta-rle|lz4:6"),  # a little smaller, at three times the cost
        (5000, 2000, 1000, "pred"),
        (5000, 4900, 4800, "delta-rle"),
    ],
)
def test_what_saves_much_is_taken(patches, lz4, slow, chosen):
    quick = [
        Trial("raw", 1, 8192, 0.7, True),
        Trial("delta-rle", 16, patches, 1.0, True),
        Trial("delta-rle|lz4:6", 16, lz4, 2.0, False),
    ]
    others = [] if slow is None else [Trial("pred", 1, slow, 5.0, False)]
    assert _by_cost(quick, others, 512)[0].spec == chosen


def test_frames_of_a_stack_share_the_cost_of_their_blocks():
    def costs(depth: int) -> dict[tuple[str, int], float]:
        trials = choose(hills(64), STREAMS[:64], OPTIONS, depth=depth, thorough=True).trials
        return {(trial.spec, trial.block_frames): trial.cost for trial in trials}

    single, stacks = costs(1), costs(4)
    assert stacks["pred", 1] == single["pred", 1] < stacks["pred", 16] < single["pred", 16]
    assert stacks["delta-rle", 16] == single["delta-rle", 16]
