"""Arrays of a buffer: what they share, what they check, what they count."""

import re
from dataclasses import replace

import numpy as np
import pytest
from obscodec import DTypeError, Field, FieldError, FrameStack, Layout, ShapeError, SpecError
from obscodec.arrays import write_buffer
from obscodec.buffers import ArraySet, BufferOptions
from obscodec.stats import in_units

IMAGE = Field((40, 40), np.uint8, "zstd:1", decide_after=4, block_frames=2)
VECTOR = Field((3,), np.float32)


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(n, 40, 40), dtype=np.uint8)


def test_fields_that_share_a_store_wait_together(monkeypatch):
    monkeypatch.setattr(write_buffer, "_MAX_NBYTES", 0)
    arrays = ArraySet({"obs": IMAGE, "next_obs": Field((40, 40), np.uint8, shares="obs")}, 2)
    obs, next_obs = (arrays.zeros("a", name, 10, waiting=6) for name in ("obs", "next_obs"))
    for i in range(5):  # six rows, since an observation waits with the next one of the step before
        arrays.reserve(i)
        assert (arrays.stores["obs"].stats().n_tensors == 0) == (i < 4)
        obs[i], next_obs[i] = images(2, i), images(2, i + 1)
    for i in range(5):
        np.testing.assert_array_equal(obs[i], images(2, i))
        np.testing.assert_array_equal(next_obs[i], images(2, i + 1))


@pytest.mark.parametrize("max_bytes", [None, 1 << 20])  # with a limit, no rows wait
def test_what_was_assigned_to_a_row_is_forgotten(max_bytes):
    arrays = ArraySet({"obs": Field((40, 40), np.uint8, max_bytes=max_bytes), "vector": VECTOR}, 2)
    obs = arrays.zeros("a", "obs", 6, waiting=3)
    obs[1], obs[2] = images(2), images(2, 1)
    arrays.forget(2)
    np.testing.assert_array_equal(obs[1], images(2))
    assert not obs[2].any()
    assert arrays.stats(0).fields["obs"].n_tensors == 2


@pytest.mark.parametrize("waiting", [0, 3])
def test_an_array_that_is_made_again_leaves_nothing_in_the_store(waiting):
    arrays = ArraySet({"obs": IMAGE}, 2)
    for seed in range(60):
        array = arrays.zeros("a", "obs", 6, waiting=waiting)
        assert not np.asarray(array).any()
        assert arrays.stores["obs"].stats().n_tensors == 0
        for i in range(5):
            array[i] = images(2, seed * 10 + i)
    assert arrays.zeros("b", "obs", 6, waiting=3).shape == (6, 2, 40, 40)
    np.testing.assert_array_equal(array[4], images(2, 594))


@pytest.mark.parametrize(("n_envs", "shape"), [(1, ()), (1, (1,)), (3, (3,)), (3, (3, 1))])
def test_a_field_of_one_number_takes_one_for_each_environment(n_envs, shape):
    step = ArraySet({"x": Field((1,), np.int64)}, n_envs).step("x", np.full(shape, 7))
    np.testing.assert_array_equal(step, np.full((n_envs, 1), 7))


def test_stats_count_every_array_and_every_store_once():
    arrays = ArraySet({"obs": IMAGE, "next_obs": Field((40, 40), np.uint8, shares="obs"), "vector": VECTOR}, 2)
    obs, next_obs = (arrays.zeros("a", name, 10, waiting=3) for name in ("obs", "next_obs"))
    arrays.zeros("a", "vector", 10, waiting=3)
    for i in range(4):
        obs[i], next_obs[i] = images(2, i), images(2, i + 1)
    stats = arrays.stats(8)
    store = arrays.stores["obs"].stats()
    assert stats.fields == {"obs": store, "next_obs": store, "vector": 8 * 12}
    assert stats.raw_bytes == 2 * 8 * 1600 + 8 * 12
    assert stats.total_bytes == store.total_bytes + 8 * 12 + 2 * 8 * 4 + stats.waiting_bytes
    size = f"{in_units(stats.total_bytes)} in memory, {in_units(stats.raw_bytes)} uncompressed"
    assert stats.summary == f"{size}: {1 / stats.ratio:.2f} times as large"
    empty = replace(store, reserved_bytes=0, table_bytes=0, dictionary_bytes=0)
    small = replace(stats, raw_bytes=1_240_000, fields={"obs": empty}, waiting_bytes=124_000, id_bytes=0, other_bytes=0)
    assert small.summary == "124 kB in memory, 1.24 MB uncompressed: 10.0 times smaller"
    plain = "  vector: uncompressed: under 1 KiB, or without a codec"
    assert str(stats) == f"{stats.summary}\n  obs, next_obs: {store.encoding}\n{plain}"


def test_fields_take_options_for_all_or_for_some():
    layouts = {"image": Layout((4, 40, 40), np.uint8), "vector": Layout((3,), np.float32)}
    options = BufferOptions(
        codec={"vector": "raw"}, frame_stack={"image": FrameStack(4)}, budget="fast", decide_after=8, block_frames=4
    )
    fields = options.fields_of(layouts)
    assert fields["image"] == Field(
        (4, 40, 40), np.uint8, frame_stack=FrameStack(4), budget="fast", decide_after=8, block_frames=4
    )
    assert fields["vector"] == Field((3,), np.float32, "raw", decide_after=8, block_frames=4)
    text = "codec is given for 'imag', which is none of the fields 'image', 'vector'"
    with pytest.raises(FieldError, match=f"^{re.escape(text)}$"):
        BufferOptions(codec={"imag": "raw"}).fields_of(layouts)
    text = (
        "codec is given for 'imag', and there is one field, without a name: pass its codec alone, such as codec='raw'"
    )
    with pytest.raises(FieldError, match=f"^{re.escape(text)}$"):
        BufferOptions(codec={"imag": "raw"}).fields_of({"": layouts["image"]})


def test_an_error_of_a_codec_names_the_field():
    image, vector = Field((40, 40), np.uint8, "pred"), Field((17,), np.float32, "pred")
    text = r"pred takes images of uint8, .*, got float32\[17\]: use zstd:3$"
    with pytest.raises(SpecError, match=f"^field 'vector': {text}"):
        ArraySet({"image": image, "vector": vector})
    with pytest.raises(SpecError, match=f"^observations: {text}"):
        ArraySet({"": vector})
    with pytest.raises(ShapeError, match=r"^field 'image': axis 0 of shape \(40, 40\) does not divide into 3 frames$"):
        ArraySet({"image": Field((40, 40), np.uint8, frame_stack=3)})


def test_options_that_are_left_out_have_defaults():
    options = BufferOptions(codec="raw", max_bytes=5000)
    assert options == BufferOptions(codec="raw", max_bytes=5000, budget=None, buffer_device="cpu")
    with pytest.raises(TypeError, match="unexpected keyword argument 'device', did you mean 'buffer_device'"):
        BufferOptions(device="cpu")
    text = "decide_after must be a whole number, 1 or more, or None, got '8'"
    with pytest.raises(DTypeError, match=f"^{text}$"):
        BufferOptions(decide_after="8")
    (field,) = options.fields_of({"image": Layout((40, 40), np.uint8)}).values()
    assert field == Field((40, 40), np.uint8, "raw", max_bytes=5000)


def test_small_fields_are_compressed_if_a_mapping_names_codecs():
    layouts = {"image": Layout((40, 40), np.uint8), "vector": Layout((3,), np.float32)}
    codecs = [
        [field.codec for field in BufferOptions(codec=codec).fields_of(layouts, min_nbytes=1024).values()]
        for codec in ("raw", {"vector": "raw"}, None)
    ]
    assert codecs == [["raw", None], ["auto", "raw"], [None, None]]


@pytest.mark.parametrize("codec", ["raw", "auto"])
@pytest.mark.parametrize(
    ("of_buffer", "min_nbytes", "expected"),
    [(0, None, 16), (1024, None, 1024), (0, 20, 20), (1024, 20, 20), (1024, 2000, 2000), (0, 0, 16), (1024, 0, 16)],
)
def test_fields_are_compressed_from_a_size_on(codec, of_buffer, min_nbytes, expected):
    """Of 16, 20, 1024 and 2000 bytes; ``"auto"`` alone compresses nothing under 1 KiB."""
    layouts = {nbytes: Layout((nbytes,), np.uint8) for nbytes in (16, 20, 1024, 2000)}
    fields = BufferOptions(codec=codec, min_nbytes=min_nbytes).fields_of(layouts, min_nbytes=of_buffer)
    compressed = [nbytes for nbytes, field in fields.items() if field.new_store() is not None]
    assert compressed[0] == (1024 if codec == "auto" and min_nbytes is None else expected)
    assert compressed == [nbytes for nbytes in layouts if nbytes >= compressed[0]]


def test_a_field_that_a_mapping_names_is_compressed_whatever_its_size():
    layouts = {"vector": Layout((3,), np.float32), "other": Layout((3,), np.float32), "image": Layout((40, 40), "u1")}
    fields = BufferOptions(codec={"vector": "raw"}, min_nbytes=13).fields_of(layouts)
    assert [name for name, field in fields.items() if field.new_store() is not None] == ["vector", "image"]
    assert [BufferOptions(codec=None).large_nbytes, BufferOptions(min_nbytes=5).large_nbytes] == [None, 1024]
    assert BufferOptions(min_nbytes=5000).large_nbytes == 5000
