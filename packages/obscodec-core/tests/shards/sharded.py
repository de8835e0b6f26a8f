"""A buffer whose steps tell what they are, an owner of it in a process of its own, and checks of what it holds."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from obscodec import Field, Prioritized, RingBuffer
from obscodec.shards import Owner

KEY = b"a secret"
N_ENVS, CAPACITY = 3, 20_000
FIELDS = {
    "obs": Field((40, 40), np.uint8),
    "next_obs": Field((40, 40), np.uint8, next_of="obs"),
    "text": Field((None,), np.int32, "zstd:1"),
    "k": Field((), np.int64),
    "terminated": Field((), np.bool_),
    "truncated": Field((), np.bool_),
}


def new_ring(capacity=CAPACITY, n_envs=N_ENVS, **more):
    ends = ("terminated", "truncated")
    return RingBuffer(capacity, FIELDS, n_envs, stack={"obs": 3}, pad="zeros", episode_end=ends, threads=1, **more)


def frame(env, k):
    """The observation before step ``k``."""
    made = np.zeros((40, 40), np.uint8)
    made[k % 37 : k % 37 + 3, env * 5 : env * 5 + 4] = 200
    made[0, :3] = env, k % 256, k // 256 % 256
    return made


def step(env, k):
    return {
        "obs": frame(env, k),
        "next_obs": frame(env, k + 1),
        "text": np.arange(k % 7, dtype=np.int32),
        "k": k,
        "terminated": k % 50 == 49,
        "truncated": False,
    }


def steps(envs, k):
    """A step of some environments together."""
    each = [step(env, k) for env in envs]
    return each[0] if len(each) == 1 else {name: [of[name] for of in each] for name in each[0]}


def check_batch(batch):
    """Each row has what belongs to its step, whichever it is."""
    for obs, following, length, k in zip(
        batch["obs"], batch["next_obs"], batch["text_lengths"], batch["k"].tolist(), strict=True
    ):
        env = int(obs[-1, 0, 0])
        assert np.array_equal(obs[-1], frame(env, k))
        assert np.array_equal(following[-1], frame(env, k + 1))
        assert length == k % 7
        before = obs[-2]
        assert not before.any() if k % 50 == 0 else (not before.any() or np.array_equal(before, frame(env, k - 1)))


def numbers_of(ring):
    """Of each environment the numbers of its steps, the oldest first."""
    indices = np.asarray(ring.indices)
    k = ring.take(indices)["k"]
    return [k[indices % ring.n_envs == env] for env in range(ring.n_envs)]


class OwnerProcess:
    """An owner in a process of its own, which can be killed and started again at the same address."""

    def __init__(self, folder, port=0, save_every=1.0):
        self.folder, self.save_every = folder, save_every
        self.address = "localhost", port
        self.start()

    def start(self):
        """Start it, and wait until it serves."""
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        arguments = [sys.executable, __file__, str(self.folder), str(self.address[1]), str(self.save_every)]
        self.process = subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = "localhost", int(self.process.stdout.readline())

    def kill(self):
        self.end(signal.SIGKILL)

    def end(self, how=signal.SIGTERM):
        """End the process; SIGTERM lets it save."""
        self.process.send_signal(how)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def main():
    folder, port, save_every = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    ring = new_ring()
    ring.append(**steps(range(N_ENVS), 0))  # compiles what a step needs, before anybody waits for it
    ring = new_ring()
    priorities = Prioritized(CAPACITY * N_ENVS)
    with Owner(ring, priorities, folder=None if folder == "-" else Path(folder), save_every=save_every) as owner:
        sys.stdout.write(f"{owner.serve(('localhost', port), KEY)[1]}\n")
        sys.stdout.flush()
        owner.wait()


if __name__ == "__main__":
    main()
