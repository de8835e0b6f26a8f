"""What a RingBuffer draws, against loops over lists: stacks, n steps, sequences, epochs, episodes, masks."""

import itertools
import re
import warnings

import numpy as np
import obscodec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import DTypeError, Field, FieldError, Prioritized, RingBuffer, ShapeError, SlotError, SpecError

SHAPE = (3, 2)
CAPACITY, N_ENVS, DEPTH = 40, 3, 4


def fields(codec: str | None = "zstd:1") -> dict[str, Field]:
    return {
        "obs": Field(SHAPE, np.uint8, codec, **({} if codec is None else {"decide_after": 4, "block_frames": 2})),
        "next_obs": Field(SHAPE, np.uint8, next_of="obs"),
        "reward": Field((), np.float32),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
        "valid": Field((), np.bool_),
        "number": Field((), np.int64),
    }


def new_buffer(capacity: int = CAPACITY, **options) -> RingBuffer:
    arguments = {"stack": {"obs": DEPTH}, "pad": "edge", "episode_end": ("terminated", "truncated"), "mask": "valid"}
    return RingBuffer(capacity, **{"fields": fields(), "n_envs": N_ENVS, **arguments, **options})


def steps(n: int, seed: int = 0, p_end: float = 0.15, p_reset: float = 0.5) -> list[dict[str, np.ndarray]]:
    """Steps of environments. After an episode, or when they break down, some need a step to reset themselves."""
    rng = np.random.default_rng(seed)
    made = []
    resets = np.zeros(N_ENVS, np.bool_)
    for number in range(n):
        ended = (rng.random(N_ENVS) < p_end) & ~resets
        terminated = ended & (rng.random(N_ENVS) < 0.5)
        obs, next_obs = rng.integers(256, size=(2, N_ENVS, *SHAPE), dtype=np.uint8)
        made.append({
            "obs": obs, "next_obs": next_obs, "reward": rng.normal(size=N_ENVS).astype(np.float32),
            "terminated": terminated, "truncated": ended & ~terminated, "valid": ~resets,
            "number": np.arange(N_ENVS) + N_ENVS * number,
        })  # fmt: skip
        resets = ended & (rng.random(N_ENVS) < p_reset) | (rng.random(N_ENVS) < 0.03)
    return made


class Loops:
    """What a buffer returns, by loops over all steps that were ever appended."""

    def __init__(self, appended: list[dict[str, np.ndarray]], capacity: int = CAPACITY, pad: str = "edge") -> None:
        self.appended, self.pad = appended, pad
        self.stored = range(max(0, len(appended) - capacity), len(appended))

    def goes_on(self, number: int, env: int) -> bool:
        """Whether the episode of a step has the next step, too."""
        step = self.appended[number]
        if step["terminated"][env] or step["truncated"][env] or not step["valid"][env]:
            return False
        return number + 1 < len(self.appended) and bool(self.appended[number + 1]["valid"][env])

    def stack(self, number: int, env: int, following: bool = False) -> np.ndarray:
        frames = [self.appended[number]["obs"][env]]
        at = number
        while at > 0 and self.goes_on(at - 1, env):
            at -= 1
            frames.insert(0, self.appended[at]["obs"][env])
        if following:
            frames.append(self.appended[number]["next_obs"][env])
        first = frames[0] if self.pad == "edge" else np.zeros_like(frames[0])
        return np.stack(([first] * DEPTH + frames)[-DEPTH:])

    def step(self, number: int, env: int, n: int = 1, gamma: float = 1.0) -> dict[str, np.ndarray]:
        last, total = number, 0.0
        for k in range(n):
            total += gamma**k * float(self.appended[last]["reward"][env])
            if k == n - 1 or not self.goes_on(last, env):
                break
            last += 1
        found = {name: self.appended[number][name][env] for name in ("number", "valid")}
        found |= {name: self.appended[last][name][env] for name in ("terminated", "truncated")}
        return found | {
            "obs": self.stack(number, env),
            "next_obs": self.stack(last, env, following=True),
            "reward": np.float32(total),
            "discount": np.float32(gamma ** (last - number + 1)),
        }

    def drawable(self) -> list[tuple[int, int]]:
        every = itertools.product(self.stored, range(N_ENVS))
        return [(number, env) for number, env in every if self.appended[number]["valid"][env]]

    def episodes(self, done: bool = True) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = []
        for env in range(N_ENVS):
            part: list[tuple[int, int]] = []
            for number in self.stored:
                if self.appended[number]["valid"][env]:
                    part.append((number, env))
                    if not self.goes_on(number, env) and number + 1 < len(self.appended):
                        found.append(part)
                        part = []
                    elif not self.goes_on(number, env):
                        ended = self.appended[number]["terminated"][env] or self.appended[number]["truncated"][env]
                        if ended or not done:
                            found.append(part)
        return found


def filled(n: int, seed: int = 0, **options) -> tuple[RingBuffer, Loops]:
    buffer, appended = new_buffer(**options), steps(n, seed)
    for step in appended:
        buffer.append(**step)
    return buffer, Loops(appended, buffer.capacity, buffer.pad or "edge")


def check_batch(batch: dict[str, np.ndarray], expected: list[dict[str, np.ndarray]]) -> None:
    for name, array in batch.items():
        stacked = np.stack([step[name] for step in expected])
        if name in ("reward", "discount"):
            np.testing.assert_allclose(array, stacked, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(array, stacked, name, strict=True)


def at(indices: np.ndarray) -> list[tuple[int, int]]:
    return [divmod(int(index), N_ENVS) for index in indices]


@pytest.mark.slow
@given(n=st.integers(1, 130), seed=st.integers(0, 10), pad=st.sampled_from(["edge", "zeros"]))
@settings(deadline=None)
def test_stacks_of_steps_and_of_their_next_observations_are_what_the_actor_saw(n, seed, pad):
    buffer, loops = filled(n, seed, pad=pad)
    found = buffer[:]
    for k, number in enumerate(loops.stored):
        for env in range(N_ENVS):
            if loops.appended[number]["valid"][env]:
                expected = loops.step(number, env)
                for name in found:
                    np.testing.assert_array_equal(found[name][k, env], expected[name], f"{name} {number} {env}")


@pytest.mark.parametrize(("pad", "before"), [("edge", 50), ("zeros", 0)])
def test_the_last_observation_of_an_episode_is_stacked_on_those_before_it(pad, before):
    kinds = {"obs": Field((40, 40), np.uint8), "next_obs": Field((40, 40), np.uint8, next_of="obs"),
             "done": Field((), np.bool_)}  # fmt: skip
    buffer = RingBuffer(100, kinds, stack={"obs": 4}, pad=pad, episode_end="done")
    image = np.ones((40, 40), np.uint8)
    for value, done in [(48, False), (49, True), (50, True), (60, False)]:
        buffer.append(obs=value * image, next_obs=(value + 1) * image, done=done)
    assert buffer[:]["next_obs"][:, 0, :, 0, 0].tolist()[2] == [before, before, 50, 51]
    assert buffer[:]["obs"][:, 0, :, 0, 0].tolist()[2] == [before, before, before, 50]
    assert buffer[:]["next_obs"][:, 0, :, 0, 0].tolist()[1][-3:] == [48, 49, 50]


def test_next_observations_keep_no_frame_twice():
    image = np.random.default_rng(0).integers(256, size=(400, 40, 40), dtype=np.uint8)
    one = {"obs": Field((40, 40), np.uint8, "raw")}
    two = one | {"next_obs": Field((40, 40), np.uint8, next_of="obs")}
    alone, both = RingBuffer(300, one), RingBuffer(300, two)
    for obs, next_obs in itertools.pairwise(image):
        alone.append(obs=obs)
        both.append(obs=obs, next_obs=next_obs)
    live = [buffer.stats().fields["obs"].live_bytes for buffer in (both, alone)]
    assert live[0] < 1.01 * live[1]
    np.testing.assert_array_equal(both[:]["next_obs"][:, 0], image[100:])


@pytest.mark.parametrize("codec", ["zstd:1", None])
def test_fields_of_plain_arrays_are_stacked_alike(codec):
    buffer, loops = filled(100, 3, fields=fields(codec))
    batch, indices = buffer.sample(50, 0, return_indices=True)
    check_batch(batch, [loops.step(*where) for where in at(indices)])


@given(
    n=st.integers(1, 130), seed=st.integers(0, 10), n_step=st.integers(1, 6), gamma=st.sampled_from([0.0, 0.5, 0.99, 1])
)
@settings(deadline=None)
def test_n_steps_end_with_their_episode_or_with_the_newest_step(n, seed, n_step, gamma):
    buffer, loops = filled(n, seed)
    drawable = loops.drawable()
    indices = np.array([number * N_ENVS + env for number, env in drawable], np.int64)
    found = buffer.take(indices, n_step=n_step, gamma=gamma)
    check_batch(found, [loops.step(*where, n_step, gamma) for where in drawable])


def test_rewards_of_n_steps_may_have_parts_and_infinities():
    kinds = {"reward": Field((2,), np.float64), "done": Field((), np.bool_)}
    buffer = RingBuffer(10, kinds, episode_end="done")
    rewards = np.array([[1, 2], [3, 4], [np.inf, 5], [7, -np.inf]])
    for reward, done in zip(rewards, [False, True, False, False], strict=True):
        buffer.append(reward=reward, done=done)
    found = buffer.take([0, 1, 2, 3], n_step=2, gamma=0.5)
    assert found["reward"].tolist() == [[2.5, 4], [3, 4], [np.inf, -np.inf], [7, -np.inf]]
    assert found["discount"].tolist() == [0.25, 0.5, 0.25, 0.5]


@pytest.mark.parametrize("options", [{}, {"replace": False}, {"p": "numbers"}, {"p": "numbers", "replace": False}])
def test_no_step_is_drawn_that_the_mask_excludes(options):
    buffer, loops = filled(90, 5)
    p = np.arange(CAPACITY * N_ENVS, dtype=float).reshape(CAPACITY, N_ENVS) if "p" in options else None
    drawable = {number * N_ENVS + env for number, env in loops.drawable()}
    options = {**options, "p": p}
    _, indices = buffer.sample(min(60, len(drawable)), 1, return_indices=True, **options)
    assert {*indices.tolist()} <= drawable
    if "replace" in options:
        assert len({*indices.tolist()}) == len(indices)
    counts = np.zeros(buffer.indices.stop)
    for seed in range(300):
        _, indices = buffer.sample(20, seed, return_indices=True, **options)
        np.add.at(counts, indices, 1)
    assert set(np.flatnonzero(counts)) >= drawable - {min(drawable), *range(buffer.indices.start + 12)}
    expected = np.zeros(len(counts))
    expected[sorted(drawable)] = 1 if p is None else p.reshape(-1)[np.array(sorted(drawable)) - buffer.indices.start]
    if "replace" not in options:
        np.testing.assert_allclose(counts / counts.sum(), expected / expected.sum(), atol=0.006)


def test_a_buffer_whose_mask_is_false_everywhere_gives_nothing():
    buffer = new_buffer()
    for step in steps(5):
        buffer.append(**step | {"valid": np.zeros(N_ENVS, np.bool_)})
    for draw in (
        lambda: buffer.sample(2),
        lambda: buffer.sample(2, replace=False),
        lambda: buffer.sample(2, p=[1] * 15),
    ):
        with pytest.raises(SlotError, match=r"^the mask is False in all steps, or they were taken out: append"):
            draw()
    with pytest.raises(SlotError, match=r"^there are no items to draw: "):
        buffer.sample(2, p=Prioritized(CAPACITY * N_ENVS))
    with pytest.raises(SlotError, match=r"^no episode has 1 steps, the longest stored has 0: "):
        buffer.sequences(2, 1)
    buffer.append(**steps(1)[0] | {"valid": np.arange(N_ENVS) == 1})
    assert {*buffer.sample(100, 0)["number"].tolist()} == {1}


def test_an_index_is_valid_until_its_step_is_overwritten():
    buffer, _ = filled(60, 7)
    batch, indices = buffer.sample(30, 0, return_indices=True)
    more = steps(100, 8)
    for k in range(CAPACITY):
        gone = indices < buffer.indices.start
        found = buffer.take(indices[~gone])
        for name, array in batch.items():
            np.testing.assert_array_equal(found[name], array[~gone])
        if gone.any():
            stored = f"^steps with the indices {buffer.indices.start} to {buffer.indices.stop - 1} are stored, got "
            with pytest.raises(
                SlotError, match=f"{stored}{indices[gone].min()} to {indices[gone].max()}: earlier ones are overw"
            ):
                buffer.take(indices)
        buffer.append(**more[k])
    assert gone.sum() > 25
    with pytest.raises(SlotError):
        buffer.take([buffer.indices.stop])


@pytest.mark.parametrize("overlap", [None, 0, 3])
@pytest.mark.parametrize("burn_in", [0, 2])
@pytest.mark.parametrize("strict_length", [True, False])
def test_sequences_are_parts_of_episodes(overlap, burn_in, strict_length):
    length, seed = 5, int(strict_length == bool(burn_in))
    buffer, loops = filled(100, seed)
    expected: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for episode in loops.episodes(done=False):
        beyond = len(episode) - length
        if beyond < 0 and strict_length:
            continue
        stride = 1 if overlap is None else length - overlap
        for begin in {min(k, max(beyond, 0)) for k in range(0, max(beyond, 0) + stride, stride)}:
            expected[episode[begin]] = [*episode[max(begin - burn_in, 0) : begin], *episode[begin : begin + length]]
    options = {"overlap": overlap, "burn_in": burn_in, "strict_length": strict_length}
    batch, indices = buffer.sequences(600, length, seed, **options, return_indices=True)
    np.testing.assert_array_equal(batch["number"][:, burn_in], indices)
    again = buffer.sequences(9, length, burn_in=burn_in, starts=indices[:9])
    np.testing.assert_array_equal(again["number"], batch["number"][:9])
    found = set()
    for k in range(600):
        real = batch["mask"][k]
        assert real.shape == (burn_in + length,)
        first = divmod(int(batch["number"][k, burn_in]), N_ENVS)
        found.add(first)
        where = expected[first]
        n_before = sum(number < first[0] for number, _ in where)
        assert real.tolist() == [burn_in - n_before <= j < burn_in - n_before + len(where) for j in range(len(real))]
        check_batch({name: array[k][real] for name, array in batch.items() if name != "mask"},
                    [loops.step(*at) for at in where])  # fmt: skip
        assert not any(array[k][~real].any() for array in batch.values())
    assert found == {*expected}


@pytest.mark.parametrize("overlap", [None, 1])
def test_sequences_of_every_third_step_and_what_follows(overlap):
    buffer, loops = filled(100, 3)
    batch, starts = buffer.sequences(300, 3, 0, dilation=3, bootstrap=2, overlap=overlap, return_indices=True)
    assert batch["mask"][:, :3].all()  # a step behind the sequence may be missing
    assert not batch["mask"][:, 3].all()
    assert batch["mask"][:, 4].any()
    episodes = {at: episode for episode in loops.episodes(done=False) for at in episode}
    seen = set()
    for row, start in enumerate(starts):
        first = divmod(int(start), N_ENVS)
        where = episodes[first]
        begin = where.index(first)
        seen.add(begin if begin + 7 < len(where) else None)
        wanted = where[begin : begin + 13 : 3]
        assert batch["mask"][row].tolist() == [k < len(wanted) for k in range(5)]
        assert batch["number"][row][batch["mask"][row]].tolist() == [k * N_ENVS + env for k, env in wanted]
    if overlap == 1:
        assert seen <= {None, 0, 6, 12, 18}


def test_whole_episodes_are_filled_up():
    buffer, loops = filled(100, 4)
    ended = [[k * N_ENVS + env for k, env in episode] for episode in loops.episodes(done=True)]
    batch, first = buffer.sample_episodes(200, 0, return_indices=True)
    found = [row[real].tolist() for row, real in zip(batch["number"], batch["mask"], strict=True)]
    assert {*map(tuple, found)} == {*map(tuple, ended)}
    assert [row[0] for row in found] == first.tolist()
    assert batch["obs"].shape[:2] == (200, max(map(len, ended)))
    cut = buffer.sample_episodes(200, 0, length=2, return_indices=True)
    assert cut[1].tolist() == first.tolist()
    np.testing.assert_array_equal(cut[0]["number"], batch["number"][:, :2])
    longer = buffer.sample_episodes(3, 0, length=50)
    assert longer["mask"].shape == (3, 50)
    assert not longer["obs"][~longer["mask"]].any()


def test_episodes_that_run_are_no_whole_ones():
    buffer = RingBuffer(10, {"done": Field((), np.bool_)}, episode_end="done")
    buffer.append(done=False)
    with pytest.raises(SlotError, match="no episode has ended: append more steps, or call end_episodes"):
        buffer.sample_episodes(1)
    buffer.append(done=True)
    assert buffer.sample_episodes(1)["mask"].tolist() == [[True, True]]


def test_sequences_begin_where_they_are_told():
    buffer, loops = filled(100, 2)
    episode = max(loops.episodes(), key=len)
    starts = [number * N_ENVS + env for number, env in (episode[0], episode[-2])]
    batch = buffer.sequences(2, 4, starts=starts)
    assert batch["mask"].tolist() == [[True] * 4, [True, True, False, False]]
    assert batch["number"][1, :2].tolist() == [number * N_ENVS + env for number, env in episode[-2:]]
    resets = [(n, e) for n in loops.stored for e in range(N_ENVS) if not loops.appended[n]["valid"][e]]
    number, env = resets[0]
    text = f"^no sequence begins at step {number} of environment {env}: mask is False there$"
    with pytest.raises(SlotError, match=text):
        buffer.sequences(1, 4, starts=[number * N_ENVS + env])


@pytest.mark.parametrize("across", [False, True])
def test_sequences_begin_at_the_steps_that_sample_draws(across):
    buffer, _ = filled(100, 2)
    weights = np.random.default_rng(0).random(len(buffer) * N_ENVS)
    priorities = Prioritized(buffer.capacity * N_ENVS)
    for p in (weights, weights.reshape(-1, N_ENVS), priorities):
        _, drawn = buffer.sample(50, 1, p=p, return_indices=True)
        batch, starts = buffer.sequences(50, 6, 1, p=p, across_episodes=across, return_indices=True)
        np.testing.assert_array_equal(starts, drawn)
        expected = buffer.sequences(50, 6, starts=drawn, across_episodes=across)
        for name, array in expected.items():
            np.testing.assert_array_equal(batch[name], array, name)
    only = np.zeros(len(buffer) * N_ENVS)
    only[int(drawn[0]) - buffer.indices.start] = 1
    assert {*buffer.sequences(20, 3, p=only, return_indices=True)[1].tolist()} == {int(drawn[0])}


def test_sequences_across_episodes_are_all_consecutive_steps():
    buffer, loops = filled(100, 2)
    batch = buffer.sequences(500, 7, 0, across_episodes=True)
    numbers = batch["number"][:, :1] + N_ENVS * np.arange(7)
    begins_real = batch["mask"][:, 0]
    real = np.array([[loops.appended[n // N_ENVS]["valid"][n % N_ENVS] for n in row] for row in numbers])
    assert (batch["mask"] == real)[begins_real].all()
    assert (batch["number"] == numbers * batch["mask"])[begins_real].all()
    assert not batch["mask"].all()
    batch = filled(100, 2, mask=None)[0].sequences(500, 7, 0, across_episodes=True)
    assert batch["mask"].all()
    assert (np.diff(batch["number"], axis=1) == N_ENVS).all()
    assert {*(batch["number"][:, 0] // N_ENVS).tolist()} == {*range(loops.stored.start, loops.stored.stop - 6)}


def test_an_epoch_has_every_step_once():
    buffer, loops = filled(100, 4)
    every = sorted(number * N_ENVS + env for number, env in loops.drawable())
    orders = []
    for drop_last in (False, True):
        batches = [*buffer.epochs(32, 0, n_epochs=2, drop_last=drop_last)]
        per_epoch = len(every) // 32 + (not drop_last and len(every) % 32 > 0)
        assert len(batches) == 2 * per_epoch
        for epoch in (batches[:per_epoch], batches[per_epoch:]):
            numbers = np.concatenate([batch["number"] for batch in epoch]).tolist()
            orders.append(numbers)
            assert len({*numbers}) == len(numbers)
            assert sorted(numbers) == every if not drop_last else {*numbers} < {*every}
    assert len({tuple(order) for order in orders[:2]}) == 2
    for batch, indices in buffer.epochs(32, 0, return_indices=True):
        np.testing.assert_array_equal(batch["number"], indices)
    batches = buffer.epochs(32, 0, n_epochs=2)
    for step in steps(CAPACITY):  # of which none is drawn, though they come before the first batch
        buffer.append(**step)
    with pytest.raises(SlotError, match=r": earlier ones are overwritten, later ones not appended yet$"):
        next(batches)


@pytest.mark.parametrize("unfinished", [False, True])
def test_episodes_come_one_by_one(unfinished):
    for n in (10, 100, 140):
        buffer, loops = filled(n, n)
        found = [*buffer.episodes(unfinished=unfinished)]
        expected = loops.episodes(done=not unfinished)
        assert len(found) == len(expected)
        for episode, where in zip(found, expected, strict=True):
            check_batch(episode, [loops.step(*at) for at in where])


def test_episodes_are_found_while_steps_come_and_go():
    buffer, appended = new_buffer(), steps(150, 6)
    for k, step in enumerate(appended):
        buffer.append(**step)
        found = [episode["number"].tolist() for episode in buffer.episodes()]
        loops = Loops(appended[: k + 1])
        assert found == [[number * N_ENVS + env for number, env in episode] for episode in loops.episodes()]


def test_extend_is_append_again_and_again():
    one, many, appended = new_buffer(), new_buffer(), steps(70, 1)
    for step in appended:
        one.append(**step)
    for part in (appended[:3], appended[3:60], appended[60:]):
        many.extend(**{name: np.stack([step[name] for step in part]) for name in part[0]})
    for name, array in one[:].items():
        np.testing.assert_array_equal(many[:][name], array)
    many.extend(**{name: np.zeros((0, *array.shape), array.dtype) for name, array in appended[0].items()})
    single = RingBuffer(10, {"x": Field((2,), np.float32), "y": Field((), np.int64)})
    single.extend(x=np.arange(8.0).reshape(4, 2), y=[1, 2, 3, 4])
    assert single[:]["y"][:, 0].tolist() == [1, 2, 3, 4]


def test_a_refused_extend_stores_nothing():
    buffer, _ = filled(10)
    good = {name: np.stack([step[name] for step in steps(4)]) for name in fields()}
    refused = [
        ({"reward": good["reward"][:3]}, ShapeError,
         "all fields must have the same number of steps, got obs 4, next_obs 4, reward 3, terminated 4, truncated 4, "
         "valid 4, number 4"),
        ({"obs": good["obs"][0]}, ShapeError, "field 'obs': expected shape (3, 3, 3, 2), got (3, 3, 2)"),
        ({"obs": 3}, ShapeError, "field 'obs': expected an array of steps, got a number"),
        ({"number": good["number"] + 0.5}, DTypeError,
         "field 'number': values of dtype float64, such as 0.5, would be changed by dtype int64: cast them yourself, "
         "or use a dtype that can hold them"),
        ({"more": 1}, FieldError, f"a step has the fields {', '.join(good)}: 'more' is none of them"),
    ]  # fmt: skip
    for change, error, text in refused:
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            buffer.extend(**good | change)
        assert len(buffer) == 10


def test_a_cleared_buffer_begins_anew_and_gives_its_memory_back():
    buffer, _ = filled(100)
    assert buffer.full
    _, indices = buffer.sample(4, 0, return_indices=True)
    ids = [array.ids for array in buffer._arrays.values() if isinstance(array, obscodec.TensorArray)]
    assert all(of.any() for of in ids)
    buffer.clear()
    assert (len(buffer), buffer.full, [*buffer.episodes(unfinished=True)]) == (0, False, [])
    assert not any(of.any() for of in ids)
    with pytest.raises(SlotError):
        buffer.take(indices)
    appended = steps(9, 20)
    for step in appended:
        buffer.append(**step)
    loops = Loops(appended)
    for k, env in itertools.product(range(9), range(N_ENVS)):
        if appended[k]["valid"][env]:
            np.testing.assert_array_equal(buffer[k, env]["obs"], loops.stack(k, env))


NAMES = ", ".join(fields())
REFUSED = [
    (lambda ring: ring.sample(2, replace=0.5), DTypeError, "replace must be True or False, got 0.5"),
    (lambda ring: ring.sample(1000, replace=False), ShapeError,
     "102 steps can be drawn without replacement, got batch=1000: ask for fewer"),
    (lambda ring: ring.sample(2, p=[0.5, 0.5]), ShapeError,
     "p has a probability for each step and environment, (40, 3), got shape (2,)"),
    (lambda ring: ring.sample(2, p=np.full((40, 3), -1)), ShapeError,
     "p must be numbers of 0 or more, of which one is not 0"),
    (lambda ring: ring.sample(2, p=Prioritized(120), replace=False), SpecError,
     "priorities are drawn with replacement: leave replace out"),
    (lambda ring: ring.sample(2, p=Prioritized(100)), ShapeError,
     "Prioritized has room for 100 steps, the buffer for 120, 40 of each of 3 environments: make a Prioritized(120)"),
    (lambda ring: ring.sample(2, n_step=3), FieldError,
     "n_step and gamma belong together: pass both, such as n_step=3, gamma=0.99"),
    (lambda ring: ring.sample(2, n_step=0, gamma=1), ShapeError, "n_step must be 1 or more, got 0"),
    (lambda ring: ring.sample(2, n_step=2, gamma=1.5), ShapeError, "gamma must be 0 to 1, got 1.5"),
    (lambda ring: ring.sample(2, n_step=2, gamma="1"), DTypeError, "gamma must be a number of 0 to 1, got '1'"),
    (lambda ring: ring.sample(2, n_step=2, gamma=1, reward="r"), FieldError,
     f"n_step adds rewards, and no field is named 'r', there are {NAMES}: pass reward, the name of one"),
    (lambda ring: ring.sample(2, n_step=2, gamma=1, reward="number"), DTypeError,
     "n_step adds rewards of float16, float32 or float64, field 'number' is int64"),
    (lambda ring: ring.sample(5, replace=False, p=np.arange(120) > 117), ShapeError,
     "2 steps can be drawn without replacement, got batch=5: ask for fewer"),
    (lambda ring: ring.sample(2, p="abc"), DTypeError,
     "p must be real numbers, got 'abc': pass an array of them"),
    (lambda ring: ring.sample(2, p=Prioritized(120), replace="False"), DTypeError,
     "replace must be True or False, got 'False'"),
    (lambda ring: ring.take(3), ShapeError, "indices are an array [batch], got shape ()"),
    (lambda ring: ring.take([[1, 2]]), ShapeError, "indices are an array [batch], got shape (1, 2)"),
    (lambda ring: ring.sequences(7, 2, starts=ring.indices[-2:]), ShapeError,
     "batch is 7, and there are 2 starts: pass a start for each sequence"),
    (lambda ring: ring.sequences(2, 2, p=[1], starts=ring.indices[-2:]), SpecError,
     "p says where sequences begin: leave starts and overlap out"),
    (lambda ring: ring.sample(2, to="cpu", convert=len), SpecError,
     "to returns tensors of PyTorch or arrays of JAX, convert whatever you like: pass one of them"),
    (lambda ring: ring.take([0.5]), DTypeError, "indices are integers, got float64"),
    (lambda ring: ring.sequences(2, 0), ShapeError, "length must be 1 or more, got 0"),
    (lambda ring: ring.sequences(2, 4, overlap=4), ShapeError, "overlap must be less than length, 4, got 4"),
    (lambda ring: ring.sequences(2, 4, burn_in=-1), ShapeError, "burn_in must be 0 or more, got -1"),
    (lambda ring: ring.sequences(2, 4, bootstrap=-1), ShapeError, "bootstrap must be 0 or more, got -1"),
    (lambda ring: ring.sequences(2, 4, dilation=0), ShapeError, "dilation must be 1 or more, got 0"),
    (lambda ring: ring.sample_episodes(2, length=0), ShapeError,
     "length must be 1 or more, or None, got 0"),
    (lambda ring: ring.sequences(2, 1000), SlotError,
     "no episode has 1000 steps, the longest stored has 11: append more, ask for shorter sequences, or pass "
     "strict_length=False to have shorter ones filled with zeros"),
    (lambda ring: ring.epochs(0), ShapeError, "batch must be 1 or more, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "error", "text"), REFUSED)
def test_what_can_not_be_drawn_is_refused(use, error, text):
    buffer, _ = filled(100)
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        use(buffer)


PADS = "'edge' repeats the first one, as Gymnasium's FrameStackObservation; 'zeros' is as SB3's VecFrameStack"
REFUSED_BUFFERS = [
    ({"pad": None}, SpecError, f"stacks need pad, what stands before the first step of an episode: {PADS}"),
    ({"pad": "reset"}, SpecError, f"pad must be 'edge' or 'zeros', got 'reset': {PADS}"),
    ({"stack": None}, SpecError, "pad is for stacks: pass stack, too, or leave pad out"),
    ({"mask": "number"}, DTypeError, "mask takes a field bool[], 'number' is int64[]"),
    ({"stack": {"obs": 4, "next_obs": 3}}, FieldError,
     "'next_obs' is the next of 'obs', and stacked as that is: leave it out of stack"),
    ({"stack": {"next_obs": 3}}, FieldError,
     "'next_obs' is the next of 'obs', and stacked as that is: leave it out of stack"),
    ({"fields": fields() | {"x": Field((), np.int64, next_of="number"), "y": Field((), np.int64, next_of="x")}},
     FieldError, "'y' can't share the store of 'x', which has none of its own: name the field that owns the store"),
    ({"fields": {"obs": (84, 84)}}, DTypeError,
     "field 'obs' must be a Field, such as Field((84, 84), 'uint8'), got tuple"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "text"), REFUSED_BUFFERS)
def test_a_constructor_refuses_what_no_loop_can_mean(change, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        new_buffer(**change)


def test_names_that_are_added_are_no_fields():
    kinds = {"mask": Field((), np.bool_), "discount": Field((), np.float32), "reward": Field((), np.float32)}
    buffer = RingBuffer(5, kinds, episode_end="mask")
    buffer.append(mask=False, discount=1.0, reward=1.0)
    with pytest.raises(FieldError, match=r"^n_step returns a discount: give the field 'discount' another name$"):
        buffer.sample(1, n_step=2, gamma=0.5)
    with pytest.raises(FieldError, match=r"^sequences return a mask: give the field 'mask' another name$"):
        buffer.sequences(1, 1)
    with pytest.raises(FieldError, match=r"^next_of shares the store of the field it names: leave out shares$"):
        Field((), np.int64, shares="x", next_of="x")


def test_without_ends_there_are_no_episodes():
    buffer = RingBuffer(5, {"reward": Field((), np.float32)})
    buffer.append(reward=1.0)
    text = "episodes end where episode_end is true: pass it, the name of a boolean field"
    for use in (lambda: buffer.sequences(1, 1), buffer.episodes):
        with pytest.raises(FieldError, match=f"^{text}$"):
            use()
    with pytest.raises(FieldError, match=r"^n_step needs episode_end, "):
        buffer.sample(1, n_step=2, gamma=0.5)
    assert buffer.sequences(3, 1, across_episodes=True)["reward"].shape == (3, 1)


def test_stacks_of_a_limited_buffer_have_the_steps_before_the_oldest():
    kinds = fields() | {
        "obs": Field((40, 40), np.uint8, "zstd:1", decide_after=4),
        "next_obs": Field((40, 40), np.uint8, next_of="obs"),
    }
    buffer = new_buffer(5_000, fields=kinds, max_bytes=600_000)
    rng, appended = np.random.default_rng(0), steps(400, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in appended:
            step["obs"], step["next_obs"] = rng.integers(256, size=(2, N_ENVS, 40, 40), dtype=np.uint8)
            buffer.append(**step)
    loops = Loops(appended, len(buffer))
    assert len(buffer) < 300
    for k, env in itertools.product(range(6), range(N_ENVS)):
        number = loops.stored[k]
        if appended[number]["valid"][env]:
            np.testing.assert_array_equal(buffer[k, env]["obs"], loops.stack(number, env))


def test_empty_batches_have_the_shapes_of_others():
    buffer, _ = filled(60)
    priorities = Prioritized(CAPACITY * N_ENVS)
    for batch in (
        buffer.sample(0),
        buffer.sample(0, p=priorities),
        buffer.sample(0, replace=False),
        buffer.take(np.empty(0, np.int64), n_step=3, gamma=0.5),
        buffer.sequences(0, 3),
    ):
        assert {len(array) for array in batch.values()} == {0}
        assert batch["obs"].shape[-3:] == (DEPTH, *SHAPE)


def test_an_empty_buffer_has_no_batches_of_any_kind():
    text = r"^the buffer is empty: append a step before you sample$"
    for draw in (lambda ring: ring.sequences(1, 1), lambda ring: ring.epochs(4), lambda ring: ring.sample(0)):
        with pytest.raises(SlotError, match=text):
            draw(new_buffer())
    assert [*new_buffer().episodes(unfinished=True)] == []


def test_any_finite_numbers_are_probabilities():
    buffer, _ = filled(60, mask=None)
    _, indices = buffer.sample(50, 0, p=np.full(CAPACITY * N_ENVS, 1e308), return_indices=True)
    assert len({*indices.tolist()}) > 20


def test_many_steps_of_an_episode_that_is_short_take_no_time():
    buffer, loops = filled(60)
    drawable = loops.drawable()[:5]
    indices = [number * N_ENVS + env for number, env in drawable]
    check_batch(buffer.take(indices, n_step=1 << 40, gamma=np.int64(1)), [loops.step(*at, 100, 1) for at in drawable])


def test_rewards_that_are_stacked_are_not_added():
    buffer = RingBuffer(5, fields(), N_ENVS, {"reward": 2}, "truncated", pad="zeros")
    buffer.append(**steps(1)[0])
    with pytest.raises(FieldError, match=r"^n_step adds single rewards: leave 'reward' out of stack$"):
        buffer.sample(1, n_step=2, gamma=1)
