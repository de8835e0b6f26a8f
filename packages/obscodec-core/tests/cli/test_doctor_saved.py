"""What the doctor reads of a snapshot: items in the order of time, whoever has written them."""

import re
from functools import partial

import numpy as np
import obscodec
import pytest
from obscodec import Field, FrameStore, Layout, MissingPackage, Prioritized, RingBuffer, SnapshotError, TensorArray
from obscodec.cli.doctor.sources import of_snapshot
from obscodec.installing import install_command
from obscodec.snapshots import write_snapshot
from saved import array, flip, frames


def test_the_oldest_steps_of_the_first_environment(tmp_path):
    played, shape = frames(200).reshape(100, 2, 12, 16).repeat(6, axis=3), (12, 96)
    fields = {"obs": Field(shape, np.uint8, "zstd:1"), "next": Field(shape, np.uint8, next_of="obs")}
    fields |= {"reward": Field((), np.float32), "done": Field((), bool)}
    fields |= {"speed": Field((2,), np.float32), "next speed": Field((2,), np.float32, next_of="speed")}
    options = {"stack": {"obs": 2, "speed": 3}, "pad": "zeros", "episode_end": "done"}
    buffer = RingBuffer(50, fields, 2, **options, max_bytes=1 << 22, spill=tmp_path / "spill")
    for step in range(99):
        speeds = {"speed": np.full((2, 2), step), "next speed": np.full((2, 2), step + 1)}
        buffer.append(obs=played[step], next=played[step + 1], reward=[step, -1], done=[False, True], **speeds)
    obscodec.save(buffer, tmp_path / "ring")
    content = of_snapshot(tmp_path / "ring", 20)
    found = content.items
    assert [*found] == ["obs", "reward", "done", "speed", "next speed"]
    assert content.left_out == {}
    np.testing.assert_array_equal(found["obs"], played[49:69, 0])
    np.testing.assert_array_equal(found["reward"], np.arange(49, 69))
    np.testing.assert_array_equal(found["next speed"], np.arange(50, 70)[:, None] + [0, 0])


def test_a_running_episode_is_read_as_it_was_saved(tmp_path):
    fields = {"obs": Field((4,), np.float32), "truncated": Field((), bool)}
    buffer = RingBuffer(50, fields, episode_end="truncated")
    buffer.extend(obs=np.zeros((20, 4), np.float32), truncated=np.zeros(20, bool))
    obscodec.save(buffer, tmp_path)
    assert not of_snapshot(tmp_path, 20).items["truncated"].any()


def test_the_items_of_an_array_are_those_of_its_first_column(tmp_path):
    whole = array(50)
    obscodec.save(whole, tmp_path)
    np.testing.assert_array_equal(of_snapshot(tmp_path, 20).items["array"], np.asarray(whole)[:20, 0])


def test_damage_is_found_in_a_block_of_another_item(tmp_path):
    obscodec.save(array(50), tmp_path)
    (segment,) = tmp_path.glob("*.segment")
    flip(segment, -30)
    with pytest.raises(SnapshotError, match=f"{segment.name}.* damaged"):
        of_snapshot(tmp_path, 1)


def test_an_item_that_can_not_be_decoded(tmp_path, monkeypatch):
    obscodec.save(array(50), tmp_path)
    (segment,) = tmp_path.glob("*.segment")
    head = segment.read_bytes()[:64]
    segment.write_bytes(head + b"\xff" * (segment.stat().st_size - 64))
    # As if the checksums were those of these bytes.
    monkeypatch.setattr("obscodec.snapshots.reader._MIN_MAPPED_NBYTES", 0)
    monkeypatch.setattr("obscodec.snapshots.steps.load", partial(obscodec.load, mmap=True))
    text = f"{tmp_path} has content that obscodec never writes: "
    with pytest.raises(SnapshotError, match=rf"^{re.escape(text)}.* can't be decoded: "):
        of_snapshot(tmp_path, 20)


def test_who_has_written_a_snapshot_is_named(tmp_path, monkeypatch):
    class Foreign(RingBuffer):
        written_by = "obscodec-gone 1.0"

    made = Foreign(10, {"reward": Field((), np.float32)})
    write_snapshot(made, tmp_path)
    text = f"{tmp_path} has a snapshot of obscodec-gone, which is not installed"
    with pytest.raises(MissingPackage, match=f"^{re.escape(text)}$"):
        of_snapshot(tmp_path, 20)
    made.written_by = "obscodec-sb3 1.0"
    write_snapshot(made, tmp_path)
    monkeypatch.setattr("obscodec.snapshots.steps.entry_points", lambda group: [])
    text = f"{tmp_path} has a snapshot of obscodec-sb3, which is not installed: {install_command('obscodec-sb3')}"
    with pytest.raises(MissingPackage, match=f"^{re.escape(text)}$"):
        of_snapshot(tmp_path, 20)


@pytest.mark.parametrize(
    "empty",
    [
        RingBuffer(10, {"reward": Field((), np.float32)}),
        Prioritized(10),
        TensorArray.zeros((), FrameStore(Layout((12, 16), np.uint8))),
    ],
)
def test_what_has_no_order_has_no_items(empty, tmp_path):
    obscodec.save(empty, tmp_path)
    with pytest.raises(SnapshotError, match=f"has a {type(empty).__name__} without items in the order of time$"):
        of_snapshot(tmp_path, 20)
