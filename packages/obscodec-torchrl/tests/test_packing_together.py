"""Arrays that are packed together come back, and bytes that are not whole are refused."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from obscodec import CorruptStream, FrameStore, Layout, ShapeError, TensorArray, pack
from obscodec_torchrl.arrays import pack_together, read_note, unpack_together

FRAME = (20, 20)


def compressed(plain: np.ndarray, store: FrameStore) -> TensorArray:
    array = TensorArray.zeros(plain.shape[:-2], store)
    array[...] = plain
    return array


def frames(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*shape, *FRAME), np.uint8)


def unpacked(packed: bytes) -> list[np.ndarray]:
    rows, parts = zip(*unpack_together(packed), strict=True)
    assert [part.stop for part in rows[:-1]] == [part.start for part in rows[1:]]
    assert [part.stop - part.start for part in rows] == [len(part[0]) for part in parts]
    return [np.concatenate(of_array) for of_array in zip(*parts, strict=True)]


@pytest.mark.parametrize("n", [1, 60, 50_000])
def test_arrays_come_back_in_their_order(n: int) -> None:
    one, other = FrameStore(Layout(FRAME, np.uint8)), FrameStore(Layout(FRAME, np.uint8))
    plain = [np.arange(n), frames(min(n, 100) + 1)[np.arange(n) % 100], np.arange(3.0 * n).reshape(n, 3)]
    plain += [np.roll(plain[1], -1, axis=0), plain[1][:, None]]
    arrays = [plain[0], *(compressed(plain[i], one) if i in (1, 3) else plain[i] for i in (1, 2, 3)), plain[4]]
    arrays[4] = compressed(plain[4], other)
    for given, expected in zip(unpacked(pack_together(arrays)), plain, strict=True):
        assert given.dtype == expected.dtype
        assert np.array_equal(given, expected)


def test_what_arrays_of_one_store_share_takes_little() -> None:
    store, drawn = FrameStore(Layout(FRAME, np.uint8)), frames(101)
    together = pack_together([compressed(drawn[:-1], store), compressed(drawn[1:], store)])
    assert len(together) < 1.1 * drawn.nbytes


def test_no_arrays_and_no_rows() -> None:
    assert list(unpack_together(pack_together([]))) == []
    assert list(unpack_together(pack_together([np.zeros((0, 3))]))) == []


def test_arrays_that_are_not_equally_long_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"equally long, got \[3, 4\]"):
        pack_together([np.zeros(3), np.zeros(4)])


def test_every_prefix_and_every_appended_byte_is_refused() -> None:
    packed = pack_together([np.arange(20), compressed(frames(20), FrameStore(Layout(FRAME, np.uint8)))])
    for n in range(0, len(packed), 7):
        with pytest.raises(CorruptStream):
            list(unpack_together(packed[:n]))
    for more in (b"\0", packed[-30:], pack_together([np.arange(3)])[60:]):
        with pytest.raises(CorruptStream):
            list(unpack_together(packed + more))


def test_a_note_comes_back() -> None:
    packed = pack_together([np.arange(3)], {"length": 3, "paths": [["a", "b"]]})
    assert read_note(packed) == {"length": 3, "paths": [["a", "b"]]}
    assert read_note(pack_together([])) is None
    with pytest.raises(CorruptStream, match="do not begin"):
        read_note(packed[:20])


def with_head(head: object, *batches: np.ndarray, head_nbytes: int | None = None) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<I", len(text) if head_nbytes is None else head_nbytes) + text + pack(batches)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[" * 100_000,
        b"3",
        b"[]",
        b"\xff",
        '{"groups": [], "n_parts": 0, "note": null}'.encode("utf-16"),
        {},
        {"groups": [[0]], "n_parts": 1},
        {"groups": [], "n_parts": 10**18, "note": None},  # was counted to, without an end
        {"groups": [[0]], "n_parts": 10**18, "note": None},
        {"groups": [[0]], "n_parts": -1, "note": None},
        {"groups": [[0]], "n_parts": 1.0, "note": None},
        {"groups": [[0]], "n_parts": True, "note": None},
        {"groups": [[0]], "n_parts": float("inf"), "note": None},
        {"groups": [[False]], "n_parts": 1, "note": None},
        {"groups": [[0.0]], "n_parts": 1, "note": None},
        {"groups": [["0"]], "n_parts": 1, "note": None},
        {"groups": [[0], [0]], "n_parts": 1, "note": None},
        {"groups": [[0, 0]], "n_parts": 1, "note": None},
        {"groups": [[1]], "n_parts": 1, "note": None},
        {"groups": [[0], []], "n_parts": 1, "note": None},
        {"groups": [0], "n_parts": 1, "note": None},
        {"groups": "0", "n_parts": 1, "note": None},
        {"groups": {}, "n_parts": 0, "note": None},
        {"groups": 3, "n_parts": 1, "note": None},
    ],
    ids=lambda head: str(head)[:40],
)
def test_a_hostile_head_is_refused(head: object) -> None:
    packed = with_head(head, np.zeros((3, 1), np.uint8))
    for read in (read_note, lambda packed: list(unpack_together(packed))):
        with pytest.raises(CorruptStream, match=r"^the bytes do not begin with what is packed: "):
            read(packed)


def test_a_head_that_is_said_to_be_longer_than_all_is_refused() -> None:
    with pytest.raises(CorruptStream, match=r"^the bytes are truncated: 1004 should be there, there are 46$"):
        read_note(with_head({"groups": [], "n_parts": 0, "note": None}, head_nbytes=1000))


def test_parts_that_do_not_fit_together_are_refused() -> None:
    side_by_side = {"groups": [[0], [1]], "n_parts": 1, "note": None}
    with pytest.raises(CorruptStream, match=r"^its arrays have \[3, 4\] rows, expected one number$"):
        list(unpack_together(with_head(side_by_side, np.zeros((3, 1)), np.zeros((4, 1)))))
    in_turn = {"groups": [[0]], "n_parts": 2, "note": None}
    for other in (np.zeros((3, 1), np.float32), np.zeros((3, 1, 2))):
        with pytest.raises(CorruptStream, match=r"^its arrays change from "):
            list(unpack_together(with_head(in_turn, np.zeros((3, 1)), other)))


def test_rows_that_are_announced_too_large_are_refused() -> None:
    packed = pack_together([np.zeros((3, 100), np.uint8), np.zeros(3)])
    assert len(list(unpack_together(packed, max_bytes=300))) == 1
    with pytest.raises(CorruptStream, match="announces an item of 300, at most 299 are allowed"):
        list(unpack_together(packed, max_bytes=299))


@pytest.mark.needs("/proc")
def test_bytes_that_are_changed_below_their_checksums(pytestconfig: pytest.Config) -> None:
    """In a process of its own, which may die of it, and which has little memory."""
    fuzzer = Path(__file__).with_name("fuzz_packed_together.py")
    folder = str(pytestconfig.rootpath / "packages/obscodec-core/tests/codecs")  # of fuzz_messages.py
    command, env = (
        [sys.executable, fuzzer, os.environ.get("HOSTILE_CASES", "1000")],
        os.environ | {"PYTHONPATH": folder},
    )
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "BAD" in done.stdout) == (0, False), done.stdout[-3000:] + done.stderr[-3000:]
    assert "'read'" in done.stdout  # some were harmless
