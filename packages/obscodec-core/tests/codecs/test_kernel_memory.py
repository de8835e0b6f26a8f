"""Kernels work in memory that somebody holds: right under allocators that show where they do not.

What was freed is unmapped at once, given to another thread, or overwritten. With ``KERNEL_MEMORY_TIMES=100`` each case
takes a hundred times as long, and there are more.
"""

import os
from pathlib import Path

import pytest
from new_python import run_python

PROGRAM = Path(__file__).with_name("decode_in_threads.py")
TIMES = int(os.environ.get("KERNEL_MEMORY_TIMES", "1"))

# An environment, then: what, spec, bytes of a frame, threads, rounds of each; see decode_in_threads.py
CASES = {
    "freed memory is unmapped": (
        {"MALLOC_MMAP_THRESHOLD_": "4096"},
        "item,delta-rle,1048576,1,2",
        "batch,delta-rle,65536,4,10",
        "frames,delta-rle,1048576,2,2",
        "frames,delta-rle|zstd:1,65536,4,5",
        "frames,delta-rle|lz4,65536,4,5",
        "stacks,delta-rle,1048576,2,2",
        "item,shuffle|rle|lz4,1048576,1,2",
        "frames,zstd:1,65536,4,5",
    ),
    "threads share all memory": (
        {"MALLOC_ARENA_MAX": "1"},
        "item,delta-rle,7056,8,50",
        "batch,delta-rle,7056,8,50",
        "frames,delta-rle,1024,40,50",
        "frames,delta-rle|lz4,7056,8,20",
        "stacks,delta-rle,7056,8,50",
        "stacks,rle,7056,8,20",
    ),
    "freed memory is overwritten": (
        {"MALLOC_ARENA_MAX": "1", "MALLOC_PERTURB_": "165"},
        "item,delta-rle,7056,40,10",
        "frames,delta-rle,7056,8,50",
    ),
    "large frames": ({}, "item,delta-rle,33554432,1,1", "frames,delta-rle,33554432,1,1"),
}


MORE = [
    f"{what},{spec},{nbytes},{threads},1"
    for what in ("item", "batch", "frames", "stacks")
    for spec in ("delta-rle", "delta-rle|zstd:1")
    for nbytes, threads in ((1 << 10, 40), (7056, 40), (1 << 16, 16), (1 << 20, 8), (1 << 25, 2))
]


def longer(case: str) -> str:
    *rest, rounds = case.split(",")
    return ",".join([*rest, str(int(rounds) * TIMES)])


@pytest.mark.parametrize("name", CASES)
def test_all_that_is_decoded_is_right(name: str) -> None:
    environment, *cases = CASES[name]
    asked = [longer(case) for case in cases + (MORE if TIMES > 1 else [])]
    numbers = [[int(number) for number in case.split(",")[-2:]] for case in asked]
    expected = [f"{case}: {threads * rounds} right" for case, (threads, rounds) in zip(asked, numbers, strict=True)]
    assert run_python(PROGRAM, *asked, **environment).splitlines() == expected
