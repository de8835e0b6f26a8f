"""Any program of writes, reads, samples and checkpoints gives what it gives with LazyTensorStorage."""

import tempfile
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, SliceSampler, TensorDictReplayBuffer

SHAPE = (3, 20, 20)
CODECS = ["auto", "delta-rle", "zstd:1", "raw"]
seeds = st.integers(0, 2**20)


def steps(n: int, seed: int) -> TensorDict:
    """A stack of frames that moves on, mostly, with episodes of some steps."""
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 3, (n + 1, *SHAPE[1:]), generator=generator, dtype=torch.uint8)
    stacks = torch.stack([frames[torch.arange(i - 2, i + 1).clamp(min=0)] for i in range(n + 1)])
    done = torch.rand(n, 1, generator=generator) < 0.3
    following = TensorDict({"pixels": stacks[1:].clone(), "done": done}, [n])
    return TensorDict({"pixels": stacks[:-1].clone(), "action": torch.arange(n) + seed, "next": following}, [n])


class Programs(RuleBasedStateMachine):
    @initialize(
        capacity=st.integers(1, 30),
        codec=st.sampled_from(CODECS),
        deciding=st.sampled_from([{"decide_after": 4, "block_frames": 2}, {"decide_after": 1}, {}]),
        sliced=st.booleans(),
    )
    def begin(self, capacity: int, codec: str, deciding: dict[str, int], *, sliced: bool) -> None:
        torch.set_num_threads(1)  # with more, torch lets any item win of several for one index
        self.capacity, self.sliced = capacity, sliced
        keys = ("pixels", ("next", "pixels"))
        options = {"codec": dict.fromkeys(keys, codec), "continue_episodes": True, **deciding}
        self.new_storage = partial(CompressedStorage, capacity, **options)
        self.stock = self.new_buffer(LazyTensorStorage(capacity))
        self.ours = self.new_buffer(self.new_storage())

    def new_buffer(self, storage: LazyTensorStorage) -> TensorDictReplayBuffer:
        sampler = SliceSampler(slice_len=2, end_key=("next", "done"), strict_length=False) if self.sliced else None
        return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)

    @rule(n=st.integers(1, 40), seed=seeds)
    def extend(self, n: int, seed: int) -> None:
        for buffer in (self.stock, self.ours):
            buffer.extend(steps(n, seed))

    @rule(seed=seeds)
    def add(self, seed: int) -> None:
        for buffer in (self.stock, self.ours):
            buffer.add(steps(1, seed)[0])

    @rule(seed=seeds, at=st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
    def set(self, seed: int, at: list[int]) -> None:
        if len(self.stock):
            index = torch.tensor(at) % len(self.stock)
            new = steps(len(at), seed).set("index", index)
            for buffer in (self.stock, self.ours):
                buffer[index] = new.clone()

    @rule(seed=seeds, begin=st.integers(0, 30), stop=st.integers(0, 30), step=st.integers(1, 3))
    def set_slice(self, seed: int, begin: int, stop: int, step: int) -> None:
        index = slice(begin, stop, step)
        n = len(range(*index.indices(len(self.stock))))
        if n:
            for buffer in (self.stock, self.ours):
                buffer.storage[:]["pixels"][index] = steps(n, seed)["pixels"]

    @rule(seed=seeds)
    def sample(self, seed: int) -> None:
        if len(self.stock):
            samples = []
            for buffer in (self.stock, self.ours):
                torch.manual_seed(seed)
                try:
                    samples.append(buffer.sample())
                except (RuntimeError, IndexError) as error:  # SliceSampler wants two steps and one whole episode
                    samples.append(type(error))
            if isinstance(samples[0], type):
                assert samples[1] is samples[0]
            else:
                assert (samples[0] == samples[1]).all()

    @rule(begin=st.integers(-30, 30), stop=st.integers(-30, 30))
    def slice(self, begin: int, stop: int) -> None:
        if len(self.stock):
            assert (self.ours[begin:stop] == self.stock[begin:stop]).all()

    @rule()
    def dump_and_load(self) -> None:
        if len(self.stock):
            with tempfile.TemporaryDirectory() as folder:
                self.ours.dumps(Path(folder) / "ours")
                self.ours = self.new_buffer(self.new_storage())
                self.ours.loads(Path(folder) / "ours")

    @rule()
    def load_state_dict(self) -> None:
        if len(self.stock):
            state = self.ours.state_dict()
            self.ours = self.new_buffer(self.new_storage())
            self.ours.load_state_dict(state)

    @rule()
    def empty(self) -> None:
        for buffer in (self.stock, self.ours):
            buffer.empty()

    @invariant()
    def equal(self) -> None:
        if hasattr(self, "stock"):
            assert len(self.ours) == len(self.stock)
            if len(self.stock):
                everything = torch.arange(len(self.stock))
                given = self.ours[everything]
                assert (given == self.stock[everything]).all()
                assert all(type(leaf) is torch.Tensor for leaf in given.values(True, True))

    @invariant()
    def nothing_leaks(self) -> None:
        if hasattr(self, "stock") and self.ours.storage.initialized:
            pixels, following = self.ours.storage.compressed().values()
            n_held = int((pixels.array.ids != 0).sum() + (following.array.ids != 0).sum())
            held = pixels.array.store.stats().n_tensors
            assert held <= n_held
            assert (held > 0) == (n_held > 0)


TestPrograms = pytest.mark.slow(Programs.TestCase)
TestPrograms.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
