"""Fields of stored steps that are assigned and relabelled, against a dictionary of the values of each step."""

import numpy as np
import pytest
from faults import at_every_line
from obscodec import DTypeError, Field, FieldError, Prioritized, RingBuffer, ShapeError, SlotError
from played import DEPTH, frames
from together import meanwhile

N_ENVS = 3
CHANGED = {"reward": np.float32, "goal": np.int16}


class Model:
    """A buffer, and of each step what its changing fields are; steps that were taken out are not among them."""

    def __init__(self, seed, capacity, *, is_ragged):
        self.rng, self.counts, self.is_ragged = np.random.default_rng(seed), np.zeros(N_ENVS, np.int64), is_ragged
        fields = {"obs": Field((6, 6), np.uint8, "delta-rle", min_nbytes=1, block_frames=2)}
        fields |= {"next_obs": Field((6, 6), np.uint8, next_of="obs"), "reward": Field((), np.float32)}
        fields |= {"goal": Field((2,), np.int16), "done": Field((), np.bool_), "valid": Field((), np.bool_)}
        options = {"stack": {"obs": DEPTH}, "pad": "zeros", "episode_end": "done", "mask": "valid"}
        self.buffer, self.steps, self.drawn = RingBuffer(capacity, fields, N_ENVS, **options), {}, set()
        self.running = [[] for _ in range(N_ENVS)]

    def append(self):
        envs = np.flatnonzero(self.rng.random(N_ENVS) < 0.6) if self.is_ragged else np.arange(N_ENVS)
        numbers, n = self.counts[envs] * N_ENVS + envs, len(envs)
        done, valid = self.rng.random(n) < 0.1, self.rng.random(n) < 0.9
        step = {"reward": numbers / 2, "goal": np.stack([numbers, -numbers], 1), "valid": valid, "done": done}
        step |= {"obs": frames(numbers), "next_obs": frames(numbers + N_ENVS)}
        self.buffer.append(**step, envs=envs if self.is_ragged else None)
        for row, (env, number) in enumerate(zip(envs.tolist(), numbers.tolist(), strict=True)):
            self.steps[number] = [np.float32(number / 2), np.array([number, -number], np.int16)]
            self.running[env] = [*self.running[env], number] if valid[row] and not done[row] else []
            if valid[row]:
                self.drawn.add(number)
        self.counts[envs] += 1
        oldest = self.counts - self.buffer.capacity
        self.steps = {k: step for k, step in self.steps.items() if k // N_ENVS >= oldest[k % N_ENVS]}

    @property
    def appended(self):
        return [int(k * N_ENVS + env) for env in range(N_ENVS) for k in range(self.counts[env])]

    def assign(self):
        n, names = int(self.rng.integers(12)), [name for name in CHANGED if self.rng.random() < 0.6]
        among = self.appended  # some are overwritten
        indices = self.rng.choice(among, n) if among else np.zeros(0, np.int64)
        reward = self.rng.random(len(indices), np.float32)
        values = {"reward": reward, "goal": self.rng.integers(-99, 99, (len(indices), 2))}
        self.buffer.assign(indices, **{name: values[name] for name in names})
        for row, index in enumerate(indices.tolist()):
            if index in self.steps:
                for at, (name, dtype) in enumerate(CHANGED.items()):
                    if name in names:
                        self.steps[index][at] = values[name][row].astype(dtype)

    def relabel(self):
        reads = [["obs"], "goal", ["next_obs", "goal"], None][self.rng.integers(4)]
        names, seen = [reads] if isinstance(reads, str) else reads or [*self.buffer.fields], []

        def label(steps):
            assert {*steps} == {*names}
            if "obs" in steps:
                assert steps["obs"].shape[1:] == (DEPTH, 6, 6)
                seen.extend((steps["obs"][:, -1, 0, 0] - 1 + 251 * steps["obs"][:, -1, 0, 1].astype(int)).tolist())
                return steps["obs"][:, -1].sum((1, 2), np.float32)
            return steps["goal"][:, 0] * np.float32(0.25)

        self.buffer.relabel("reward", label, reads=reads, batch=int(self.rng.integers(1, 40)))
        stored = sorted(self.steps.keys() & self.drawn)
        if "obs" in names:
            assert seen == stored
        for index in stored:
            step = self.steps[index]
            step[0] = frames(index).sum(dtype=np.float32) if "obs" in names else step[1][0] * np.float32(0.25)

    def drop(self):
        env = int(self.rng.integers(N_ENVS))
        self.buffer.drop_episode(env)
        self.steps = {k: step for k, step in self.steps.items() if k not in self.running[env]}
        self.running[env] = []

    def clear(self):
        self.buffer.clear()
        self.steps, self.running = {}, [[] for _ in range(N_ENVS)]

    def check(self):
        for k in {*self.appended} - self.steps.keys():
            with pytest.raises(SlotError):
                self.buffer.take([k])
        stored = sorted(self.steps)
        if stored:
            found = self.buffer.take(stored)
            for at, (name, dtype) in enumerate(CHANGED.items()):
                assert found[name].dtype == dtype
                np.testing.assert_array_equal(found[name], np.stack([self.steps[k][at] for k in stored]))
            np.testing.assert_array_equal(found["obs"][:, -1], frames(stored))


@pytest.mark.parametrize("is_ragged", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_program_of_changes(seed, is_ragged):
    model = Model(seed, capacity=[7, 30][seed % 2], is_ragged=is_ragged)
    for _ in range(60):
        verb = model.rng.choice(["append", "assign", "relabel", "drop", "clear"], p=[0.55, 0.2, 0.15, 0.07, 0.03])
        getattr(model, verb)()
        model.check()


def new_buffer(**options):
    fields = {"obs": Field((40, 40), np.uint8), "done": Field((), np.bool_), "valid": Field((), np.bool_)}
    fields |= {"reward": Field((), np.float32), "speed": Field((), np.float32)}
    buffer = RingBuffer(20, fields, episode_end="done", mask="valid", stack={"speed": 2}, pad="edge", **options)
    for step in range(30):
        buffer.append(obs=np.full((40, 40), step, np.uint8), done=step % 7 == 6, valid=True, reward=step, speed=step)
    return buffer


@pytest.mark.parametrize("change", [lambda b, name: b.assign([], **{name: []}), lambda b, name: b.relabel(name, len)])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rewards", "no field is named 'rewards', did you mean 'reward'"),
        ("obs", "'obs' is compressed, each step against others: to change stored steps, declare it with codec=None"),
        ("done", "'done' tells which steps belong to an episode, and changed would join or divide stored ones: change"),
        ("valid", "'valid' tells which steps belong to an episode"),
        ("speed", "'speed' is read as a stack, also of steps that no index names any more: to change stored steps, le"),
    ],
)
def test_a_field_that_cannot_change_is_refused(change, name, text):
    with pytest.raises(FieldError, match=text):
        change(new_buffer(), name)


@pytest.mark.parametrize(
    ("indices", "values", "error", "text"),
    [
        (
            [12, 30],
            [1, 2],
            SlotError,
            "no step with the index 30 was appended",
        ),
        ([-1], [1], SlotError, "no step with the index -1 was appended"),
        ([[12]], [[1]], ShapeError, r"indices are an array \[n\], got shape \(1, 1\)"),
        ([12, 13], [1, 2, 3], ShapeError, r"field 'reward': expected shape \(2,\), got \(3,\)"),
        ([12.5], [1], DTypeError, "indices are integers, got float64"),
        ([12], [1j], DTypeError, "reward"),
    ],
)
def test_a_refused_assignment_changes_nothing(indices, values, error, text):
    buffer = new_buffer()
    with pytest.raises(error, match=text):
        buffer.assign(indices, reward=values)
    np.testing.assert_array_equal(buffer[:]["reward"][:, 0], np.arange(10, 30))


def test_two_fields_of_which_one_is_refused_stay_both():
    buffer = RingBuffer(4, {"a": Field((), np.int8), "b": Field((), np.int8)})
    buffer.extend(a=[1, 2], b=[3, 4])
    with pytest.raises(DTypeError, match="field 'b'"):
        buffer.assign([0, 1], a=[5, 6], b=[0.5, 1])
    assert buffer[:]["a"].tolist() == [[1], [2]]
    buffer.assign([1, 1], a=[5, 6], b=[7, 8])
    assert (buffer[:]["a"].tolist(), buffer[:]["b"].tolist()) == ([[1], [6]], [[3], [8]])


def test_labels_that_are_refused_leave_the_batches_before():
    buffer, calls = new_buffer(), []

    def label(steps):
        calls.append(len(steps["reward"]))
        return np.zeros(len(steps["reward"]) + (len(calls) == 3))

    with pytest.raises(ShapeError, match=r"field 'reward': expected shape \(6,\), got \(7,\)"):
        buffer.relabel("reward", label, reads="reward", batch=6)
    assert buffer[:]["reward"][:, 0].tolist() == [0] * 12 + [*range(22, 30)]
    with pytest.raises(FieldError, match="no field is named 'rewards'"):
        buffer.relabel("reward", label, reads=["rewards"])
    with pytest.raises(DTypeError, match="label must be a function of steps, got list: assign takes values"):
        buffer.relabel("reward", [0.0])


def test_only_what_is_read_is_decoded(monkeypatch):
    buffer = new_buffer()
    (store,) = buffer.stores
    monkeypatch.setattr(type(store), "read_into", None)
    buffer.relabel("reward", lambda steps: -steps["reward"], reads=["reward"])
    with pytest.raises(TypeError):
        buffer.relabel("reward", lambda steps: -steps["reward"])


def test_steps_that_come_while_labels_are_made_keep_theirs():
    buffer, seen = new_buffer(), []

    def label(steps):
        seen.append(steps["reward"].tolist())
        for step in range(30, 36):
            buffer.append(obs=np.zeros((40, 40)), done=False, valid=True, reward=step, speed=0)
        return np.full(len(steps["reward"]), -1.0)

    buffer.relabel("reward", label, batch=5)
    # 10 to 15 are overwritten before they change, 16 to 21 after that, and so on; new steps are not read.
    assert seen == [[*range(10, 15)], [*range(16, 20)], [*range(22, 25)], [28, 29]]
    assert buffer.indices == range(34, 54)
    assert buffer[:]["reward"][:, 0].tolist() == [34, 35, *[*range(30, 36)] * 3]


def test_priorities_go_on():
    buffer, priorities = new_buffer(), Prioritized(20)
    _, indices = buffer.sample(8, 0, p=priorities, return_indices=True)
    buffer.assign(indices, reward=np.zeros(8))
    priorities.update(indices, np.ones(8))
    assert not buffer.take(indices)["reward"].any()


def test_a_buffer_is_relabelled_while_others_append_and_sample():
    fields = {"obs": Field((16, 16), np.uint8, "delta-rle"), "number": Field((), np.int64)}
    buffer = RingBuffer(500, fields | {"label": Field((), np.int64)})
    n, epoch = [0], [0]

    def append():
        buffer.append(obs=np.full((16, 16), n[0] % 251, np.uint8), number=n[0], label=0)
        n[0] += 1

    def relabel():
        epoch[0] += 1
        buffer.relabel("label", lambda steps: steps["number"] * 1000 + epoch[0] % 1000, reads=["number"], batch=64)

    def sample():
        batch, indices = buffer.sample(32, return_indices=True)
        np.testing.assert_array_equal(batch["number"], indices)
        np.testing.assert_array_equal(batch["obs"][:, 3, 3], indices % 251)
        labelled = batch["label"] != 0
        np.testing.assert_array_equal(batch["label"][labelled] // 1000, indices[labelled])

    append()
    with meanwhile(append, relabel, sample, seconds=1.5):
        pass
    assert epoch[0] > 5


def test_an_assignment_that_is_interrupted_is_made_or_not():
    buffer, values = RingBuffer(9, {"a": Field((), np.int64), "b": Field((2,), np.int64)}), [0]
    buffer.extend(a=np.zeros(12), b=np.zeros((12, 2)))

    def prepare():
        values[0] += 1
        return lambda: buffer.assign([1, 5, 7], a=np.full(3, values[0]), b=np.full((3, 2), values[0]))

    n_made = 0
    for where in at_every_line(prepare):
        stored = buffer[:]
        (of_a,), (of_b,) = ({*stored[name][[2, 4], 0].reshape(-1).tolist()} for name in "ab")
        assert of_a == of_b, where
        n_made += of_a == values[0]
        assert not stored["a"][[0, 1, 3, 5, 6, 7, 8]].any(), where
    assert n_made >= 1
