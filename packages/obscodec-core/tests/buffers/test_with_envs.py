"""The steps of a buffer for another number of environments, against a list of what its episodes are."""

import gc
import warnings
from contextlib import nullcontext

import numpy as np
import obscodec
import pytest
from obscodec import DTypeError, Field, Prioritized, RingBuffer, ShapeError, SlotError
from played import CAPACITY, DEPTH, Played, drawn, frames

WAYS = [(2, 4), (4, 2), (3, 2), (1, 5), (3, 3), (1, 1)]


def check_inside(played, buffer, stride):
    """Nothing that is drawn has steps of two episodes; ``stride`` is from a number to the next one of an episode."""
    batch, indices = buffer.sample(300, 0, n_step=4, gamma=0.5, return_indices=True)
    first, places = buffer.take(indices), played.places
    for row, number in enumerate(first["number"].tolist()):
        episode, at = places[number]
        n = round(-np.log2(batch["discount"][row]))
        following = episode[at : at + n]
        assert len(following) == n
        assert batch["reward"][row] == np.float32(sum(0.5**k * (one % 17) for k, one in enumerate(following)))
        after = batch["next_obs"][row, -1] if batch["next_obs"].ndim == 4 else batch["next_obs"][row]
        np.testing.assert_array_equal(after, frames(following[-1] + stride))
    for across in (False, True):
        sequences = buffer.sequences(200, 5, 1, strict_length=False, burn_in=2, across_episodes=across)
        for numbers, mask in zip(sequences["number"], sequences["mask"], strict=True):
            numbers = numbers[mask].tolist()
            if not across:
                episode, at = places[numbers[0]]
                assert numbers == episode[at : at + len(numbers)]
            assert len({number % stride for number in numbers}) <= 1  # of one environment, which only goes on
            assert numbers == sorted(numbers)


@pytest.mark.parametrize(("n_envs", "n_after"), WAYS)
@pytest.mark.parametrize("n_steps", [0, 7, 130])
@pytest.mark.parametrize("options", [{}, {"stack": None, "pad": None}, {"masks": True}, {"episode_end": "done"}])
def test_the_same_steps_are_drawn(n_envs, n_after, n_steps, options):
    codec = ("delta-rle", None)[(WAYS.index((n_envs, n_after)) + n_steps // 7 + len(options)) % 2]
    played = Played(n_envs, seed=n_steps, codec=codec, **options).play(n_steps).end()
    buffer = played.buffer
    before, n_tensors = drawn(buffer) if len(buffer) else {}, buffer.stats().fields["obs"]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        other = buffer.with_envs(n_after)
    assert (other.n_envs, other.capacity) == (n_after, -(-CAPACITY * n_envs // n_after))
    after = drawn(other) if len(other) else {}
    assert {number: step for number, (_, step) in after.items()} == {
        number: step for number, (_, step) in before.items() if number in after
    }
    left = before.keys() - after.keys()
    if left:
        (warning,) = warned
        assert f"the oldest {len(left)} are left out, {len(after)} stay" in str(warning.message)
        assert len(left) <= (n_envs + 3 * n_after) * DEPTH
        steps = {number: index // n_envs for number, (index, _) in before.items()}
        assert max(steps[number] for number in left) <= min(steps[number] for number in after)
    else:
        assert not warned
    if after:
        check_inside(played, other, n_envs)
    if codec is not None:
        other.clear()
        assert other.stats().fields["obs"].n_tensors == 0  # no reference is left
        assert buffer.stats().fields["obs"] == n_tensors
    if before:
        assert drawn(buffer) == before


@pytest.mark.filterwarnings("ignore:.*are left out")
@pytest.mark.parametrize(
    ("codec", "n_envs", "n_after"), [("delta-rle", 2, 4), ("zstd:1", 4, 2), ("auto", 3, 2), (None, 1, 5)]
)
def test_both_go_on(codec, n_envs, n_after, tmp_path):
    played = Played(n_envs, seed=1, codec=codec).play(100).end()
    other = played.buffer.with_envs(n_after)
    expected = drawn(other)
    obscodec.save(played.buffer, tmp_path / "before")
    assert drawn(obscodec.load(tmp_path / "before").with_envs(n_after)) == expected
    played.step(3 * CAPACITY)  # all of its steps are overwritten
    gc.collect()
    assert drawn(other) == expected
    obscodec.save(other, tmp_path / "after")
    loaded = obscodec.load(tmp_path / "after")
    assert drawn(loaded) == expected
    further = Played(n_after, seed=2, codec=codec, capacity=other.capacity)
    further.n = played.n + n_envs * n_after
    oldest = further.n
    for buffer in (other, loaded):
        further.n, further.buffer = oldest, buffer
        further.step(6, p_end=0)
        found = drawn(buffer)
        new = {number for number in found if number >= oldest}
        assert new == {*range(oldest, further.n)}
        assert all(found[number] == expected[number] for number in found.keys() - new)
        batch = buffer.take([found[oldest + env][0] for env in range(n_after)])
        for env in range(n_after):  # nothing of what was there before is in the first stack
            np.testing.assert_array_equal(batch["obs"][env, -1], frames(oldest + env))
            assert not batch["obs"][env, :-1].any()
        sequences = buffer.sequences(100, 3, 0, across_episodes=True)
        assert ((sequences["number"] >= oldest).all(1) | (sequences["number"] < oldest).all(1)).all()
        priorities = Prioritized(buffer.capacity * n_after)
        assert {*buffer.sample(2000, 0, p=priorities)["number"].tolist()} <= found.keys()


def test_a_stack_before_a_cut_is_that_of_the_actor():
    played = Played(1, pad="edge")
    played.step(30, p_end=0)
    played.end()
    other = played.buffer.with_envs(3)
    found = drawn(other)
    assert found.keys() == {*range(30)}
    for number, (index, _) in found.items():
        stack = [max(0, number - k) for k in (2, 1, 0)]
        np.testing.assert_array_equal(other.take([index])["obs"][0], frames(stack))
    with pytest.raises(SlotError, match="was taken out by drop_episode, or with_envs has put no step there"):
        other.take([next(k for k in other.indices if k not in {index for index, _ in found.values()})])
    again = other.with_envs(1)  # and there and back again
    assert {number: step for number, (_, step) in drawn(again).items()} == {
        number: step for number, (_, step) in found.items()
    }


def test_whole_episodes_stay_together():
    buffer = RingBuffer(60, {"k": Field((), np.int64), "done": Field((), np.bool_)}, n_envs=2, episode_end="done")
    for step in range(60):
        buffer.append(k=[step, 100 + step], done=[step % 10 == 9] * 2)
    other = buffer.with_envs(4)
    assert [episode["k"].tolist() for episode in other.episodes()] == [
        [*range(begin, begin + 10)]
        for env in range(4)
        for begin in (100 * (env % 2) + 10 * (env // 2) + k for k in (0, 20, 40))
    ]


def test_a_running_episode_is_refused():
    buffer = Played(3).buffer
    buffer.append(**{name: np.zeros((3, *of.shape), of.dtype) for name, of in buffer.fields.items()})
    buffer.end_episodes(1)
    text = "the newest step of environments 0, 2 ends no episode, and no environment would go on with it"
    with pytest.raises(SlotError, match=rf"^{text}: call end_episodes\(\) first$"):
        buffer.with_envs(2)
    with pytest.raises(ShapeError, match="n_envs must be 1 or more, got 0"):
        buffer.with_envs(0)
    with pytest.raises(DTypeError, match="n_envs"):
        buffer.with_envs("2")
    with pytest.raises(AttributeError, match=r"it is 3: with_envs makes a buffer of these steps"):
        buffer.n_envs = 2


@pytest.mark.parametrize("spills", [False, True])
def test_a_limit_of_bytes_stays(spills, tmp_path):
    options = {"max_bytes": 1 << 20, "spill": tmp_path if spills else None}
    fields = {"f": Field((64, 64), np.uint8, "raw"), "done": Field((), np.bool_)}
    buffer = RingBuffer(300, fields, n_envs=2, episode_end="done", **options)
    rng = np.random.default_rng(0)
    with nullcontext() if spills else pytest.warns(UserWarning, match="max_bytes"):
        for step in range(300):
            buffer.append(f=rng.integers(256, size=(2, 64, 64), dtype=np.uint8), done=[step % 20 == 19] * 2)
    kept = {frame.tobytes() for frame in buffer[:]["f"].reshape(-1, 64, 64)}
    assert len(kept) == 600 if spills else 100 < len(kept) < 600
    other = buffer.with_envs(4)
    assert (other.arguments()["max_bytes"], other.arguments()["spill"]) == (1 << 20, spills)
    found = [frame.tobytes() for frame in other[:]["f"].reshape(-1, 64, 64)]
    assert {*found} - {bytes(64 * 64)} == kept
    assert len(found) - len(kept) < 4
