"""Environments that do not step together: random programs against lists of steps, and what is refused."""

import itertools
import pickle

import numpy as np
import obscodec
import pytest
from faults import at_every_line
from obscodec import Field, Prioritized, RingBuffer
from obscodec.errors import CorruptStream, DTypeError, ShapeError, SlotError

N_ENVS, CAPACITY, STACK, GAMMA = 3, 12, 3, 0.5
FIELDS = {
    "obs": Field((8, 8), np.uint16, "delta-rle", block_frames=4),
    "next_obs": Field((8, 8), np.uint16, next_of="obs"),
    "reward": Field((), np.float64),
    "terminated": Field((), np.bool_),
    "truncated": Field((), np.bool_),
    "valid": Field((), np.bool_),
}


def ring(**more):
    ends = ("terminated", "truncated")
    options = {"stack": {"obs": STACK}, "episode_end": ends, "pad": "zeros", "mask": "valid", "threads": 1} | more
    return RingBuffer(CAPACITY, FIELDS, N_ENVS, **options)


class Model:
    """The steps of each environment, as lists: each with whether its episode ends there, and whether it is gone."""

    def __init__(self, rng):
        self.rng = rng
        self.steps = [[] for _ in range(N_ENVS)]
        self.first = [0] * N_ENVS

    def new(self, env):
        """A step of an environment."""
        rng, seen = self.rng, self.rng.integers(1, 60000)
        goes_on = self.steps[env] and not self.steps[env][-1]["end"]
        obs = self.steps[env][-1]["next_obs"] if goes_on else seen
        flags = {name: rng.random() < 0.1 for name in ("terminated", "truncated")}
        return {
            "obs": obs,
            "next_obs": rng.integers(1, 60000),
            "reward": rng.random(),
            "valid": rng.random() < 0.9,
            **flags,
        }

    def add(self, env, step):
        """Append a step, which may be one of no episode."""
        self.steps[env].append(
            {**step, "end": step["terminated"] or step["truncated"] or not step["valid"], "gone": False}
        )
        self.first[env] = max(self.first[env], len(self.steps[env]) - CAPACITY)

    def there(self):
        """The environments and numbers of the steps that are stored."""
        return [(e, k) for e in range(N_ENVS) for k in range(self.first[e], len(self.steps[e]))]

    def drawable(self):
        """The same of those that may be drawn."""
        return [(e, k) for e, k in self.there() if self.steps[e][k]["valid"] and not self.steps[e][k]["gone"]]

    def begin(self, env, k, least):
        """The first step of the episode of a step, from ``least`` on."""
        while k > least and not self.steps[env][k - 1]["end"]:
            k -= 1
        return k

    def stack(self, env, k, name):
        """What a stack shows; earlier steps than the oldest are there for it, unless they were cleared."""
        steps, first = self.steps[env], self.begin(env, k, max(self.kept[env], self.first[env] - STACK + 1))
        seen = [steps[j][name] for j in range(max(first, k - STACK + 1), k + 1)]
        if name == "next_obs":
            seen = [steps[j]["obs"] for j in range(max(first, k - STACK + 2), k + 1)] + [steps[k]["next_obs"]]
        return [0] * (STACK - len(seen)) + seen

    kept = (0,) * N_ENVS  # no stack reaches into steps before these


def append(buffer, model, envs, n=None):
    """Append a step, or ``n``, of environments in this order."""
    made = []
    for _ in range(n or 1):
        made.append([model.new(env) for env in envs])
        for env, step in zip(envs, made[-1], strict=True):
            model.add(env, step)
    image = np.ones((8, 8), np.uint16)
    values = {
        name: np.array([[step[name] * image if "obs" in name else step[name] for step in row] for row in made])
        for name in FIELDS
    }
    how = {} if envs == [*range(N_ENVS)] and model.rng.random() < 0.5 else {"envs": envs}
    if n is None:
        buffer.append(**how, **{name: value[0] for name, value in values.items()})
    else:
        buffer.extend(**how, **values)


def check(buffer, model, rng, priorities):
    """Compare all that a buffer draws with a model."""
    there, drawable = model.there(), model.drawable()
    assert len(buffer) == max(len(of) - first for of, first in zip(model.steps, model.first, strict=True))
    assert [*buffer.indices] == sorted(k * N_ENVS + e for e, k in there)
    everything = buffer[:]
    for e in range(N_ENVS):
        steps = model.steps[e][model.first[e] :]
        shown = [0 if step["gone"] else step["reward"] for step in steps]
        assert [*everything["reward"][:, e]] == [0] * (len(buffer) - len(steps)) + shown
    if not drawable:
        return
    epoch = [*buffer.epochs(5, rng, return_indices=True)]
    assert sorted(np.concatenate([at for _, at in epoch])) == sorted(k * N_ENVS + e for e, k in drawable)
    batches = [
        *epoch,
        (buffer.sample(9, rng, return_indices=True)),
        (buffer.sample(9, rng, p=priorities, return_indices=True)),
    ]
    for batch, indices in batches:
        for at, index in enumerate(indices):
            k, e = divmod(int(index), N_ENVS)
            assert (e, k) in drawable
            assert batch["reward"][at] == model.steps[e][k]["reward"]
            for name in ("obs", "next_obs"):
                assert [*batch[name][at, :, 0, 0]] == model.stack(e, k, name)
                assert (batch[name][at] == batch[name][at, :, :1, :1]).all()
    priorities.update(batches[-1][1], rng.random(9))
    batch, indices = buffer.sample(9, rng, n_step=3, gamma=GAMMA, return_indices=True)
    for at, index in enumerate(indices):
        k, e = divmod(int(index), N_ENVS)
        steps, last = model.steps[e], k
        while last < k + 2 and not steps[last]["end"] and (e, last + 1) in drawable:
            last += 1
        assert np.isclose(batch["reward"][at], sum(GAMMA ** (j - k) * steps[j]["reward"] for j in range(k, last + 1)))
        assert batch["discount"][at] == GAMMA ** (last - k + 1)
        assert [*batch["next_obs"][at, :, 0, 0]] == model.stack(e, last, "next_obs")
    every, n_more = (int(of) for of in rng.integers(1, 3, size=2))
    how = {"burn_in": 2, "bootstrap": n_more, "dilation": every, "strict_length": False, "return_indices": True}
    batch, starts = buffer.sequences(6, 4, rng, **how)
    for at, start in enumerate(starts):
        k, e = divmod(int(start), N_ENVS)
        first = model.begin(e, k, model.first[e])
        for i, (j, real) in enumerate(
            zip(range(k - 2 * every, k + (4 + n_more) * every, every), batch["mask"][at], strict=True)
        ):
            ends_before = any(model.steps[e][i]["end"] for i in range(k, min(j, len(model.steps[e]))))
            assert real == (first <= j < len(model.steps[e]) and not ends_before and (e, j) in drawable)
            assert batch["reward"][at, i] == (model.steps[e][j]["reward"] if real else 0)
            for name in ("obs", "next_obs"):
                assert [*batch[name][at, i, :, 0, 0]] == (model.stack(e, j, name) if real else [0] * STACK)
    found = [[*episode["reward"]] for episode in buffer.episodes(unfinished=True)]
    expected, running_ones = [], []
    for e in range(N_ENVS):
        running = []
        for k in range(model.first[e], len(model.steps[e])):
            step = model.steps[e][k]
            running += [step["reward"]] if (e, k) in drawable else []
            if (step["end"] or step["gone"]) and running:
                expected.append(running)
                running = []
        expected += [running] if running else []
        running_ones += [running] if running else []
    assert found == expected
    if ended := [episode for episode in expected if episode not in running_ones]:
        batch = buffer.sample_episodes(8, rng)
        sampled = [[*of[real]] for of, real in zip(batch["reward"], batch["mask"], strict=True)]
        assert all(episode in ended for episode in sampled)
        assert batch["mask"].shape[1] == max(map(len, sampled))
    ends = buffer._drawer._ends
    assert len({*zip(ends.envs, ends.steps, strict=True)}) == len(ends.steps)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed):
    rng = np.random.default_rng(seed)
    buffer, model, priorities = ring(), Model(rng), Prioritized(CAPACITY * N_ENVS)
    speeds = rng.random(N_ENVS) + 0.1
    for _ in range(120):
        kind = rng.choice(
            ["some", "some", "some", "all", "many", "end", "drop", "clear", "pickle"],
            p=[0.2, 0.2, 0.2, 0.15, 0.1, 0.05, 0.04, 0.01, 0.05],
        )
        if kind == "some":
            n = rng.integers(1, N_ENVS + 1)
            append(buffer, model, [int(e) for e in rng.choice(N_ENVS, n, replace=False, p=speeds / speeds.sum())])
        elif kind == "all":
            append(buffer, model, [*range(N_ENVS)])
        elif kind == "many":
            append(buffer, model, [int(rng.integers(N_ENVS))], n=int(rng.integers(1, 5)))
        elif kind == "end":
            env = int(rng.integers(N_ENVS))
            buffer.end_episodes(env)
            if model.steps[env][model.first[env] :] and not model.steps[env][-1]["end"]:
                model.steps[env][-1] |= {"end": True, "truncated": True}
        elif kind == "drop":
            env = int(rng.integers(N_ENVS))
            buffer.drop_episode(env)
            for k in range(model.begin(env, len(model.steps[env]), model.first[env]), len(model.steps[env])):
                model.steps[env][k] |= {"gone": True}
            if model.steps[env]:
                model.steps[env][-1]["end"] = model.steps[env][-1]["end"] or model.steps[env][-1]["gone"]
        elif kind == "clear":
            buffer.clear()
            model.first = [len(of) for of in model.steps]
            model.kept = tuple(model.first)
            for of in model.steps:
                if of:
                    of[-1]["end"] = True
        else:
            buffer, priorities = pickle.loads(pickle.dumps((buffer, priorities)))
        check(buffer, model, rng, priorities)


def value(k):
    """A step of one environment, with a number."""
    image = np.full((8, 8), k, np.uint16)
    return {"obs": image, "next_obs": image + 1, "reward": k, "terminated": False, "truncated": False, "valid": True}


def some(n=10, **more):
    """A buffer whose environment 1 has ``n`` steps, and the others one."""
    buffer = ring(**more)
    buffer.append(**{name: [of] * N_ENVS for name, of in value(0).items()})
    for k in range(1, n):
        buffer.append(envs=1, **value(k))
    return buffer


@pytest.mark.parametrize(
    ("envs", "error", "text"),
    [
        ([0, 3], ShapeError, r"environments must be 0 to 2, got \[0, 3\]"),
        (-1, ShapeError, "environments must be 0 to 2, got -1"),
        ([1, 1], ShapeError, r"a step of each environment has one value, got \[1, 1\]: name each once"),
        ([[0, 1]], ShapeError, r"a step of each environment has one value, got \[\[0, 1\]\]: name each once"),
        ([[0], [1]], ShapeError, r"a step of each environment has one value, got \[\[0\], \[1\]\]: name each once"),
        ([0.5], DTypeError, "environments are integers"),
        ([0, 1], ShapeError, "field 'obs': expected shape"),
    ],
)
def test_what_it_refuses(envs, error, text):
    buffer = some()
    before = buffer[:]
    for store in (
        buffer.append,
        lambda **step: buffer.extend(**{n: of if n == "envs" else [of] for n, of in step.items()}),
    ):
        with pytest.raises(error, match=text):
            store(envs=envs, **value(5))
    for name, of in buffer[:].items():
        np.testing.assert_array_equal(of, before[name])


def test_no_environment_has_no_step():
    buffer = some()
    buffer.append(envs=[], **{name: np.empty((0, *np.shape(of))) for name, of in value(0).items()})
    assert len(buffer) == 10


def test_a_field_with_this_name_is_a_field():
    buffer = RingBuffer(4, {"envs": Field((), np.int64)}, n_envs=2)
    buffer.append(envs=[5, 6])
    buffer.extend(envs=[[7, 8]])
    assert buffer[:]["envs"].tolist() == [[5, 6], [7, 8]]


def test_priorities_have_room_for_each_environment():
    buffer, priorities = some(30), Prioritized(CAPACITY * N_ENVS + 1)
    with pytest.raises(ShapeError, match=r"capacity is 37, no multiple of 3 rows: make a Prioritized\(39\)"):
        buffer.sample(4, 0, p=priorities)
    priorities = Prioritized(CAPACITY * N_ENVS + 3)
    _, indices = buffer.sample(100, 0, p=priorities, return_indices=True)
    assert {*indices} <= {*buffer.indices} == {*priorities.indices}
    assert len(priorities) == 14
    with pytest.raises(ShapeError, match="has 3 rows of items: pass the first and the end of each"):
        priorities.advance(0, 100)
    with pytest.raises(SlotError, match="the items have the indices 0 to 88, got 53"):
        priorities.update([53], [1.0])  # of environment 2, which has one step
    with pytest.raises(SlotError, match="the items have the indices 0 to 88, got 1 "):
        priorities.weights([1])  # of environment 1, whose first steps are overwritten


def test_a_loaded_buffer_goes_on(tmp_path):
    buffer = some(7)
    obscodec.save(buffer, tmp_path)
    loaded = obscodec.load(tmp_path, continue_episodes=True)
    for of in (buffer, loaded):
        of.append(
            envs=[2, 1], **{name: [a, b] for (name, a), b in zip(value(90).items(), value(91).values(), strict=True)}
        )
    assert [*loaded.indices] == [*buffer.indices]
    for name, of in buffer[:].items():
        np.testing.assert_array_equal(loaded[:][name], of)
    obscodec.save(buffer, tmp_path)
    obscodec.load(tmp_path).end_episodes()


def test_it_is_laid_out_for_other_environments():
    buffer = some(10)
    with pytest.raises(SlotError, match="the newest step of environments 0, 1, 2 ends no episode"):
        buffer.with_envs(2)
    buffer.end_episodes()
    other = buffer.with_envs(2)
    found = np.concatenate([episode["reward"] for episode in other.episodes()])
    assert sorted(found) == [0, 0, *range(10)]
    assert {tuple(stack[:, 0, 0]) for stack in other.sample(200, 0)["obs"]} == {
        (0, 0, 0), (0, 0, 1), *((k, k + 1, k + 2) for k in range(8))
    }  # fmt: skip


def test_an_environment_without_a_step_has_no_episode():
    buffer = ring(mask=None, stack=None, pad=None)
    for k in range(4):
        buffer.append(envs=1, **value(k))
    buffer.append(envs=2, **value(9))
    buffer.drop_episode(2)
    buffer.drop_episode(0)
    buffer.end_episodes()
    assert [*buffer._seams.gone] == [2]
    assert buffer[:]["truncated"][:, 1].tolist() == [False] * 3 + [True]
    assert np.count_nonzero(buffer._arrays["truncated"]) == 1
    assert buffer.with_envs(1)[:]["reward"].tolist() == [[0], [1], [2], [3]]


@pytest.mark.filterwarnings("ignore:.*have reached max_bytes")
def test_the_oldest_steps_go_for_want_of_bytes():
    fields = {"obs": Field((64, 64), np.uint8, "raw"), "done": Field((), np.bool_)}
    buffer = RingBuffer(2000, fields, n_envs=2, episode_end="done", max_bytes=3_000_000)
    rng = np.random.default_rng(0)
    frames = rng.integers(256, size=(1500, 64, 64), dtype=np.uint8)
    for k, frame in enumerate(frames):
        buffer.append(envs=0, obs=frame, done=False)
        if k % 500 == 0:
            buffer.append(envs=1, obs=frame, done=False)
    assert buffer.stats().total_bytes < 3_000_000 + 2 * 2**20
    batch, indices = buffer.sample(200, 0, return_indices=True)
    steps, envs = np.divmod(indices, 2)
    expected = np.where(envs == 0, steps, steps * 500)
    np.testing.assert_array_equal(batch["obs"], frames[expected])
    assert {*envs} == {0, 1}
    assert len(buffer) < 1400


@pytest.mark.slow
def test_a_step_that_is_interrupted_is_appended_or_not():
    buffer, steps = some(4), [[0], [0, 1, 2, 3], [0]]
    turn = itertools.cycle([[2], [0, 2], [1]])
    given = []

    def prepare():
        given[:] = [next(turn), len(given) + int(buffer[:]["reward"].max()) + 1]
        several = {name: [of] * len(given[0]) for name, of in value(given[1]).items()}
        return lambda: buffer.append(envs=given[0], **several)

    for place in at_every_line(prepare):
        counts = np.bincount(np.array(buffer.indices) % N_ENVS)
        if (
            any(counts[e] > len(steps[e][-CAPACITY:]) for e in given[0])
            or buffer[-1]["reward"][given[0][0]] == given[1]
        ):
            for env in given[0]:
                steps[env].append(given[1])
        for env, of in enumerate(steps):
            shown = buffer[:]["reward"][:, env]
            assert [*shown] == [0] * (len(shown) - len(of[-CAPACITY:])) + of[-CAPACITY:], place
        buffer.append(envs=[1], **value(1))  # what was left of others goes
        steps[1].append(1)
        n_rows = buffer._clock.n_rows
        held = np.count_nonzero(buffer._arrays["next_obs"].ids)
        assert held == sum(min(len(of), n_rows) for of in steps), place


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("name", "count"), [
    ("n_appended", -1), ("n_appended", (1 << 61) + 1), ("first", -1), ("first", 8), ("earliest", -1), ("earliest", 5),
])  # fmt: skip
def test_counts_that_no_ring_has_are_refused(name, count, apart):
    ring, empty = (RingBuffer(3, {"k": Field((), np.int64)}, n_envs=2) for _ in range(2))
    ring.extend(k=np.zeros((7, 2)))
    if apart:
        ring.append(k=0, envs=0)
    state = ring.state()
    if apart:
        state[name][1] = count
    else:
        state[name] = count
    with pytest.raises(CorruptStream, match=r" of a state is in 0\.\."):
        empty.restore(state)
    assert len(empty) == 0
    empty.restore(ring.state())
    assert len(empty) == 3
