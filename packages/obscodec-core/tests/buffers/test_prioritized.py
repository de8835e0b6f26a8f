"""Priorities, against a dictionary of numbers."""

import itertools
import pickle
import re

import numpy as np
import obscodec
import pytest
from faults import at_every_line
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import CorruptStream, DTypeError, Field, Prioritized, RingBuffer, ShapeError, SlotError
from obscodec.buffers.drawing.sum_tree import find_leaves, new_tree, set_leaves


def weights_of(priorities: Prioritized) -> dict[int, float]:
    tree = priorities._tree
    return {k: float(tree[len(tree) // 2 + k % priorities.capacity]) for k in priorities.indices}


@given(n=st.integers(1, 40), data=st.data())
@settings(deadline=None)
def test_a_tree_finds_what_a_running_sum_finds(n, data):
    weights = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 0.25]), min_size=n, max_size=n)))
    tree = new_tree(n)
    order = np.random.default_rng(n).permutation(n)
    set_leaves(tree, order, np.full(n, 9.0))
    set_leaves(tree, np.concatenate([order, [0]]), np.append(weights[order], weights[0]))
    assert tree[1] == weights.sum()
    if tree[1]:
        at = np.linspace(0, tree[1], 50, endpoint=False)
        leaves = np.empty(50, np.int64)
        find_leaves(tree, at, leaves)
        assert leaves.tolist() == np.searchsorted(np.cumsum(weights), at, "right").tolist()
        find_leaves(tree, np.full(50, 2 * tree[1]), leaves)  # as a sum that was rounded up
        assert weights[leaves].all()


def test_items_are_drawn_in_proportion_to_their_priorities():
    priorities = Prioritized(10, alpha=0.5, beta=0.7, eps=1e-3)
    priorities.advance(5, 13)
    given = np.arange(8.0)
    priorities.update(np.arange(5, 13), given)
    expected = (given + 1e-3) ** 0.5
    expected /= expected.sum()
    found = np.bincount(priorities.sample(100_000, 0), minlength=13)
    assert not found[:5].any()
    np.testing.assert_allclose(found[5:] / 100_000, expected, atol=1e-4)
    drawn = np.array([12, 5, 7])
    weights = (8 * expected[drawn - 5]) ** -0.7
    np.testing.assert_allclose(priorities.weights(drawn), weights / weights.max(), rtol=1e-6)
    np.testing.assert_allclose(priorities.weights(drawn, 1.0), expected[0] / expected[drawn - 5], rtol=1e-6)
    assert priorities.weights(drawn).dtype == np.float32
    assert len({tuple(priorities.sample(3).tolist()) for _ in range(50)}) > 5


@given(capacity=st.integers(1, 20), seed=st.integers(0, 100))
@settings(deadline=None)
def test_priorities_come_and_go_with_their_items(capacity, seed):
    rng = np.random.default_rng(seed)
    priorities, model, greatest, first, end = Prioritized(capacity, eps=0.5), {}, 1.0, 0, 0
    for _ in range(60):
        end += int(rng.integers(4))
        first = (
            int(rng.integers(max(first, end - capacity), end + 1)) if rng.random() < 0.2 else max(first, end - capacity)
        )
        never = [k for k in range(first, end) if rng.random() < 0.1]
        priorities.advance(first, end, never)
        model = {k: model.get(k, 0.0 if k in never else greatest) for k in range(first, end)}
        if not model:
            continue
        excluded = [k for k in model if rng.random() < 0.05]
        priorities.exclude(np.array(excluded, np.int64))
        model |= dict.fromkeys(excluded, 0.0)
        chosen = rng.integers(max(0, first - 3), end, size=5)
        given = rng.random(5) * 10
        priorities.update(chosen, given)
        for k, priority in zip(chosen.tolist(), given, strict=True):
            if model.get(k):
                model[k] = (priority + 0.5) ** 0.6
        there = given[chosen >= first]
        greatest = max(greatest, *(there + 0.5) ** 0.6, 0) if len(there) else greatest
        assert weights_of(priorities) == pytest.approx(model)
        assert len(priorities) == len(model)
        np.testing.assert_allclose(priorities._tree[1], sum(model.values()))
        if any(model.values()):
            assert {*priorities.sample(30, rng).tolist()} <= {k for k, weight in model.items() if weight}


def test_new_steps_of_a_buffer_are_drawn_soon_and_masked_ones_never():
    buffer = RingBuffer(50, {"k": Field((), np.int64), "valid": Field((), np.bool_)}, n_envs=2, mask="valid")
    priorities = Prioritized(100)
    for k in range(80):
        buffer.append(k=[2 * k, 2 * k + 1], valid=[k % 3 > 0, True])
        batch, indices = buffer.sample(8, k, p=priorities, return_indices=True)
        np.testing.assert_array_equal(batch["k"], indices)
        assert batch["valid"].all()
        assert (priorities.indices.start, priorities.indices.stop) == (2 * max(0, k - 49), 2 * k + 2)
        priorities.update(indices, np.full(8, 1e-9))
    drawn = buffer.sample(5000, 0, p=priorities)["k"]
    assert {*drawn.tolist()} == {k for k in range(60, 160) if k % 2 or (k // 2) % 3}
    assert priorities.weights(indices).max() == 1


@pytest.mark.parametrize("way", ["pickle", "folder"])
def test_saved_priorities_are_the_same_and_go_on(way, tmp_path):
    priorities = Prioritized(20, 0.7, 0.5, 0.01)
    priorities.advance(10, 27)
    priorities.update(np.arange(10, 20), np.arange(10.0) ** 2)
    priorities.exclude([12])
    if way == "pickle":
        loaded = pickle.loads(pickle.dumps(priorities))
    else:
        obscodec.save(priorities, tmp_path)
        loaded = obscodec.load(tmp_path)
    assert repr(loaded) == repr(priorities) == "Prioritized(capacity=20, alpha=0.7, beta=0.5, eps=0.01, 17 items)"
    for one in (priorities, loaded):
        one.advance(12, 32)
    assert weights_of(loaded) == weights_of(priorities)
    assert loaded.sample(50, 3).tolist() == priorities.sample(50, 3).tolist()


@pytest.mark.parametrize(
    "change",
    [{"first": -1}, {"first": 9}, {"end": 3}, {"greatest": np.inf}, {"greatest": 0.0}, {"greatest": 1.7e308},
     {"weights": np.zeros(3)}, {"weights": np.full(4, -1.0)}, {"weights": np.full(4, np.nan)}],
)  # fmt: skip
def test_a_state_is_checked(change):
    priorities = Prioritized(4)
    priorities.advance(4, 8)
    with pytest.raises(CorruptStream):
        Prioritized(4).restore(priorities.state() | change)


@pytest.mark.parametrize("first", [[1, 0], [0, 2], []])
def test_a_state_of_rows_is_checked(first):
    state = rows().state()
    Prioritized(4).restore(state)
    with pytest.raises(CorruptStream):
        Prioritized(4).restore(state | {"first": np.array(first, np.int64), "end": np.array(first, np.int64) + 2})


REFUSED = [
    (lambda _: Prioritized(0), ShapeError, "capacity must be 1 or more, got 0"),
    (lambda _: Prioritized(4, alpha=-1), ShapeError, "alpha must be finite and 0 or more, got -1"),
    (lambda _: Prioritized(4, beta="x"), DTypeError, "beta must be a number of 0 or more, got 'x'"),
    (lambda _: Prioritized(4, eps=0), ShapeError,
     "eps must be more than 0: an item of priority 0 would never be drawn again"),
    (lambda of: of.advance(3, 7), ShapeError,
     "this Prioritized has the items 4 to 7, and can't go on with 3 to 6: make one Prioritized for each buffer"),
    (lambda of: of.advance(4, 9), ShapeError, "there are 5 items, and capacity is 4: make it larger"),
    (lambda of: of.update([4, 5], [1]), ShapeError, "there are 2 indices and 1 priorities: pass one for each"),
    (lambda of: of.update([4], [-1]), ShapeError, "priorities must be finite and 0 or more, got -1.0 to -1.0"),
    (lambda of: of.update([4, 5], [1, np.inf]), ShapeError, "priorities must be finite and 0 or more, got 1.0 to inf"),
    (lambda of: of.update([-1], [1]), SlotError, "items have numbers of 0 or more, got -1"),
    (lambda of: of.update([4], ["a"]), DTypeError, "priorities must be real numbers, got ['a']: pass an array of them"),
    (lambda of: of.advance(0.5, 2), ShapeError, "first must be a whole number, 0 or more, got 0.5"),
    (lambda _: Prioritized(4).advance([], []), ShapeError,
     "first is a number, or one for each row of items, got shape (0,)"),
    (lambda _: Prioritized(4).advance([[0, 1]], [[2, 3]]), ShapeError,
     "first is a number, or one for each row of items, got shape (1, 2)"),
    (lambda _: Prioritized(4).advance([5, 4], [7, 6]), ShapeError,
     "first and end are of the same rows, and first[k] % n is k, got [5 4] and [7 6]"),
    (lambda _: Prioritized(4).advance([0, 1], [2]), ShapeError,
     "first and end are of the same rows, and first[k] % n is k, got [0 1] and [2]"),
    (lambda _: Prioritized(4).advance(0, [4, 5]), ShapeError,
     "first and end are of the same rows, and first[k] % n is k, got 0 and [4 5]"),
    (lambda _: rows().advance([0, 1, 2, 3], [4, 5, 6, 7]), ShapeError,
     "this Prioritized has 2 rows of items: pass the first and the end of each"),
    (lambda of: of.update([8], [1]), SlotError,
     "the items have the indices 4 to 7, got 8 to 8: earlier ones are overwritten, later ones not appended yet"),
    (lambda of: of.update([0.5], [1]), DTypeError, "indices are integers, got float64"),
    (lambda of: of.weights([3]), SlotError,
     "the items have the indices 4 to 7, got 3 to 3: earlier ones are overwritten, later ones not appended yet"),
    (lambda of: (of.exclude([5]), of.weights([4, 5])), SlotError,
     "an item that is never drawn has no weight: pass the indices that sample returned"),
    (lambda of: of.sample(-1), ShapeError, "batch must be 0 or more, got -1"),
    (lambda _: large().update([0], [1e200]), ShapeError,
     "priorities of up to 1e+200 are too large for alpha=2.0: divide them"),
    (lambda _: Prioritized(4).sample(1), SlotError, "there are no items to draw: advance first, or append a step"),
]  # fmt: skip


def rows() -> Prioritized:
    priorities = Prioritized(4)
    priorities.advance([0, 1], [2, 3])
    return priorities


def large() -> Prioritized:
    priorities = Prioritized(4, alpha=2)
    priorities.advance(0, 4)
    return priorities


@pytest.mark.parametrize(("use", "error", "text"), REFUSED)
def test_what_no_priority_can_be_is_refused_and_changes_nothing(use, error, text):
    priorities = Prioritized(4)
    priorities.advance(4, 8)
    priorities.update([4], [3])
    before = weights_of(priorities)
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        use(priorities)
    if "never drawn" not in text:  # item 5 was excluded before
        assert weights_of(priorities) == before
    assert priorities.sample(0).tolist() == []


def test_priorities_of_zero_and_of_any_size_can_be_drawn():
    priorities = Prioritized(3, alpha=100)
    priorities.advance(0, 3)
    priorities.update([0, 1, 2], [0, 0, 0])  # (1e-6) ** 100 is 0
    assert {*priorities.sample(50, 0).tolist()} == {0, 1, 2}
    uniform = Prioritized(3, alpha=0)
    uniform.advance(0, 3)
    uniform.update([0, 1], [5, 0])
    assert len({*weights_of(uniform).values()}) == 1


def test_weights_of_extreme_priorities_are_finite():
    priorities = Prioritized(2, alpha=50)
    priorities.advance(0, 2)
    priorities.update([0, 1], [0, 1e5])
    assert priorities.weights([0, 1]).tolist() == [1, 0]
    found = priorities.probabilities([0, 1])
    assert found[0] > 0
    assert found[1] == 1


@pytest.mark.parametrize("n_more", [0, 6, 9, 12])  # steps before the next call; with 6, all that were there go
def test_an_interrupt_leaves_priorities_of_items_that_are_there(n_more):
    """At any line of a call that draws from a buffer with a mask."""
    fields = {"k": Field((), np.int64), "valid": Field((), np.bool_)}
    buffer, priorities = RingBuffer(6, fields, mask="valid"), Prioritized(8)
    count = itertools.count()

    def append(n: int) -> None:
        for k in itertools.islice(count, n):
            buffer.append(k=k, valid=k % 3 > 0)

    def prepare():
        append(5)
        return lambda: buffer.sample(4, 0, p=priorities)

    for _ in at_every_line(prepare):
        append(n_more)
        batch, indices = buffer.sample(60, 0, p=priorities, return_indices=True)
        np.testing.assert_array_equal(batch["k"], indices)
        assert {*indices.tolist()} == {k for k in buffer.indices if k % 3}


def test_beta_is_checked_when_it_is_set():
    priorities = Prioritized(4, beta=0.4)
    priorities.beta = 1
    assert (priorities.beta, priorities.arguments()["beta"]) == (1.0, 1.0)
    with pytest.raises(DTypeError, match=r"^beta must be a number of 0 or more, got 'x'$"):
        priorities.beta = "x"
    with pytest.raises(ShapeError, match=r"^beta must be finite and 0 or more, got -1$"):
        priorities.beta = -1
    assert priorities.beta == 1.0
