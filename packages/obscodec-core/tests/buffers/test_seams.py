"""Episodes that a caller ends or takes out: nothing that is drawn crosses a seam, against lists of episodes."""

import numpy as np
import obscodec
import pytest
from obscodec import DTypeError, Field, FieldError, Prioritized, RingBuffer, ShapeError, SlotError
from played import CAPACITY, DEPTH, Played, frames

N_ENVS = 3
FLAGS = {"done": ("done",), "truncated": ("terminated", "truncated")}


def check(played, buffer=None):
    buffer = buffer or played.buffer
    parts, places = played.parts, played.places
    assert [episode["number"].tolist() for episode in buffer.episodes(unfinished=True)] == parts
    of_step = {k: numbers for numbers in parts for k in numbers}
    batch, indices = buffer.sample(400, 0, return_indices=True, n_step=4, gamma=0.5)
    for row, index in enumerate(indices.tolist()):
        numbers = of_step[index]
        following = numbers[numbers.index(index) :][:4]
        assert batch["reward"][row] == np.float32(sum(0.5**i * (number % 17) for i, number in enumerate(following)))
        np.testing.assert_array_equal(batch["next_obs"][row, -1], frames(following[-1] + N_ENVS))
        whole, at = places[index]  # the oldest steps go, but stay as long as stacks need them
        expected = np.zeros((DEPTH, 6, 6), np.uint8)
        stack = whole[max(0, at + 1 - DEPTH) : at + 1]
        expected[DEPTH - len(stack) :] = frames(stack)
        np.testing.assert_array_equal(batch["obs"][row], expected)
    drawn = buffer.sequences(200, 5, 1, strict_length=False, burn_in=2)
    for row in range(200):
        numbers = drawn["number"][row][drawn["mask"][row]].tolist()
        assert numbers == [*range(numbers[0], numbers[-1] + 1, N_ENVS)]
        assert any(set(numbers) <= set(one) for one in parts)


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_drawn_crosses_no_seam(flags, seed):
    played = Played(N_ENVS, seed, FLAGS[flags])
    for _ in range(6):
        played.play(40)
        check(played)


def test_a_step_that_was_taken_out_is_never_drawn():
    played = Played(seed=5).play(60)
    priorities = Prioritized(CAPACITY * N_ENVS)
    for _ in range(8):
        played.step(6, p_end=0)
        played.buffer.sample(20, 0, p=priorities)  # which knows the steps of the episode from now on
        played.drop(1)
        stored = {k for one in played.parts for k in one}
        for drawn in (
            played.buffer.sample(500, 0, return_indices=True)[1],
            played.buffer.sample(500, 0, p=priorities, return_indices=True)[1],
            np.concatenate([indices for _, indices in played.buffer.epochs(7, 0, return_indices=True)]),
            played.buffer.sequences(50, 1, 0, p=priorities, return_indices=True)[1],
        ):
            assert {*drawn.tolist()} <= stored
        gone = next(k for k in range(played.n - 2, 0, -N_ENVS) if k not in stored)
        with pytest.raises(SlotError, match=rf"^the step with the index {gone} was taken out by drop_epi"):
            played.buffer.take([gone])
        for name, array in played.buffer[(gone - played.buffer.indices.start) // N_ENVS].items():
            assert not array[1].any(), name


def test_the_memory_of_steps_that_were_taken_out_is_free():
    buffer = RingBuffer(100, {"f": Field((20, 20), np.uint8, "raw"), "done": Field((), bool)}, episode_end="done")
    frames = np.random.default_rng(0).integers(256, size=(30, 20, 20), dtype=np.uint8)
    for i, frame in enumerate(frames):
        buffer.append(f=frame, done=i == 9)
    buffer.drop_episode()
    assert buffer.stats().fields["f"].n_tensors == 10
    buffer.drop_episode()  # nothing runs
    assert buffer.stats().fields["f"].n_tensors == 10
    np.testing.assert_array_equal(buffer[:10]["f"][:, 0], frames[:10])


@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("flags", FLAGS)
def test_loading_ends_the_episodes_unless_they_go_on(tmp_path, flags, continued):
    played = Played(N_ENVS, 7, FLAGS[flags]).play(50)
    played.step(3, p_end=0)
    obscodec.save(played.buffer, tmp_path)
    check(played)
    loaded = obscodec.load(tmp_path, continue_episodes=continued)
    if not continued:
        played.end()  # in the buffer that was saved
    check(played, loaded)
    played.buffer = loaded
    played.play(20)
    check(played)


def test_a_truncated_flag_says_so_and_else_no_value_changes():
    for flags, said in (("truncated", [False, True]), ("done", [False])):
        played = Played(flags=FLAGS[flags])
        played.step(5, p_end=0)
        before = played.buffer[:]
        played.buffer.end_episodes(1)
        for name, array in played.buffer[:].items():
            if name == "truncated":
                before[name][4, 1] = True
            np.testing.assert_array_equal(array, before[name])
        assert [bool(played.buffer[4][name][1]) for name in played.flags] == said


def test_sequences_across_episodes_do_not_cross_what_no_field_tells():
    played = Played(flags=FLAGS["done"], capacity=100)
    played.step(10, p_end=0)
    played.end()
    played.step(10, p_end=0)
    sequences = played.buffer.sequences(300, 6, 0, across_episodes=True, strict_length=False)
    for numbers, mask in zip(sequences["number"], sequences["mask"], strict=True):
        assert numbers[0] >= 10 * N_ENVS or numbers[mask].max() < 10 * N_ENVS
    told = Played(flags=FLAGS["truncated"], capacity=100)
    told.step(10, p_end=0)
    told.end()
    told.step(10, p_end=0)
    numbers = told.buffer.sequences(300, 6, 0, across_episodes=True)["number"]
    assert ((numbers[:, 0] < 10 * N_ENVS) & (numbers[:, -1] >= 10 * N_ENVS)).any()


def test_nothing_runs_in_an_empty_buffer_and_after_an_end():
    played = Played()
    played.buffer.end_episodes()
    played.buffer.drop_episode(2)
    played.step(4, p_end=0)
    played.end()
    played.buffer.end_episodes()
    played.buffer.drop_episode(0)
    check(played)
    assert len(played.buffer) == 4


def test_what_ending_refuses():
    played = Played()
    played.step(3)
    for call in (played.buffer.end_episodes, played.buffer.drop_episode):
        with pytest.raises(ShapeError, match=r"^environments must be 0 to 2, got "):
            call(3)
        with pytest.raises(DTypeError, match=r"^environments are integers, got "):
            call(1.5)
    with pytest.raises(ShapeError, match=r"^there are 3 environments: name one, 0 to 2$"):
        played.buffer.drop_episode()
    buffer = RingBuffer(5, {"x": Field((), np.float32)})
    with pytest.raises(
        FieldError, match=r"^drop_episode needs to know where the episode began: pass episode_end to Rin"
    ):
        buffer.drop_episode()


def test_a_sequence_across_episodes_has_no_step_that_was_taken_out():
    played = Played(capacity=100)
    played.step(10, p_end=0)
    for env in range(N_ENVS):
        played.drop(env)
    with pytest.raises(SlotError):
        played.buffer.sequences(5, 2, 0, across_episodes=True)
    played.step(10, p_end=0)
    sequences = played.buffer.sequences(300, 6, 0, across_episodes=True)
    assert sequences["mask"].all()
    assert sequences["number"].min() == 10 * N_ENVS


@pytest.mark.parametrize("what", ["end_episodes", "drop_episode"])
def test_an_interrupt_leaves_nothing_that_was_found_with_other_ends(what, monkeypatch):
    played = Played(capacity=100)
    played.step(5, p_end=0)
    [*played.buffer.episodes(unfinished=True)]  # which are remembered

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(played.buffer._drawer), "forget", interrupted)
        with pytest.raises(KeyboardInterrupt):
            getattr(played.buffer, what)(0)
    if what == "end_episodes":
        played.end([0])
    else:
        played.drop(0)
    played.step(5, p_end=0)
    check(played)


def test_a_change_in_the_middle_of_another_call_is_refused():
    """As a signal handler may ask for it: the buffer would count a step that nobody has stored."""
    played = Played()
    played.step(3)
    before = played.buffer[:]
    for change in (played.step, played.buffer.end_episodes, lambda: played.buffer.drop_episode(0), played.buffer.clear):
        with (
            played.buffer._lock,
            pytest.raises(RuntimeError, match=r"^a buffer can't be changed in the middle of anoth"),
        ):
            change()
    for name, array in played.buffer[:].items():
        np.testing.assert_array_equal(array, before[name])
