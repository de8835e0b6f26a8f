"""Appends until the memory is full, in a process that has refused none before: ``append_without_memory.py KIND``."""

import sys

import numpy as np
from limited_memory import limited_memory
from obscodec import Field, RingBuffer

SHAPE = 84, 84
KINDS = {
    "delta-rle": {"o": Field(SHAPE, np.uint8, "delta-rle"), "n": Field(SHAPE, np.uint8, next_of="o")},
    "stacks": {"o": Field((4, *SHAPE), np.uint8, "delta-rle", frame_stack=4)},
    "zstd:1": {"o": Field(SHAPE, np.uint8, "zstd:1")},
    "pred": {"o": Field(SHAPE, np.uint8, "pred")},
    "auto": {"o": Field(SHAPE, np.uint8, "auto"), "n": Field(SHAPE, np.uint8, shares="o")},
    "deciding": {"o": Field(SHAPE, np.uint8, "auto")},
    "floats": {"o": Field(SHAPE, np.float32, "auto")},
    "limited": {"o": Field(SHAPE, np.uint8, "delta-rle", max_bytes=1 << 40)},
}


def frames(name, t):
    """The value of a field in step ``t``."""
    of = t + (name == "n")
    field = KINDS[sys.argv[1]][name]
    x = np.random.default_rng(of).integers(0, 256, field.layout.shape, np.uint8)
    if field.layout.dtype == np.float32:  # integers, but for a few that take the other store
        x = x.astype(np.float32)  # first: numpy crashes where it casts within an operation and malloc fails
        return x / np.float32(2) if of % 9 else x * np.float32(0.1)
    return x


def main(fields):
    """Append, and look at all that was not refused."""
    buffer = RingBuffer(20_000, {**fields, "t": Field((), np.int64)})
    step = lambda t: {**{name: frames(name, t) for name in fields}, "t": t}  # noqa: E731
    n_refused, n = 0, 200 if sys.argv[1] == "deciding" else 600
    for t in range(n):
        buffer.append(**step(t))
    t = n
    with limited_memory(0):
        while n_refused < 20 and t < 6000:
            try:
                buffer.append(**step(t))
            except MemoryError:
                n_refused += 1
            t += 1
        try:
            buffer.sample(64, 0)  # it loads other kernels
        except MemoryError:
            n_refused += 1
    for more in range(t, t + 50):
        buffer.append(**step(more))
    found = buffer[:]
    assert n_refused >= 20
    for i in range(0, len(buffer), 7):
        for name in fields:
            np.testing.assert_array_equal(found[name][i, 0], frames(name, int(found["t"][i, 0])))
    assert found["t"][-50:, 0].tolist() == list(range(t, t + 50))


if __name__ == "__main__":
    main(KINDS[sys.argv[1]])
    sys.stdout.write("all is there\n")
