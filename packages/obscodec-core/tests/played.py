"""Buffers whose episodes a caller ends and takes out, and lists of what these episodes are."""

import numpy as np
from obscodec import Field, RingBuffer

CAPACITY, DEPTH = 40, 3


def frames(numbers):
    """Frames that have their numbers in two pixels, so that each differs from the others."""
    numbers = np.asarray(numbers)
    made = np.zeros((*numbers.shape, 6, 6), np.uint8)
    made[..., 0, 0], made[..., 0, 1] = 1 + numbers % 251, numbers // 251
    return made


class Played:
    """A buffer, and for each environment its episodes, of which the last one is running.

    Episodes are lists of the numbers of their steps, which are the indices of these in the buffer.
    """

    def __init__(self, n_envs=3, seed=0, flags=("done", "trunc"), *, codec="delta-rle", masks=False, **options):
        self.rng, self.flags, self.masks = np.random.default_rng(seed), flags, masks
        of_store = {"decide_after": 40 if codec == "auto" else 4, "block_frames": 2} if codec else {}
        fields = {"obs": Field((6, 6), np.uint8, codec, min_nbytes=1, **of_store)}
        fields |= {"next_obs": Field((6, 6), np.uint8, next_of="obs"), "reward": Field((), np.float32)}
        fields |= {"number": Field((), np.int64), **dict.fromkeys(flags, Field((), np.bool_))}
        options = {"capacity": CAPACITY, "episode_end": flags, "stack": {"obs": DEPTH}, "pad": "zeros", **options}
        if masks:
            fields, options["mask"] = {**fields, "valid": Field((), np.bool_)}, "valid"
        self.buffer = RingBuffer(fields=fields, n_envs=n_envs, **options)
        self.episodes, self.n = [[[]] for _ in range(n_envs)], 0

    def step(self, n=1, p_end=0.15):
        n_envs = self.buffer.n_envs
        for _ in range(n):
            numbers = self.n + np.arange(n_envs)
            flags = {name: self.rng.random(n_envs) < p_end / len(self.flags) for name in self.flags}
            valid = np.ones(n_envs, bool) if not self.masks else self.rng.random(n_envs) < 0.9
            step = {"obs": frames(numbers), "next_obs": frames(numbers + n_envs), "reward": numbers % 17}
            self.buffer.append(**step, number=numbers, **flags, **({"valid": valid} if self.masks else {}))
            for env, episodes in enumerate(self.episodes):
                if valid[env]:
                    episodes[-1].append(int(numbers[env]))
                if not valid[env] or any(flags[name][env] for name in self.buffer.episode_end):
                    episodes.append([])
            self.n += n_envs

    def play(self, n):
        for _ in range(n):
            self.step()
            chance, env = self.rng.random(), int(self.rng.integers(self.buffer.n_envs))
            if chance < 0.06:
                self.end(None if chance < 0.02 else [env])
            elif chance < 0.12:
                self.drop(env)
        return self

    def end(self, envs=None):
        self.buffer.end_episodes(envs)
        for env in range(self.buffer.n_envs) if envs is None else envs:
            self.episodes[env].append([])
        return self

    def drop(self, env):
        self.buffer.drop_episode(env)
        self.episodes[env][-1] = []

    @property
    def parts(self):
        """The part of each episode that is stored."""
        oldest = max(0, self.n - self.buffer.capacity * self.buffer.n_envs)
        stored = [[k for k in one if k >= oldest] for episodes in self.episodes for one in episodes]
        return [one for one in stored if one]

    @property
    def places(self):
        """The episode of each step, and its place there."""
        return {k: (one, at) for of in self.episodes for one in of for at, k in enumerate(one)}


def drawn(buffer):
    """All that can be drawn, by the number of the step, and its index."""
    found = {}
    for batch, indices in buffer.epochs(64, 0, return_indices=True):
        for row, index in enumerate(indices.tolist()):
            step = {name: array[row].tobytes() for name, array in batch.items()}
            assert found.setdefault(int(batch["number"][row].item()), (index, step))[0] == index
    return found
