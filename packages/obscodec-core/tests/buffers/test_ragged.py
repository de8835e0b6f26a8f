"""Observations of different lengths: random programs against lists, and what is refused."""

import pickle
import threading

import numpy as np
import obscodec
import pytest
from faults import at_every_line
from obscodec import Field, FieldError, Mixture, RingBuffer, ShapeError
from obscodec.arrays import WriteBuffer
from obscodec.buffers import array_set
from obscodec.errors import CorruptStream, DTypeError, SpecError
from obscodec.stores.auto import first_tensors

CAPACITY = 14
# 40 bytes a row, so that a page has 102 rows
FIELDS = {
    "cloud": Field((None, 5, 2), np.float32, "zstd:1", block_frames=4),
    "next_cloud": Field((None, 5, 2), np.float32, next_of="cloud"),
    "text": Field((None,), np.uint8, "raw"),
    "reward": Field((), np.float64),
    "done": Field((), np.bool_),
}
NAMES = ("cloud", "next_cloud", "text")


def observation(rng, name):
    """One of no row, of less than a page, of a page, or of several."""
    of_page = FIELDS[name].layout.shape[0]
    n = int(rng.choice([0, 1, rng.integers(of_page), of_page, of_page + 1, rng.integers(4 * of_page)]))
    if name == "text":
        return rng.integers(1, 255, n, np.uint8)
    return rng.integers(1, 5, (n, 5, 2)).astype(np.float32)


class Model:
    """The steps of each environment, as lists."""

    def __init__(self, rng, n_envs):
        self.rng, self.steps = rng, [[] for _ in range(n_envs)]

    def step(self, env):
        """A new step, whose observation is the next one of the step before if its episode goes on."""
        rng, steps = self.rng, self.steps[env]
        goes_on = steps and not steps[-1]["done"]
        cloud = steps[-1]["next_cloud"] if goes_on else observation(rng, "cloud")
        if rng.random() < 0.3:
            later = np.concatenate([cloud, observation(rng, "cloud")[:30]])  # it grows at its end
        else:
            later = observation(rng, "cloud")
        steps.append(
            {
                "cloud": cloud,
                "next_cloud": later,
                "text": observation(rng, "text"),
                "reward": rng.random(),
                "done": rng.random() < 0.15,
            }
        )
        return steps[-1]

    def at(self, index):
        count, env = divmod(int(index), len(self.steps))
        return self.steps[env][count]


def values(steps):
    """Steps as ``append`` takes them."""
    return {name: [step[name] for step in steps] for name in FIELDS}


def check(batch, steps):
    """Whether a batch has these steps, None for one that is missing, each filled up with zeros."""
    steps = [{name: np.zeros(0) for name in FIELDS} if step is None else step for step in steps]
    for name in NAMES:
        lengths = [len(step[name]) for step in steps]
        assert batch[f"{name}_lengths"].reshape(-1).tolist() == lengths
        found = batch[name].reshape(len(steps), *batch[name].shape[batch[f"{name}_lengths"].ndim :])
        assert found.shape[1:] == (max(lengths, default=0), *FIELDS[name].shape[1:])
        assert found.dtype == FIELDS[name].dtype
        for row, step, n in zip(found, steps, lengths, strict=True):
            assert n == 0 or np.array_equal(row[:n], step[name])
            assert not row[n:].any()


def check_ring(ring, model, rng):
    there = np.asarray(ring.indices)
    check(ring[:], [model.at(index) for index in there])
    batch, indices = ring.sample(9, rng, return_indices=True)
    check(batch, [model.at(index) for index in indices])
    assert batch["reward"].tolist() == [model.at(index)["reward"] for index in indices]
    check(ring.take(indices[:3]), [model.at(index) for index in indices[:3]])
    batch = ring.sequences(4, 3, rng, strict_length=False, starts=rng.choice(there, 4), return_indices=True)
    batch, starts = batch
    steps = [
        model.at(start + k * ring.n_envs) if real else None
        for start, reals in zip(starts, batch["mask"], strict=True)
        for k, real in enumerate(reals)
    ]
    check(batch, steps)
    for episode in ring.episodes(unfinished=True):
        n = len(episode["reward"])
        assert episode["cloud"].shape[:1] == episode["cloud_lengths"].shape == (n,)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_ring_has_what_lists_have(seed, n_envs, tmp_path):
    rng = np.random.default_rng(seed)
    model = Model(rng, n_envs)
    ring = RingBuffer(CAPACITY, FIELDS, n_envs, episode_end="done")
    together = True
    for turn in range(50):
        what = rng.integers(6)
        if what == 0 and not together:
            envs = rng.permutation(n_envs)[: rng.integers(1, n_envs + 1)]
            ring.append(envs=envs, **values([model.step(env) for env in envs]))
        elif what == 1:
            steps = [[model.step(env) for env in range(n_envs)] for _ in range(rng.integers(1, 5))]
            ring.extend(**{name: [values(step)[name] for step in steps] for name in FIELDS})
        else:
            step = values([model.step(env) for env in range(n_envs)])
            alone = n_envs == 1 and rng.random() < 0.5
            ring.append(**({name: value[0] for name, value in step.items()} if alone else step))
        if turn % 10 == 9 and together:
            check_ring(ring, model, rng)
        if turn == 25:
            together = False  # the steps of an environment count for themselves
            ring.append(envs=[0], **values([model.step(0)]))
    batch, indices = ring.sample(20, rng, return_indices=True)
    check(batch, [model.at(index) for index in indices])
    kept = ring.sample(20, 7)
    obscodec.save(ring, tmp_path / "saved")
    others = [pickle.loads(pickle.dumps(ring)), obscodec.load(tmp_path / "saved"), ring.resized(CAPACITY)]
    for other in others:
        assert {name: of.shape for name, of in other.fields.items()} == {name: of.shape for name, of in FIELDS.items()}
        for name, array in other.sample(20, 7).items():
            assert np.array_equal(array, kept[name]), name
    for other in (ring, *others):
        other.append(**values([model.step(env) for env in range(n_envs)]))
        for steps in model.steps:
            steps.pop()


def filled(seed, n_envs=1, n_steps=30, **more):
    """A ring, and its model."""
    model = Model(np.random.default_rng(seed), n_envs)
    ring = RingBuffer(CAPACITY, FIELDS, n_envs, episode_end="done", **more)
    for _ in range(n_steps):
        ring.append(**values([model.step(env) for env in range(n_envs)]))
    return ring, model


def all_steps(ring):
    """The observations of all steps, as a sorted list of bytes."""
    whole = ring.take([*ring.indices]) if not len(ring._seams.gone) else ring.sample(len(ring) * ring.n_envs, 0)
    n = [*map(len, whole["cloud"])]
    assert n
    return sorted(
        cloud[:length].tobytes() + text[:size].tobytes()
        for cloud, length, text, size in zip(
            whole["cloud"], whole["cloud_lengths"], whole["text"], whole["text_lengths"], strict=True
        )
    )


@pytest.mark.parametrize("of_long", [4, 6])
def test_rings_with_different_numbers_of_pages_are_put_together(of_long):
    long = RingBuffer(of_long, FIELDS, episode_end="done")
    short = RingBuffer(10 - of_long, FIELDS, episode_end="done")
    rng, every = np.random.default_rng(0), []
    for ring, n in ((long, 900), (short, 10)):
        for k in range(ring.capacity):
            step = {"cloud": np.full((n + k, 5, 2), k + 1), "next_cloud": np.ones((3, 5, 2)), "text": [k], "reward": 0}
            ring.append(**step, done=k % 2 == 1)
            every.append(n + k)
    for buffers in ([long, short], [short, long]):
        whole = RingBuffer.merged(buffers)[:]
        lengths = whole["cloud_lengths"].reshape(-1)
        assert sorted(lengths[lengths > 0].tolist()) == sorted(every)
        for cloud, n in zip(whole["cloud"].reshape(-1, *whole["cloud"].shape[2:]), lengths, strict=True):
            assert cloud[:n].size == n * 10
            assert len(np.unique(cloud[:n])) <= 1
            assert not cloud[n:].any()
    batch = Mixture({long: 0.5, short: 0.5}).sample(8, rng)
    assert batch["cloud"].shape == (8, batch["cloud_lengths"].max(), 5, 2)
    other = long.with_envs(2)
    assert sorted(other[:]["cloud_lengths"].reshape(-1).tolist()) == sorted(every[:of_long])


def test_a_dropped_episode_has_no_rows():
    ring, _ = filled(3, n_steps=10)
    ring.end_episodes()
    for k in range(3):
        ring.append(cloud=np.ones((k, 5, 2)), next_cloud=np.ones((0, 5, 2)), text=[1, 2], reward=0, done=False)
    ring.drop_episode()
    assert ring[-3:]["cloud_lengths"].tolist() == [[0], [0], [0]]
    assert ring[-3:]["cloud"].shape == (3, 1, 0, 5, 2)


def test_an_observation_that_grows_at_its_end_is_stored_once():
    ring = RingBuffer(400, {"text": Field((None,), np.int64, "raw", recent=3)})
    words = np.random.default_rng(0).integers(1, 1 << 40, 512 * 8)
    for n in range(32, len(words) + 1, 32):
        ring.append(text=words[:n])
        if n == 640:
            ring.decide()  # from now on, each page is stored at once
    assert ring.stats().fields["text"].reserved_bytes < 1.4 * len(words) // 32 * 4096  # a page is new in each step
    assert np.array_equal(ring[-1]["text"][0], words)


def test_a_step_assigns_the_pages_that_it_and_the_step_in_its_row_have(monkeypatch):
    ring = RingBuffer(3, {"text": Field((None,), np.uint8, "raw")})
    put, n_put = WriteBuffer.put, []
    monkeypatch.setattr(WriteBuffer, "put", lambda self, *args: n_put.append(self.first) or put(self, *args))
    for n in (9000, 1, 0, 0, 5000, 0, 1):  # the capacity, and one row more
        ring.append(text=np.ones(n))
    assert n_put == [0, 1, 2, 0, 0, 1, 2, 0, 0]
    ring.decide()
    assert ring[:]["text_lengths"].tolist() == [[5000], [0], [1]]
    ring.append(text=[])
    ring.clear()
    assert ring.stats().fields["text"].n_tensors == 0


def test_pages_of_one_long_observation_keep_no_rows_that_wait():
    ring = RingBuffer(300, {"text": Field((None,), np.uint8, "raw")})
    for k in range(300):
        ring.append(text=np.ones(400_000 if k == 3 else 1))
    ring.decide()
    assert ring.stats().waiting_bytes < 4e6  # without, 256 KiB a page


def test_pages_have_no_more_sequences_than_a_store_that_is_read_from_a_file(monkeypatch):
    monkeypatch.setattr(array_set, "_MOST_SEQUENCES", 8)
    monkeypatch.setattr(first_tensors, "_MOST_SEQUENCES", 8)
    ring = RingBuffer(9, {"text": Field((None,), np.uint8, "raw")}, 3)
    for k in range(12):
        ring.append(text=[np.full(20_000, k + 1), [], np.full(9000 - k, k + 1)])
    ring = pickle.loads(pickle.dumps(ring))
    ring.decide()
    for text, n in zip(ring[:]["text"], ring[:]["text_lengths"], strict=True):
        assert n[:2].tolist() == [20_000, 0]
        assert np.array_equal(text[2, : n[2]], np.full(n[2], text[0, 0]))


def test_observations_of_one_length_take_little_more_than_those_of_a_fixed_shape():
    clouds, taken = np.random.default_rng(0).normal(size=(900, 512, 3)).astype(np.float16).astype(np.float32), {}
    for length in (None, 512):
        ring = RingBuffer(900, {"cloud": Field((length, 3), np.float32, "zstd:1", block_frames=8)})
        for cloud in clouds[:-1]:
            ring.append(cloud=cloud)
        ring.decide()
        ring.append(cloud=clouds[-1])  # no rows wait from now on
        assert np.array_equal(ring[:]["cloud"][:, 0], clouds)
        taken[length] = ring.stats().total_bytes
    assert taken[None] <= 1.3 * taken[512]


def test_a_call_that_is_interrupted_changes_nothing():
    model = Model(np.random.default_rng(1), 2)
    for _ in range(4):
        [model.step(env) for env in range(2)]
    long = {**values([model.step(env) for env in range(2)]), "cloud": [np.ones((700, 5, 2)), np.ones((3, 5, 2))]}
    rings = []

    def prepare():
        ring = RingBuffer(3, FIELDS, 2, episode_end="done")
        for k in range(4):
            ring.append(**values([steps[k] for steps in model.steps]))
        rings[:] = [ring]
        return lambda: ring.append(**long)

    for place in at_every_line(prepare, 7):
        (ring,) = rings
        steps = [steps[k] for k in (1, 2, 3) for steps in model.steps]
        if len(ring.indices) and ring.indices[0] != 2:
            steps = [*steps[2:], *({name: long[name][env] for name in FIELDS} for env in range(2))]
        check(ring[:], steps)
        assert place or ring.indices[0] == 4
        ring.append(**long)
        check(ring[-1], [{name: long[name][env] for name in FIELDS} for env in range(2)])


def test_threads_read_whole_observations_while_pages_come():
    ring = RingBuffer(50, {"text": Field((None,), np.uint8, "zstd:1"), "k": Field((), np.int64)})
    wrong, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            if len(ring):
                batch = ring.sample(16, 0)
                for row, n, k in zip(batch["text"], batch["text_lengths"], batch["k"], strict=True):
                    if n != 60 * k % 9000 or (row[:n] != k % 251).any() or row[n:].any():
                        wrong.append((n, k))

    readers = [threading.Thread(target=read) for _ in range(2)]
    [reader.start() for reader in readers]
    for k in range(400):
        ring.append(text=np.full(60 * k % 9000, k % 251, np.uint8), k=k)
    stop.set()
    [reader.join() for reader in readers]
    assert not wrong


def test_batches_are_tensors_too():
    torch = pytest.importorskip("torch")
    ring, model = filled(0)
    batch, indices = ring.sample(12, 0, to="cpu", return_indices=True)
    assert isinstance(batch["cloud"], torch.Tensor)
    check({name: x.numpy() for name, x in batch.items()}, [model.at(index) for index in indices])
    batch = ring.sample(12, 0, convert=lambda array: array.tolist())
    assert len(batch["cloud"]) == 12


def test_only_the_fields_that_relabel_needs_are_read():
    ring, model = filled(0)
    seen = []

    def label(steps):
        seen.append(sorted(steps))
        return steps["cloud_lengths"]

    ring.relabel("reward", label, reads=["cloud"])
    assert seen[0] == ["cloud", "cloud_lengths"]
    assert ring[:]["reward"][:, 0].tolist() == [len(model.at(index)["cloud"]) for index in ring.indices]


def test_what_no_ring_takes_is_refused_before_anything_changes():
    ring, _ = filled(0, n_envs=2)
    before = ring[:]
    step = {"next_cloud": [np.ones((1, 5, 2))] * 2, "text": [[1], [2]], "reward": [0, 0], "done": [False, False]}
    for cloud, kind, told in (
        ([np.ones((3, 5, 2))], ShapeError, r"expected 2 arrays of shape \(None, 5, 2\), got 1"),
        ([np.ones((3, 5)), np.ones((3, 5, 2))], (ShapeError, DTypeError), "expected"),
        ([np.ones((3, 5, 2)), np.ones((3, 2, 5))], ShapeError, r"expected shape \(None, 5, 2\), got \(3, 2, 5\)"),
        ([np.ones((3, 5, 2)), np.full((3, 5, 2), "x")], DTypeError, "values of dtype <U1"),
        ([[[[1, 2]] * 5, [[1, 2]] * 4], np.ones((3, 5, 2))], DTypeError, "in lists of equal lengths"),
        (7, ShapeError, r"expected 2 arrays of shape \(None, 5, 2\), got int"),
        (None, ShapeError, "got None"),
        (iter([1, 2]), ShapeError, "got list_iterator"),
    ):
        with pytest.raises(kind, match=told):
            ring.append(cloud=cloud, **step)
    assert all(np.array_equal(ring[:][name], array) for name, array in before.items())
    with pytest.raises(FieldError, match="'cloud_lengths'"):
        ring.append(cloud=[np.ones((3, 5, 2))] * 2, cloud_lengths=[3, 3], **step)
    with pytest.raises(FieldError, match="no field is named 'cloud_lengths'"):
        ring.assign(ring.indices[:1], cloud_lengths=[3])
    with pytest.raises(FieldError, match="compressed"):
        ring.assign(ring.indices[:1], cloud=[np.ones((3, 5, 2))])


@pytest.mark.parametrize("n_envs", [1, 2])
def test_lists_may_be_empty(n_envs):
    ring = RingBuffer(9, {"text": Field((None,), np.uint8), "k": Field((), np.int64)}, n_envs)
    lists = [[], [7], [1, 2, 3], []][::n_envs]
    for text in lists:
        ring.append(text=text if n_envs == 1 else [text, [5]], k=np.zeros(n_envs))
    ring.extend(text=lists if n_envs == 1 else [[text, [5]] for text in lists], k=np.zeros((len(lists), n_envs)))
    ring.append(text=[], k=[], envs=[])
    batch = ring[:]
    found = [text[:n].tolist() for text, n in zip(batch["text"][:, 0], batch["text_lengths"][:, 0], strict=True)]
    assert found == [*lists, *lists]
    for wrong in (3, None):
        with pytest.raises(ShapeError, match="'text': expected an array of steps, got"):
            ring.extend(text=wrong, k=np.zeros((2, n_envs)))


@pytest.mark.parametrize(
    ("make", "kind", "told"),
    [
        (lambda: Field((None, 3), np.float32, None), SpecError, "name a codec"),
        (lambda: Field((None, 3), np.float32, min_nbytes=0), SpecError, "no min_nbytes"),
        (lambda: Field((None, 0), np.float32), ShapeError, "a row has at least one byte"),
        (
            lambda: RingBuffer(3, {"x": Field((None,), bool)}, mask="x"),
            DTypeError,
            r"takes a field bool\[\], .* bool\[None\]",
        ),
        (lambda: Field((3, None), np.float32), ShapeError, r"numbers, got \(3, None\): .* write None, in front"),
        (lambda: Field((None, None), np.float32), ShapeError, r"numbers, got \(None,\): .* write None, in front"),
        (lambda: Field((-1, 3), np.float32), ShapeError, "negative axis, .*: of an axis whose length differs, write"),
        (lambda: Field(([3], 2), np.float32), ShapeError, "a shape is a tuple of whole numbers"),
        (
            lambda: RingBuffer(3, {"x": Field((None,), np.uint8), "x_lengths": Field((), np.int32)}),
            FieldError,
            "give this field another name",
        ),
        (
            lambda: RingBuffer(
                3,
                {"x": Field((None,), np.uint8), "done": Field((), bool)},
                stack={"x": 2},
                pad="zeros",
                episode_end="done",
            ),
            FieldError,
            "leave it out of stack",
        ),
        (
            lambda: RingBuffer(3, {"x": Field((None,), np.uint8), "y": Field((4096,), np.uint8, next_of="x")}),
            ShapeError,
            r"'y' is uint8\[4096\], 'x' is uint8\[None\]",
        ),
    ],
)
def test_a_field_that_can_not_be_is_refused(make, kind, told):
    with pytest.raises(kind, match=told):
        make()


def test_lengths_that_no_ring_has_are_refused_when_they_are_read():
    ring, _ = filled(0)
    state = ring.state()
    (lengths,) = (of for of in state["arrays"]["arrays"] if of["name"] == "cloud_lengths")
    for wrong in (-1, 10**6):
        lengths["items"][0] = wrong
        with pytest.raises(CorruptStream, match="lengths"):
            RingBuffer.from_arguments(ring.arguments()).restore(state)


def test_the_limit_of_a_buffer_counts_pages():
    limit = 1 << 20
    ring = RingBuffer(5000, {"text": Field((None,), np.uint8, "raw")}, max_bytes=limit)
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 255, rng.integers(6000), np.uint8) for _ in range(600)]
    with pytest.warns(UserWarning, match="the oldest steps are dropped"):
        [ring.append(text=text) for text in texts]
    assert len(ring) < 600
    assert ring.stats().total_bytes < limit + (2 << 20) + 16 * 6000
