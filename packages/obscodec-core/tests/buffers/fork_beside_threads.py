"""Forks while threads sample, append and save: ``fork_beside_threads.py sample|delete|append|save FORKS CODEC``."""

import gc
import os
import sys
import tempfile

import numpy as np
from forks import fork_beside
from obscodec import Field, RingBuffer, load, save

SHAPE, N_ENVS, CAPACITY = (32, 32), 2, 60


def step(k):
    """Step ``k``."""
    frames = np.zeros((N_ENVS, *SHAPE), np.uint8)
    for env in range(N_ENVS):
        frames[env, k % 32] = 1 + (k + env) % 255
        frames[env, :, (k * 3 + env) % 32] = 1 + k % 200
    return {"frame": frames, "half": frames / np.float32(2), "k": np.full(N_ENVS, k)}


def are_whole(found):
    """Whether each step is one of those that were appended, in all of its fields."""
    return all(
        np.array_equal(frame, step(int(k))["frame"][env]) and np.array_equal(half, step(int(k))["half"][env])
        for frames, halves, ks in zip(found["frame"], found["half"], found["k"], strict=True)
        for env, (frame, half, k) in enumerate(zip(frames, halves, ks, strict=True))
    )


def goes_on(buffer):
    """Whether the buffer has the last steps, one after the other, and takes the next ones."""
    k = int(buffer[-1]["k"][0])
    for more in range(k + 1, k + 80):
        buffer.append(**step(more))
        if more < k + 9 or more > k + 75:
            found = buffer[:]
            if found["k"][:, 0].tolist() != list(range(more + 1 - len(buffer), more + 1)) or not are_whole(found):
                return False
    return True


def main(kind, n_forks, codec):
    """Fork so many times."""
    of_frames = Field(SHAPE, np.uint8, codec, block_frames=4)
    fields = {"frame": of_frames, "half": Field(SHAPE, np.float32, "auto"), "k": Field((), np.int64)}
    buffer = RingBuffer(CAPACITY, fields, N_ENVS)
    for k in range(300):
        buffer.append(**step(k))
    numbers = iter(range(300, 1 << 40))
    append = lambda: buffer.append(**step(next(numbers)))  # noqa: E731
    if kind == "sample":
        in_child = lambda: buffer.sample(16)["k"].min() >= 300 - CAPACITY and goes_on(buffer)  # noqa: E731
        fork_beside([lambda: buffer.sample(16)] * 2, in_child, n_forks)
    elif kind == "append":
        fork_beside([append], lambda: goes_on(buffer), n_forks)
        assert goes_on(buffer)
    elif kind == "save":
        with tempfile.TemporaryDirectory() as folder:

            def in_child():
                save(buffer, f"{folder}/{os.getpid()}")
                return goes_on(buffer) and goes_on(load(f"{folder}/{os.getpid()}"))

            fork_beside([append, lambda: save(buffer, f"{folder}/mine")], in_child, n_forks)
            save(buffer, f"{folder}/mine")
            assert goes_on(load(f"{folder}/mine"))
            assert goes_on(buffer)
    else:
        held = [buffer]
        sample = buffer.sample
        del buffer, of_frames, append

        def delete():
            nonlocal sample
            held.clear()
            sample = None
            gc.collect()
            return True

        fork_beside([lambda: sample(16)] * 2, delete, n_forks)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    sys.stdout.write("all children ended\n")
