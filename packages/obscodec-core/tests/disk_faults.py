"""Run by ``test_disk_faults.py``: saves to a disk that is full, at each call in turn; prints how many calls failed."""

import ctypes
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import obscodec
from obscodec import Field, RingBuffer

SHAPE = (24, 24)


def ring(n_steps: int, n_laps: int = 1) -> RingBuffer:
    fields = {
        "obs": Field(SHAPE, np.uint8, "delta-rle|lz4", min_nbytes=0, block_frames=4),
        "noise": Field(SHAPE, np.uint8, "zstd:1", min_nbytes=0),
        "action": Field((), np.int64),
    }
    buffer, rng = RingBuffer(60, fields, 2), np.random.default_rng(0)
    frames = np.zeros((2, *SHAPE), np.uint8)
    for k in range(n_laps * n_steps):
        frames[:, k % 24, rng.integers(24)] = k % 255
        buffer.append(obs=frames, noise=rng.integers(256, size=(2, *SHAPE), dtype=np.uint8), action=[k, -k])
    return buffer


def content(buffer: RingBuffer) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in buffer[:].items()}


def at_every_call(save: Callable[[Path], object], load: Callable[[Path], object], contents: list[object]) -> int:
    """Have each call of a save fail; afterwards, one of two contents is loaded, and the next save works."""
    fail = ctypes.CDLL(None).fail_disk
    fail.restype, fail.argtypes = ctypes.c_long, [ctypes.c_long, ctypes.c_int]
    n_failed = 0
    for half in (0, 1):
        at = 0
        while True:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name) / "of" / "it"
                if at % 2:  # on a folder that has a snapshot already
                    save_before(folder)
                fail(at // 2, half)
                error = None
                try:
                    save(folder)
                except BaseException as raised:
                    error = raised
                if fail(-1, 0) >= 0:
                    assert error is None, error
                    assert load(folder) == contents[1], at
                    if at % 2:
                        break
                    at += 1
                    continue
                n_failed += 1
                assert error is None or isinstance(error, OSError), repr(error)
                if error is None:
                    assert load(folder) == contents[1], at
                elif at % 2:
                    assert load(folder) in contents, at
                else:
                    with suppress(obscodec.SnapshotError):  # the folder has none yet
                        assert load(folder) == contents[1], at
                save(folder)
                assert load(folder) == contents[1], at
            at += 1
    return n_failed


BEFORE, AFTER = ring(20), ring(50, 2)


def save_before(folder: Path) -> None:
    obscodec.save(BEFORE, folder)


if __name__ == "__main__":
    n = at_every_call(
        lambda folder: obscodec.save(AFTER, folder),
        lambda folder: content(obscodec.load(folder)),
        [content(BEFORE), content(AFTER)],
    )
    sys.stdout.write(f"{n}\n")
