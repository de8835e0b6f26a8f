"""How stats are printed."""

import pytest
from obscodec.stats import StoreStats, in_units


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_999, "1 MB"),
        (56_448_000_000, "56.4 GB"),
        (999_999_999_999, "1 TB"),
        (999_600_000_000_000, "1,000 TB"),
        (12_345_678_000_000_000, "12,346 TB"),
    ],
)
def test_bytes_have_units_and_three_digits(nbytes, text):
    assert in_units(nbytes) == text


def test_stats_of_a_store_are_printed_in_two_lines():
    stats = StoreStats(6_200, 43_747_200, 155_752, 240_974, 55_848, 107_977, codec="delta-rle", block_frames=16)
    text = "6,200 tensors, 405 kB in memory, 43.7 MB uncompressed: 108.1 times smaller\n  delta-rle, blocks of 16"
    assert (str(stats), repr(stats)) == (text, f"StoreStats({text})")
    empty = StoreStats(0, 0, 0, 0, 0, 0, codec="delta-rle", block_frames=16)
    assert str(empty) == "empty\n  delta-rle, blocks of 16"
    larger = StoreStats(1, 1000, 1000, 1180, 0, 0, codec="raw", block_frames=1)
    assert larger.summary == "1 tensor, 1.18 kB in memory, 1 kB uncompressed: 1.18 times as large"


def test_what_lies_on_the_disk_is_not_called_smaller():
    spilled = StoreStats(1, 6_140_000, 2_300_000, 2_340_000, 0, 0, disk_bytes=4_070_000, codec="raw", block_frames=1)
    assert spilled.summary == "1 tensor, 2.34 MB in memory, 4.07 MB on disk, 6.14 MB uncompressed"
