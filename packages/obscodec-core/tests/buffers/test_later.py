"""Observations that are stored twice: the next one, small or some steps later, takes no second place."""

import numpy as np
import pytest
from obscodec import Field, FieldError, RingBuffer, ShapeError, TensorArray
from obscodec.errors import CorruptStream

N_ENVS = 3


def fields(shape, after=1, **options):
    """The fields of a loop."""
    later = {} if after == 1 else {"after": after}
    return {
        "obs": Field(shape, np.uint8, **options),
        "later": Field(shape, np.uint8, next_of="obs", **later),
        "reward": Field((), np.float32),
        "done": Field((), np.bool_),
    }


def fill(ring, shape, n_steps, after, seed=0):
    """Play episodes of random length, and append each observation with that ``after`` steps later, or the last one."""
    rng, model = np.random.default_rng(seed), []
    playing = [[] for _ in range(ring.n_envs)]
    for _ in range(n_steps):
        for env in playing:
            if not env:
                n = int(rng.integers(1, 40))
                seen = rng.integers(0, 255, (n + 1, *shape), np.uint8)
                env += [(seen[t], seen[min(t + after, n)], t == n - 1) for t in range(n)]
        obs, later, done = map(np.stack, zip(*(env.pop(0) for env in playing), strict=True))
        model.append({"obs": obs, "later": later, "reward": rng.random(ring.n_envs, np.float32), "done": done})
        ring.append(**model[-1])
    return {name: np.stack([step[name] for step in model]) for name in model[0]}


@pytest.mark.parametrize("after", [1, 2, 5])
@pytest.mark.parametrize(("shape", "options"), [((40, 40), {}), ((40, 40), {"codec": "zstd:1"}), ((7, 7, 3), {})])
def test_a_later_observation_is_stored_once(shape, options, after):
    ring = RingBuffer(150, fields(shape, after, **options), N_ENVS, episode_end="done")
    model = fill(ring, shape, 400, after)
    kept = {name: steps[-150:] for name, steps in model.items()}
    for name, steps in ring[:].items():
        assert np.array_equal(steps, kept[name]), name
    batch, indices = ring.sample(64, 0, return_indices=True)
    at = np.divmod(indices - ring.indices[0], N_ENVS)
    for name, steps in batch.items():
        assert np.array_equal(steps, kept[name][at]), name
    ring.decide()
    n_episodes = int(kept["done"].sum()) + N_ENVS
    assert ring.stats().fields["obs"].n_tensors <= 150 * N_ENVS + (after + 1) * n_episodes
    if shape == (40, 40):  # else tables for the first steps are as large as these
        assert ring.stats().total_bytes < 0.8 * 2 * kept["obs"].nbytes


@pytest.mark.parametrize("n", [60, 61, 200])
def test_few_steps_of_many_environments_are_as_they_were(n):
    ring = RingBuffer(n // 5, {"obs": Field((40, 40), np.uint8, "zstd:1", block_frames=8)}, 17)
    steps = np.random.default_rng(0).integers(0, 3, (n, 17, 40, 40), np.uint8)
    for step in steps:
        ring.append(obs=step)
    assert np.array_equal(ring[:]["obs"], steps[-(n // 5) :])
    assert np.array_equal(ring.resized(90)[:]["obs"], steps[-(n // 5) :])
    assert np.array_equal(ring.resized(5)[:]["obs"], steps[-5:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "is_twice"),
    [({}, False), ({"decide_after": 4096}, True), ({"codec": "zstd:3", "block_frames": 8}, False)],
)
def test_noise_of_many_environments_takes_little_more_than_plain_arrays(options, is_twice):
    shape, n_envs, rng = (64, 64, 3), 256, np.random.default_rng(0)
    fields = {"obs": Field(shape, np.uint8, **options)}
    if is_twice:
        fields["later"] = Field(shape, np.uint8, next_of="obs")
    ring, plain = RingBuffer(8, fields, n_envs), (1 + is_twice) * 8 * n_envs * 64 * 64 * 3
    obs, steps = rng.integers(0, 256, (n_envs, *shape), np.uint8), []
    for step in range(24):
        later = rng.integers(0, 256, (n_envs, *shape), np.uint8)
        ring.append(obs=obs, **({"later": later} if is_twice else {}))
        steps.append(obs)
        obs = later
        if step == 10:
            ring.decide()
        assert ring.stats().total_bytes < 1.1 * plain
    some = np.array([1, 7, 200])
    for _ in range(3):
        ring.append(envs=some, obs=obs[some], **({"later": obs[some]} if is_twice else {}))
    assert np.array_equal(ring[:]["obs"][-8:][:, 2], np.array(steps[-8:])[:, 2])
    of_seven = ring.take(ring.indices[ring.indices % n_envs == 7])["obs"]
    assert np.array_equal(of_seven, [*np.array(steps[-5:])[:, 7], obs[7], obs[7], obs[7]])


def test_a_step_is_not_refused_when_only_its_spare_row_stays(monkeypatch):
    def fail(*_, **__):
        raise SystemError("error return without exception set")  # as numpy where an allocation fails

    ring = RingBuffer(2, {"obs": Field((128, 128, 3), np.uint8, "raw")}, 32)
    for step in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(TensorArray, "assign_ids", fail)
            ring.append(obs=np.full((32, 128, 128, 3), step, np.uint8))
    assert ring[:]["obs"][:, 0, 0, 0, 0].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("nbytes", "min_nbytes", "is_stored"), [(127, None, False), (128, None, True), (128, 129, False), (64, 64, True)]
)
def test_small_observations_are_compressed_from_128_bytes_on_if_the_next_one_is_stored(nbytes, min_nbytes, is_stored):
    small = RingBuffer(10, fields((nbytes,), min_nbytes=min_nbytes), episode_end="done")
    assert bool(small.stores) is is_stored
    assert not RingBuffer(10, {"obs": Field((nbytes,), np.uint8)}).stores


def test_what_comes_several_steps_later_is_no_part_of_a_stack_or_of_an_n_step_return():
    later = fields((40, 40), 3)
    with pytest.raises(FieldError, match=r"'later' comes 3 steps later.*leave it and 'obs' out of stack"):
        RingBuffer(10, later, stack={"obs": 2}, pad="zeros", episode_end="done")
    ring = RingBuffer(10, later, episode_end="done")
    ring.append(obs=np.ones((40, 40)), later=np.ones((40, 40)), reward=0, done=True)
    with pytest.raises(FieldError, match=r"'later' comes 3 steps later.*leave n_step out"):
        ring.sample(1, n_step=2, gamma=0.9)
    with pytest.raises(FieldError, match="pass next_of, too"):
        Field((4,), np.uint8, after=2)
    with pytest.raises(ShapeError, match="after"):
        Field((4,), np.uint8, next_of="obs", after=0)


@pytest.mark.parametrize("n_steps", [0, 7, 35])
def test_steps_that_a_former_version_did_not_compress_are_compressed_when_they_are_read(n_steps):
    old = RingBuffer(10, fields((200,), min_nbytes=201), N_ENVS, episode_end="done")
    new = RingBuffer(10, fields((200,)), N_ENVS, episode_end="done")
    if n_steps:
        fill(old, (200,), n_steps, 1)
    new.restore(old.state())
    for ring in (new, new.resized(20)):
        assert all(np.array_equal(steps, old[:][name]) for name, steps in ring[:].items())
    fill(old, (200,), 5, 1, seed=1)
    fill(new, (200,), 5, 1, seed=1)
    assert all(np.array_equal(steps, old[:][name]) for name, steps in new[:].items())
    wrong = old.state()
    wrong["arrays"]["arrays"][0]["items"] = wrong["arrays"]["arrays"][0]["items"][..., :100]
    with pytest.raises(CorruptStream, match=r"'items' of a state is uint8\[\d+, 3, 200\]"):
        RingBuffer(10, fields((200,)), N_ENVS, episode_end="done").restore(wrong)
