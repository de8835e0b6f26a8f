"""Fuzz targets: what reads bytes of strangers, one input at a time."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from mutators import changed
from obscodec.errors import ObscodecError

READ = "read"
SKIPPED = "skipped"  # the input reached no code of ours

Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """What is fuzzed.

    Attributes:
        seeds: gives inputs that are right, or nearly.
        run: reads one input; returns :data:`READ`, :data:`SKIPPED`, or what the reader said. It raises only what no
            reader may raise: a finding.
        mutate: changes an input with regard to its structure.
    """

    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], str]
    mutate: Mutate = changed


Make = Callable[[], Target]

# How the executions of all targets are divided: what runs in Python code takes longer.
SHARES = {
    "raw": 20, "rle": 90, "delta-rle": 90, "zstd": 60, "lz4": 60,
    "pred": 90, "palette": 90, "blocks-of-images": 60,
    "filters": 60, "chains": 90, "dictionaries": 60, "blocks-of-patches": 90, "blocks-by-lz4": 90,
    "blocks-by-others": 60, "messages": 40, "packed": 30, "specs": 30, "configs": 20,
    "batches": 30, "calls": 20, "states": 12, "snapshots": 10,
}  # fmt: skip


def outcome_of(error: ObscodecError) -> str:
    """The class and text of an error, without its numbers."""
    return type(error).__name__ + " " + re.sub(r"[0-9]+|'[^']*'", "", str(error))[:120]


def all_targets() -> dict[str, Make]:
    """What makes each target, by name."""
    from snapshot_targets import snapshot_targets
    from stream_targets import stream_targets
    from text_targets import text_targets
    from wire_targets import wire_targets

    return {**stream_targets(), **text_targets(), **wire_targets(), **snapshot_targets()}
