"""Copies of bytes of any length and alignment, in one launch."""

import numpy as np
import pytest
from obscodec_cupy.device.copies import move, scatter
from obscodec_cupy.device.device import Device

LENGTHS = np.array([0, 1, 3, 4, 15, 16, 17, 64, 1000, 40_000, 0, 5])


@pytest.mark.parametrize("shift", range(4))
def test_pieces_are_scattered_to_their_addresses(device: Device, shift: int) -> None:
    rng = np.random.default_rng(shift)
    data = rng.integers(0, 256, LENGTHS.sum(), np.uint8)
    places = np.cumsum(LENGTHS + 7 + shift) - LENGTHS
    memory = device.zeros((60_000,), np.uint8)
    addresses = np.uint64(device.address(memory)) + places.astype(np.uint64)
    expected = np.zeros(60_000, np.uint8)
    for place, piece in zip(places, np.split(data, np.cumsum(LENGTHS)[:-1]), strict=True):
        expected[place : place + len(piece)] = piece
    staged = data.copy()
    scatter(device, staged, addresses, LENGTHS)
    staged[:] = 0
    np.testing.assert_array_equal(device.download(memory), expected)

    moved = device.zeros((60_000,), np.uint8)
    targets = np.uint64(device.address(moved)) + np.cumsum(LENGTHS).astype(np.uint64) - LENGTHS.astype(np.uint64)
    move(device, addresses, targets, LENGTHS)
    np.testing.assert_array_equal(device.download(moved)[: len(data)], data)


def test_nothing_to_copy_is_no_launch(device: Device) -> None:
    none = np.array([], np.int64)
    scatter(device, np.array([], np.uint8), none.astype(np.uint64), none)
    move(device, none.astype(np.uint64), none.astype(np.uint64), np.zeros(0, np.int64))
    assert getattr(device, "n_launches", 0) == 0
