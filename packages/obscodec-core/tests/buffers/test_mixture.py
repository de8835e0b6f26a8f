"""Batches of several buffers, against what each buffer has."""

from types import SimpleNamespace

import numpy as np
import pytest
from obscodec import DTypeError, Field, FieldError, Mixture, Prioritized, RingBuffer, ShapeError, SlotError, SpecError
from obscodec.buffers import divided
from played import CAPACITY, Played


def new_games(n=3, **options):
    games = [Played(1 + k, seed=k, **options) for k in range(n)]
    for k, game in enumerate(games):
        game.n = 1000 * k  # the first of its numbers
        game.play(30 + 10 * k)
    return games


def check(games, batch, source, indices, **how):
    """A batch has what each buffer has at these indices."""
    assert (np.diff(source) >= 0).all()
    for k, game in enumerate(games):
        mine = source == k
        if mine.any():
            expected = game.buffer.take(indices[mine], **how)
            assert batch.keys() == expected.keys()
            for name, array in expected.items():
                assert batch[name].dtype == array.dtype
                np.testing.assert_array_equal(batch[name][mine], array)


@pytest.mark.parametrize("codec", ["delta-rle", None])
@pytest.mark.parametrize("seed", range(4))
def test_a_program_of_mixtures(codec, seed):
    rng, games = np.random.default_rng(seed), new_games(codec=codec)
    priorities = {game.buffer: Prioritized(CAPACITY * game.buffer.n_envs) for game in games}
    for _ in range(20):
        shares = rng.dirichlet([1, 1, 1]) * (rng.random(3) < 0.8)
        shares = shares / shares.sum() if shares.any() else np.array([0, 1, 0])
        pairs = [(game.buffer, float(share)) for game, share in zip(games, shares, strict=True)]
        mixture, batch = Mixture(dict(pairs) if rng.random() < 0.5 else pairs), int(rng.integers(40))
        how = {"n_step": 3, "gamma": 0.5} if rng.random() < 0.5 else {}
        p = {buffer: of for buffer, of in priorities.items() if rng.random() < 0.5}
        drawn, (source, indices) = mixture.sample(batch, rng, p=p, return_indices=True, **how)
        check(games, drawn, source, indices, **how)
        counts = np.bincount(source, minlength=3)
        assert counts.sum() == len(indices) == batch
        assert ((np.floor(batch * shares - 1e-6) <= counts) & (counts <= np.ceil(batch * shares + 1e-6))).all()
        for k, game in enumerate(games):
            if game.buffer in p:
                p[game.buffer].update(indices[source == k], rng.random(counts[k]))
        sequences, (source, indices) = mixture.sequences(batch, 4, rng, p=p, strict_length=False, return_indices=True)
        assert sequences["obs"].shape[:2] == sequences["mask"].shape == (batch, 4)
        check(games, {name: array[:, 0] for name, array in sequences.items() if name != "mask"}, source, indices)
        for game in games:
            game.play(3)


def test_shares_are_exact_and_right_on_average():
    buffers = [RingBuffer(4, {"k": Field((), np.int64)}) for _ in range(4)]
    for k, buffer in enumerate(buffers):
        buffer.extend(k=[k] * 3)
    rng, shares = np.random.default_rng(0), [0.1, 0.2, 0.3, 0.4]
    mixture = Mixture(zip(buffers, shares, strict=True))
    assert mixture.shares == tuple(shares)
    for batch in (10, 20, 1000):
        counts = np.bincount(mixture.sample(batch, rng)["k"])
        assert counts.tolist() == [round(batch * share) for share in shares]
    drawn = np.array([np.bincount(mixture.sample(3, rng)["k"], minlength=4) for _ in range(4000)])
    assert (drawn.sum(axis=1) == 3).all()
    assert drawn.max(axis=0).tolist() == [1, 1, 1, 2]
    np.testing.assert_allclose(drawn.mean(axis=0), 3 * np.array(shares), atol=0.03)


def test_a_sum_of_shares_that_is_rounded_costs_no_step():
    buffers = [RingBuffer(4, {"k": Field((), np.int64)}) for _ in range(3)]
    mixture = Mixture(zip(buffers, [0.7, 0.1, 0.2], strict=True))  # in floats, 0.7 + 0.1 is less than 0.8
    assert divided(10, mixture.shares, SimpleNamespace(random=lambda: 0.0)).tolist() == [7, 1, 2]


def test_an_empty_batch_has_all_fields():
    games = new_games(2)
    batch, (source, indices) = Mixture({game.buffer: 0.5 for game in games}).sample(0, return_indices=True)
    expected = games[0].buffer.sample(0)
    assert {name: (x.shape, x.dtype) for name, x in batch.items()} == {
        n: (x.shape, x.dtype) for n, x in expected.items()
    }
    assert source.shape == indices.shape == (0,)


def test_a_batch_is_converted_at_once():
    games, seen = new_games(), []
    Mixture([(game.buffer, 1 / 3) for game in games]).sample(9, convert=lambda array: seen.append(array.shape[0]))
    assert seen == [9] * 6


def test_an_empty_buffer_is_named():
    fields = {"k": Field((), np.int64), "done": Field((), np.bool_)}
    full, empty = (RingBuffer(4, fields, episode_end="done") for _ in range(2))
    full.append(k=1, done=True)
    assert Mixture({full: 1, empty: 0}).sample(3)["k"].tolist() == [1, 1, 1]
    text = "the buffer at position 1, whose share is 0.25, is empty: append steps to it"
    for draw in (lambda m: m.sample(1), lambda m: m.sequences(1, 1)):
        with pytest.raises(SlotError, match=text):
            draw(Mixture({full: 0.75, empty: 0.25}))


def test_what_is_no_mixture_is_refused():
    a, b, c = (RingBuffer(4, {"k": Field((), np.int64)}) for _ in range(3))
    other = RingBuffer(4, {"k": Field((), np.int32)})
    for shares, error, text in [
        ({a: 0.5, b: 0.4}, ShapeError, "shares sum to 1, got 0.5, 0.4: divide each by 0.9, their sum"),
        ({a: 1.5, b: -0.5}, ShapeError, "a share must be 0 to 1, got 1.5"),
        ([a, b], DTypeError, "shares are a mapping of buffers to numbers, or pairs, got list"),
        (None, DTypeError, "or pairs, got None"),
        ({a: "1"}, DTypeError, "a share must be a number of 0 to 1, got '1'"),
        ({}, FieldError, "there are no buffers: pass one or more"),
        (
            {a: 0.5, other: 0.5},
            FieldError,
            r"field 'k' is int64\[\] on cpu, next_of None in the first one, int32\[\] on",
        ),
    ]:
        with pytest.raises(error, match=text):
            Mixture(shares)
    mixture = Mixture({a: 0.5, b: 0.5})
    for buffer in (a, b):
        buffer.append(k=1)
    with pytest.raises(FieldError, match="p has a buffer that is not in this Mixture: make one with this buffer"):
        mixture.sample(3, p={c: [1]})
    with pytest.raises(DTypeError, match="p must be a mapping from buffers to their priorities"):
        mixture.sample(3, p=Prioritized(4))
    with pytest.raises(ShapeError, match="batch must be 0 or more, got -1"):
        mixture.sample(-1)
    with pytest.raises(SpecError, match="a Mixture decodes the parts of a batch: leave out to='encoded'"):
        mixture.sample(4, to="encoded")
    with pytest.raises(SpecError, match="to returns tensors of PyTorch or arrays of JAX, convert whatever you like"):
        mixture.sample(3, to="cpu", convert=list)
    with pytest.raises(DTypeError, match=r"convert must be a function, such as torch\.from_numpy, got int"):
        mixture.sample(3, convert=3)
    with pytest.raises(TypeError, match="n_steps"):
        mixture.sample(3, n_steps=3)
    with pytest.raises(AttributeError, match="shares of a Mixture can't be changed"):
        mixture.shares = (1, 0)
