"""Writers, owners and learners: each step is stored once or reported lost, and batches are those of one buffer."""

import os
import socket
import struct
import sys
import threading
import time
from contextlib import nullcontext, suppress

import numpy as np
import obscodec
import pytest
from faults import at_every_line
from forked import exit_status, forked
from new_python import run_python
from obscodec import Field, Prioritized, RateLimiter, RingBuffer, Snapshot
from obscodec.errors import (
    CorruptStream,
    DTypeError,
    FieldError,
    ShapeError,
    SlotError,
    SnapshotError,
    SpecError,
    Unreachable,
)
from obscodec.shards import Owner, Shards, Writer
from obscodec.shards import answers as answers_module
from obscodec.shards import line as line_module
from obscodec.shards import owner as owner_module
from obscodec.shards.line import Line, as_message, of_message
from obscodec.wire import EncodedBatch, Received, Sent
from sharded import CAPACITY, FIELDS, KEY, N_ENVS, check_batch, new_ring, numbers_of, step, steps


def serving(owner, port=0):
    return owner.serve(("localhost", port), KEY)


def sent(writer, made, flushes=True, timeout=None):
    """Append steps, one after the other."""
    for one in made:
        writer.append(**one)
        if flushes:
            writer.flush(timeout)


def plain(n, ends=()):
    """A ring with ``n`` steps, which no writer has touched."""
    ring = new_ring()
    for k in range(n):
        for env in range(N_ENVS):
            ring.append(envs=env, **step(env, k))
        if k in ends:
            ring.end_episodes()
    return ring


def equal_batches(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.array_equal(found[name], array), name


def test_writers_store_what_one_ring_would_have():
    """Whatever is sent together, and in whatever order the environments of a writer are."""
    with Owner(new_ring()) as owner, Writer(serving(owner), KEY, [2, 0]) as two:
        with Writer(owner.addresses[0], KEY, 1) as one:
            for k in range(300):
                two.append(**steps([2, 0], k))
                one.append(**step(1, k))
                if k == 123:
                    two.end_episodes()
                    one.end_episodes(1)
        two.flush()
        wanted = plain(300, ends=[123])
        equal_batches(owner.buffer[:], wanted[:])
        how = {"rng": 0, "strict_length": False}
        equal_batches(owner.buffer.sequences(20, 70, **how), wanted.sequences(20, 70, **how))
        assert two.waiting()[:3] == (0, 0, 0)


def test_an_episode_is_dropped():
    with Owner(new_ring()) as owner, Writer(serving(owner), KEY, [0, 1]) as writer:
        for k in range(70):
            writer.append(**steps([0, 1], k))
        with pytest.raises(ShapeError, match="name one"):
            writer.drop_episode()
        writer.drop_episode(1)
        writer.flush()
        kept = owner.buffer[:]["k"]
        assert kept[50:, 0].tolist() == [*range(50, 70)]
        assert not kept[50:, 1].any()


def test_a_batch_of_one_shard_is_that_of_its_buffer():
    with (
        Owner(plain(400), Prioritized(CAPACITY * N_ENVS)) as owner,
        Shards([serving(owner)], KEY, timeout=60) as shards,
    ):
        drawn = shards.sample(50, 0)
        equal_batches(drawn.batch, owner.buffer.take(drawn.where.indices))
        check_batch(drawn.batch)
        assert drawn.missing == {}
        assert drawn.weights is None
        drawn = shards.sequences(5, 20, 0, burn_in=3)
        assert drawn.batch["mask"].shape == (5, 23)
        again = shards.sequences(5, 20, 0, burn_in=3)
        equal_batches(drawn.batch, again.batch)
        torch = pytest.importorskip("torch")
        assert isinstance(shards.sample(4, to="cpu", by_priority=True).batch["obs"], torch.Tensor)


def chi_squared_score(counts, expected):
    """How many standard deviations chi-squared is above its mean; 3.09 for p = 0.001 (Wilson and Hilferty)."""
    n = len(counts) - 1
    x = float(((counts - expected) ** 2 / expected).sum())
    return ((x / n) ** (1 / 3) - (1 - 2 / (9 * n))) / np.sqrt(2 / (9 * n))


def small_shards(sizes, fields=None):
    """Owners of buffers with so many steps each, whose rewards count on."""
    owners, begin = [], 0
    for n in sizes:
        ring = RingBuffer(1000, {"reward": Field((), np.float64)})
        ring.extend(reward=np.arange(begin, begin + n))
        owners.append(Owner(ring, Prioritized(1000, alpha=1.0)))
        begin += n
    return owners


@pytest.mark.parametrize("by_priority", [False, True])
def test_each_step_of_shards_of_different_sizes_is_drawn_as_often_as_it_should(by_priority):
    sizes = [40, 80, 200]
    owners, rng = small_shards(sizes), np.random.default_rng(3)
    weights = rng.integers(1, 20, sum(sizes)).astype(float) if by_priority else np.ones(sum(sizes))
    begin = 0
    for owner, n in zip(owners, sizes, strict=True):
        owner.buffer.sample(0, p=owner.priorities)
        owner.priorities.update(np.arange(n), weights[begin : begin + n])
        begin += n
    counts, total = np.zeros(sum(sizes)), 0
    with Shards([serving(owner) for owner in owners], KEY, timeout=60) as shards:
        for _ in range(300):
            drawn = shards.sample(100, rng, by_priority=by_priority)
            rows = drawn.batch["reward"].astype(int)
            counts += np.bincount(rows, minlength=sum(sizes))
            total += len(rows)
            if by_priority:
                wanted = weights[rows].min() / weights[rows]
                assert np.allclose(drawn.weights, wanted**0.4, rtol=1e-3)
    for owner in owners:
        owner.close()
    assert total == 30_000
    assert chi_squared_score(counts, total * weights / weights.sum()) < 3.09
    shares = np.array([part.sum() for part in np.split(counts, np.cumsum(sizes)[:-1])])
    expected = np.array([part.sum() for part in np.split(weights, np.cumsum(sizes)[:-1])])
    assert np.allclose(shares / total, expected / expected.sum(), atol=1e-3)


def test_priorities_go_to_the_steps_that_were_drawn():
    owners = small_shards([10, 20])
    with Shards([serving(owner) for owner in owners], KEY, timeout=60) as shards:
        for _ in range(30):
            drawn = shards.sample(20, by_priority=True)
            shards.update(drawn.where, np.where(drawn.batch["reward"] == 17, 1000.0, 0.0))
            drawn = shards.sample(20, by_priority=True)
        assert np.count_nonzero(drawn.batch["reward"] == 17) >= 19
        for wrong in ([-1.0] * 20, [np.nan] * 20, [1.0]):
            with pytest.raises(ShapeError):
                shards.update(drawn.where, wrong)
        elsewhere = drawn.where._replace(lives=(5, 6))  # owners that were started again
        shards.update(elsewhere, np.full(20, 1e9))
        shards.sample(20, by_priority=True)
        assert max(owner.priorities._greatest for owner in owners) < 2000
    for owner in owners:
        owner.close()


def test_priorities_that_come_during_a_draw_wait_for_its_probabilities(monkeypatch):
    """The ring is full, so that they make the owner forget steps, which may be among those that were drawn."""
    (owner,) = small_shards([1000])
    encoded, threads = owner._answers._encoded, []

    def slowly(*arguments):
        drawn = encoded(*arguments)
        owner.buffer.extend(reward=np.zeros(1000))
        call = {"call": "update", "life": owner._answers._life, "indices": np.arange(3), "priorities": np.ones(3)}
        threads.append(threading.Thread(target=owner._answers.answer, args=(call, Sent())))
        threads[-1].start()
        threads[-1].join(0.2)
        return drawn

    monkeypatch.setattr(owner._answers, "_encoded", slowly)
    with owner, Shards([serving(owner)], KEY, timeout=None) as shards:
        for k in range(2):
            assert np.array_equal(shards.sample(20, by_priority=True).weights, np.ones(20)), k
        for thread in threads:
            thread.join()


def test_an_error_of_several_owners_is_raised_once():
    owners = small_shards([20, 20])
    with Shards([serving(owner) for owner in owners], KEY, timeout=60) as shards:
        for _ in range(2):
            with pytest.raises(FieldError):
                shards.sample(8, n_step=2, gamma=0.9, reward="none")
            assert len(shards.sample(8).batch["reward"]) == 8
    for owner in owners:
        owner.close()


def test_the_first_batch_is_that_of_the_owners_that_answer():
    (owner,) = small_shards([20])
    with socket.create_server(("localhost", 0)) as silent, owner:
        began = time.monotonic()
        with Shards([silent.getsockname()[:2], serving(owner)], KEY, timeout=4) as shards:
            drawn = shards.sample(8)
            assert time.monotonic() - began < 4.5
            assert len(drawn.batch["reward"]) == 8
            assert [*drawn.missing] == [f"127.0.0.1:{silent.getsockname()[1]}"]


def test_an_owner_with_two_names_is_refused():
    (owner,) = small_shards([20])
    port = serving(owner)[1]
    addresses = [("localhost", port), ("127.0.0.1", port)]
    with owner, Shards(addresses, KEY, timeout=60) as shards, pytest.raises(SpecError, match="are one owner"):
        shards.sample(8)


@pytest.mark.parametrize("mass", [-1.0, np.nan, np.inf])
def test_a_shard_without_a_number_of_steps_is_refused(monkeypatch, mass):
    (owner,) = small_shards([20])
    monkeypatch.setattr(owner._answers, "_draw", lambda *_: {"life": 1, "mass": mass})
    with owner, Shards([serving(owner)], KEY, timeout=60) as shards, pytest.raises(CorruptStream, match="steps"):
        shards.sample(8)


def test_a_batch_that_no_learner_could_read_is_not_drawn():
    with Owner(plain(60)) as owner, Shards([serving(owner)], KEY, timeout=None) as shards:
        for more in ({}, {"length": 5}, {"length": 1, "burn_in": 5}, {"length": 1, "bootstrap": 5}):
            with pytest.raises(ShapeError, match="draw fewer"):
                (shards.sequences if more else shards.sample)(300_000 if not more else 60_000, **more)
        with pytest.raises(DTypeError, match="length"):
            shards.sequences(100, "x")


def test_arguments_may_be_numbers_of_numpy():
    with Owner(plain(60)) as owner, Shards([serving(owner)], KEY, timeout=60) as shards:
        assert shards.sequences(np.int64(2), np.int64(5)).batch["k"].shape == (2, 5)
        with pytest.raises(TypeError, match="replace"):
            shards.sample(2, replace=object())
        shards.sample(2)  # by the same connection


@pytest.mark.slow
def test_a_slow_shard_is_left_out_in_time_and_named():
    quick, slow = small_shards([50, 50])
    slow.limiter = RateLimiter(1, min_size=1000)  # samples wait for inserts, which never come
    with Shards([serving(quick), serving(slow)], KEY, timeout=4.0) as shards:
        shards.sample(10)
        for _ in range(3):
            began = time.monotonic()
            drawn = shards.sample(20, 0)
            assert time.monotonic() - began < 4.5
            assert len(drawn.batch["reward"]) == 20
            assert (drawn.where.shards == 0).all()
            assert [*drawn.missing] == [f"127.0.0.1:{slow.addresses[0][1]}"]
            shards.update(drawn.where, np.ones(20))
        slow.limiter.stop()
        time.sleep(0.2)
        shards.sample(20)
        drawn = shards.sample(20)
        assert {*drawn.where.shards.tolist()} == {0, 1}
        assert drawn.missing == {}
    quick.close()
    slow.close()


def test_a_shard_that_is_gone_is_named_and_comes_back():
    one, other = small_shards([30, 30])
    port = serving(other)[1]
    with Shards([serving(one), ("localhost", port)], KEY, timeout=20) as shards:
        assert {*shards.sample(20).where.shards.tolist()} == {0, 1}
        other.close()
        drawn = shards.sample(20)
        assert (drawn.where.shards == 0).all()
        assert "does not answer" in drawn.missing[f"localhost:{port}"]
        (again,) = small_shards([30])
        serving(again, port)
        end = time.monotonic() + 10
        while shards.sample(20).missing and time.monotonic() < end:
            time.sleep(0.1)
        assert {*shards.sample(20).where.shards.tolist()} == {0, 1}
        again.close()
    one.close()


def test_who_can_not_be_reached():
    with (
        pytest.raises(Unreachable, match="localhost:1 does not answer"),
        Shards([("localhost", 1)], KEY, timeout=60) as shards,
    ):
        shards.sample(3)
    with pytest.raises(Unreachable, match="localhost:1 does not answer"):
        Writer(("localhost", 1), KEY, timeout=0.1)
    with Owner(new_ring()) as owner:
        address = serving(owner)
        with pytest.raises(Unreachable, match="another authkey"):
            Writer(address, b"another secret", timeout=0)
        with (
            pytest.raises(SlotError, match="no owner that answers has steps"),
            Shards([address], KEY, timeout=60) as shards,
        ):
            shards.sample(3)
        for wrong in ("localhost", ("localhost", "6000"), 6000):
            with pytest.raises(DTypeError, match="an address is"):
                Shards([wrong], KEY)
        with pytest.raises(DTypeError, match="authkey"):
            Shards([address], "secret")
        with pytest.raises(ShapeError, match="each once"):
            Shards([address, address], KEY)
        with pytest.raises(ShapeError, match="environments must be 0 to 2"):
            Writer(address, KEY, 3)
        with pytest.raises(ShapeError, match="each once"):
            Writer(address, KEY, [1, 1])


def test_who_says_nothing_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(
        line_module, "_PART", struct.pack("L", 200) if sys.platform == "win32" else struct.pack("ll", 0, 200_000)
    )
    silent = socket.create_server(("localhost", 0))
    with pytest.raises(Unreachable, match="does not answer"):
        Writer(silent.getsockname()[:2], KEY, timeout=0)
    silent.close()
    with Owner(new_ring()) as owner:
        port = serving(owner)[1]
        strangers = [socket.create_connection(("localhost", port)) for _ in range(20)]
        for stranger in strangers[:10]:
            stranger.sendall(b"\0\0\0\x14half")
        half = Line(("localhost", port), KEY)
        half.open()
        half._connection._send(b"\0\1\0\0and then nothing")
        until(lambda: len([of for of in owner._threads if of.is_alive()]) == 1)
        with monkeypatch.context() as no_threads:
            no_threads.setattr(owner_module, "Thread", without_threads)
            socket.create_connection(("localhost", port)).close()
            time.sleep(0.3)
        with Writer(("localhost", port), KEY, 0) as writer:
            writer.append(**step(0, 0))
        for stranger in strangers:
            stranger.close()
    assert len(owner.buffer) == 1


def without_threads(**_):
    raise RuntimeError("can't start new thread")


def test_a_call_that_is_not_answered_in_time_ends():
    limiter = RateLimiter(1, min_size=9)
    with Owner(new_ring(), limiter=limiter) as owner:
        line = Line(serving(owner), KEY)
        how = {"method": "sample", "by_priority": False, "how": {}}
        with pytest.raises(Unreachable, match=r"no answer in 0\.2 s"):
            line.call({"call": "draw", "n": 1, "seed": 0, **how}, 0.2)
        assert not line.is_open


def test_errors_of_an_owner_are_raised_where_the_call_was():
    with Owner(plain(20)) as owner, Shards([serving(owner)], KEY, timeout=60) as shards:
        with pytest.raises(FieldError, match="n_step adds rewards"):
            shards.sample(3, n_step=2, gamma=0.9)
        with pytest.raises(SpecError, match="no priorities"):
            shards.sample(3, by_priority=True)
        with pytest.raises(DTypeError, match="by_priority=True"):
            shards.sample(3, p=[1])
        with pytest.raises(SpecError, match=r"drawn\.where"):
            shards.sample(3, return_indices=True)
        with pytest.raises(SpecError, match="can't call 'sample' with"):
            shards.sample(3, other=1)
        with pytest.raises(SlotError, match="no episode"):
            shards.sequences(3, 500)
        assert len(shards.sample(3).batch["k"]) == 3
        with Writer(owner.addresses[0], KEY) as writer:
            with pytest.raises(ShapeError, match="expected shape"):
                writer.append(**{**steps(range(3), 0), "obs": np.zeros((3, 2, 2), np.uint8)})
            with pytest.raises(FieldError, match="make another Writer"):
                writer.append(envs=1, **step(1, 0))
            with pytest.raises(ShapeError, match="has the environments"):
                writer.end_episodes(7)
        with pytest.raises(Unreachable, match="is closed"):
            writer.append(**steps(range(3), 0))


def test_a_lack_of_memory_at_the_owner_passes():
    ring = RingBuffer(100, {"noise": Field((4096,), np.uint8, "raw", max_bytes=200_000)})
    rows = np.random.default_rng(0).integers(0, 256, (100, 4096), np.uint8)
    with Owner(ring) as owner:
        writer = Writer(serving(owner), KEY)
        with pytest.raises(obscodec.HeapFull, match=r"\(at "):
            sent(writer, [{"noise": row} for row in rows])
        n = len(ring)
        ring.clear()
        writer.flush()
        assert ring.n_appended == n + 1
        assert np.array_equal(ring[:]["noise"][-1, 0], rows[n])
        writer.close()


def test_another_writer_takes_environments_over():
    with Owner(new_ring()) as owner:
        old = Writer(serving(owner), KEY, [0, 1])
        for k in range(10):
            old.append(**steps([0, 1], k))
        old.flush()
        with Writer(owner.addresses[0], KEY, [1, 2]) as new:
            for k in range(5):
                new.append(**steps([1, 2], k))
        old.append(**steps([0, 1], 10))
        for _ in range(2):
            with pytest.raises(Unreachable, match="taken the environments"):
                old.flush()
        assert old.n_lost == 2  # the step that came too late
        found = owner.buffer.sequences(50, 15, 0, strict_length=False)
        assert [len(of) for of in numbers_of(owner.buffer)] == [10, 15, 5]
        for row, real in zip(found["k"], found["mask"], strict=True):  # no sequence goes on with the other writer's
            assert (np.diff(row[real]) == 1).all()
        with pytest.raises(Unreachable):
            old.close()


def test_a_writer_whose_turn_is_over_can_not_come_back(tmp_path):
    """It had sent steps that were not saved, and connects again, to the owner that replaced it or the next one."""
    with Owner(new_ring(), folder=tmp_path, save_every=100) as owner:
        port = serving(owner)[1]
        old = Writer(("localhost", port), KEY, [0, 1])
        for k in range(10):
            old.append(**steps([0, 1], k))
        old.flush()
        new = Writer(("localhost", port), KEY, [1, 2])
        with Writer(("localhost", port), KEY, 2):
            new._line.close()
            old._line.close()
            with pytest.raises(Unreachable, match="taken the environments"):
                sent(old, [steps([0, 1], 10)])
    with Owner(new_ring(), folder=tmp_path) as owner:
        serving(owner, port)
        for writer, envs in ((old, [0, 1]), (new, [1, 2])):
            with pytest.raises(Unreachable, match="taken the environments"):
                sent(writer, [steps(envs, 11)])
            writer._is_closed = True
        assert [len(of) for of in numbers_of(owner.buffer)] == [10, 10, 0]


def test_a_writer_of_all_environments_keeps_those_that_it_had():
    with Owner(new_ring(n_envs=2)) as owner:
        port = serving(owner)[1]
        writer = Writer(("localhost", port), KEY)
    for n_envs in (1, 4):
        with Owner(new_ring(n_envs=n_envs)) as owner:
            serving(owner, port)
            if n_envs == 1:
                with pytest.raises(ShapeError, match="0 to 0"):
                    sent(writer, [steps([0, 1], 0)])
                continue
            writer.flush()
            assert [len(of) for of in numbers_of(owner.buffer)] == [1, 1, 0, 0]
            writer.close()


def test_an_owner_that_is_started_again_goes_on(tmp_path):
    """Each step is there once, in one episode with those before; what was saved is not sent again."""
    port = 0
    with Owner(new_ring(), folder=tmp_path, save_every=100) as owner:
        port = serving(owner)[1]
        writer = Writer(("localhost", port), KEY, [0, 2])
        for k in range(200):
            writer.append(**steps([0, 2], k))
        writer.flush()
        assert writer.waiting().n_unsaved == 400
        owner.save()
        writer.flush(saved=True)
        for k in range(200, 330):
            writer.append(**steps([0, 2], k))
        writer.flush()
        owner._snapshot = None  # it dies without saving
    for k in range(330, 340):
        writer.append(**steps([0, 2], k))
    with Owner(new_ring(), Prioritized(CAPACITY * N_ENVS), folder=tmp_path) as owner:
        assert [len(of) for of in numbers_of(owner.buffer)] == [200, 0, 200]
        serving(owner, port)
        writer.close()
        assert [of.tolist() for of in numbers_of(owner.buffer)] == [[*range(340)], [], [*range(340)]]
        assert writer.n_lost == 0
        found = owner.buffer.sequences(30, 50, 0)  # whole episodes, over the crash
        assert (np.diff(found["k"], axis=1) == 1).all()
        check_batch(owner.buffer.sample(100, 0))
    assert len(obscodec.load(tmp_path)) == 340


def test_lost_steps_are_reported(tmp_path):
    """A writer that may keep little, and an owner that saves seldom."""
    with Owner(new_ring(), folder=tmp_path, save_every=100) as owner:
        port = serving(owner)[1]
        writer = Writer(("localhost", port), KEY, 0, max_bytes=20_000)
        for k in range(1000):
            writer.append(**step(0, k))
            if k == 300:
                writer.flush()
                owner.save()
        writer.flush()
        assert writer.waiting().nbytes < 20_000
        owner._snapshot = None
    with Owner(new_ring(), folder=tmp_path) as owner:
        serving(owner, port)
        with pytest.warns(UserWarning, match="has lost"):
            sent(writer, [step(0, k) for k in range(1000, 1010)])
        there = numbers_of(owner.buffer)[0]
        assert len(np.unique(there)) == len(there)
        assert there[0] == 0
        assert there[-1] == 1009
        assert 0 < writer.n_lost == 1010 - len(there)
        for episode in owner.buffer.episodes(unfinished=True):  # none goes over what is lost
            assert (np.diff(episode["k"]) == 1).all()
        writer.close()


def test_an_owner_without_a_folder_loses_all_and_the_writer_says_so():
    with Owner(new_ring()) as owner:
        port = serving(owner)[1]
        writer = Writer(("localhost", port), KEY, 1, timeout=3)
        for k in range(150):
            writer.append(**step(1, k))
        writer.end_episodes()
        writer.flush()
    with Owner(new_ring()) as owner:
        serving(owner, port)
        with pytest.warns(UserWarning, match="has lost 150 steps"):
            sent(writer, [step(1, 150), step(1, 151)])
        assert numbers_of(owner.buffer)[1].tolist() == [150, 151]
        assert writer.n_lost == 150
    for _ in range(2):  # it is started again, and once more before anything is sent
        with Owner(new_ring()) as owner:
            serving(owner, port)
            until(lambda owner=owner: owner._answers._writers)
            until(lambda: writer.n_lost == 152)
    with pytest.warns(UserWarning, match="has lost 2 steps"), pytest.raises(Unreachable, match="has not stored"):
        sent(writer, [step(1, 152)], timeout=0.1)
    assert writer.n_lost == 152
    with pytest.raises(Unreachable):
        writer.close()


def test_a_writer_waits_no_longer_than_it_may():
    with Owner(new_ring()) as owner:
        writer = Writer(serving(owner), KEY, 1, max_bytes=5000, timeout=0.3)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="start it again"):
        sent(writer, (step(1, k) for k in range(5000)), flushes=False)
    assert time.monotonic() - began < 20
    assert writer.waiting().n_unsent > 100
    assert writer.waiting().silent_s >= 0.3
    with pytest.raises(Unreachable, match="has not stored all steps"):
        writer.close()


def test_what_another_thread_appends_while_a_writer_is_closed_is_stored_or_refused():
    with Owner(new_ring()) as owner:
        address, n = serving(owner), 0

        def write(writer):
            nonlocal n
            with suppress(Unreachable):  # it is closed
                while True:
                    writer.append(**step(0, n))
                    n += 1

        for _ in range(3):
            writer = Writer(address, KEY, 0)
            thread = threading.Thread(target=write, args=(writer,))
            thread.start()
            time.sleep(0.05)
            writer.close()
            thread.join()
            assert numbers_of(owner.buffer)[0].tolist() == [*range(n)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_closes_no_owner(tmp_path):
    with Owner(new_ring(), folder=tmp_path, save_every=100) as owner:
        owner.buffer.append(**steps(range(3), 0))
        assert exit_status(forked(owner.close)) == 0
        assert not Snapshot(tmp_path).generations
    assert len(obscodec.load(tmp_path)) == 1


def test_a_field_may_have_the_name_envs():
    with Owner(RingBuffer(10, {"envs": Field((), np.int64)}, 2)) as owner:
        with pytest.raises(FieldError, match="leave envs out"):
            Writer(serving(owner), KEY, 0)
        with Writer(owner.addresses[0], KEY) as writer:
            writer.append(envs=[3, 4])
        assert owner.buffer[:]["envs"].tolist() == [[3, 4]]


def test_a_limiter_of_the_owner_stops_writers_but_no_saves(tmp_path):
    with pytest.raises(SpecError, match="pass it to Owner"):
        Owner(new_ring(limiter=RateLimiter(1)))
    limiter = RateLimiter(1, min_size=10)
    with Owner(new_ring(), limiter=limiter, folder=tmp_path, save_every=100) as owner:
        address = serving(owner)
        with Writer(address, KEY, 0) as writer, Shards([address], KEY, timeout=None) as shards:
            for k in range(20):
                writer.append(**step(0, k))
            with pytest.raises(Unreachable, match="has not stored"):
                writer.flush(0.5)
            assert len(owner.buffer) == 11
            owner.save()
            shards.sample(9)
            writer.flush()
            assert (limiter.n_inserted, limiter.n_sampled) == (20, 9)
    restored = RateLimiter(1, min_size=10)
    with Owner(new_ring(), limiter=restored, folder=tmp_path) as owner:
        assert (restored.n_inserted, restored.n_sampled) == (20, 9)


def test_what_a_folder_must_have(tmp_path):
    obscodec.save(plain(10), tmp_path / "plain")
    with Owner(new_ring(), folder=tmp_path / "plain") as owner:
        assert len(owner.buffer) == 10
    with pytest.raises(SnapshotError, match="capacity"):
        Owner(new_ring(capacity=10), folder=tmp_path / "plain")
    narrow = RingBuffer(10, {"k": Field((), np.int32)})
    obscodec.save(narrow, tmp_path / "narrow")
    with pytest.raises(SnapshotError, match=r"with k: int32\[\], this one has k: int64\[\]"):
        Owner(RingBuffer(10, {"k": Field((), np.int64)}), folder=tmp_path / "narrow")
    with pytest.raises(ShapeError, match=r"make a Prioritized\(10\)"):
        Owner(narrow, Prioritized(9))
    with pytest.raises(SpecError, match="has steps"):
        Owner(plain(1), folder=tmp_path / "plain")
    obscodec.save(Prioritized(10), tmp_path / "other")
    with pytest.raises(SnapshotError, match="has a Prioritized"):
        Owner(new_ring(), folder=tmp_path / "other")
    with Owner(plain(10), Prioritized(CAPACITY * N_ENVS, alpha=0.1), folder=tmp_path / "p") as owner:
        owner.buffer.sample(1, p=owner.priorities)
        owner.priorities.update([3], [50.0])
        owner.priorities.beta = 0.9
    again = Prioritized(CAPACITY * N_ENVS, alpha=0.1)
    with Owner(new_ring(), again, folder=tmp_path / "p") as owner:
        assert np.array_equal(again.state()["weights"], owner.priorities.state()["weights"])
        assert again.probabilities([3]) > again.probabilities([4])
    with pytest.raises(SnapshotError, match="pass equal ones"):
        Owner(new_ring(), Prioritized(CAPACITY * N_ENVS), folder=tmp_path / "p")


def until(is_true, seconds=20):
    """Wait for what a thread does."""
    end = time.monotonic() + seconds
    while not is_true() and time.monotonic() < end:
        time.sleep(0.02)
    assert is_true()


def test_a_second_owner_of_a_folder_is_refused(tmp_path):
    folder = tmp_path / "steps"
    with Owner(plain(5), folder=folder, save_every=1e300) as owner:
        owner.save()
        with pytest.raises(SnapshotError, match="somebody else"):
            Owner(new_ring(), folder=folder)
        obscodec.save(plain(3), folder)
        owner.buffer.append(**steps(range(N_ENVS), 5))
        with pytest.raises(SnapshotError, match="this owner has not written"):
            owner.save()
        owner._snapshot = None
    with Owner(new_ring(), folder=folder) as owner:
        assert len(owner.buffer) == 3
    with pytest.raises(ShapeError, match="save_every"):
        Owner(new_ring(), folder=folder, save_every=0)


def test_a_folder_may_be_named_in_any_way(tmp_path, monkeypatch):
    """What keeps a second owner away lies beside the folder, not in it."""
    monkeypatch.chdir(tmp_path)
    with Owner(plain(5), folder="steps/"):
        pass
    assert {of.name for of in tmp_path.iterdir()} == {"steps", "steps.owner"}
    with Owner(new_ring(), folder=tmp_path / "steps") as owner:
        assert len(owner.buffer) == 5
        with pytest.raises(SnapshotError, match="somebody else"):
            Owner(new_ring(), folder="./steps")


@pytest.mark.slow
def test_rows_come_twice_if_others_do_not_come_in_time():
    """The first answer is here, and what should take the place of the others is not."""
    quick, slow = small_shards([50, 50])
    with Shards([serving(quick), serving(slow)], KEY, timeout=4.0) as shards:
        shards.sample(10)
        slow.limiter = RateLimiter(1, min_size=1000)
        quick.limiter = RateLimiter(1, n_inserted=14)  # lets one draw begin
        drawn = shards.sample(32, 0, by_priority=True)
        assert len(drawn.batch["reward"]) == len(drawn.where.indices) == len(drawn.weights) == 32
        assert 1 <= len({*drawn.batch["reward"].tolist()}) <= 16
        equal_batches(drawn.batch, quick.buffer.take(drawn.where.indices))
        shards.update(drawn.where, np.ones(32))
    quick.close()
    slow.close()


def test_a_program_that_ends_has_sent_all(tmp_path):
    """Also if it does not close its writer."""
    with Owner(new_ring()) as owner:
        address = serving(owner)
        code = (
            "from obscodec.shards import Writer; from sharded import KEY, step\n"
            f"writer = Writer({address!r}, KEY, 1)\n"
            "for k in range(5): writer.append(**step(1, k))"
        )
        run_python("-c", code)
        assert numbers_of(owner.buffer)[1].tolist() == [*range(5)]
        with Writer(address, KEY, 1) as writer, pytest.raises(SpecError, match="no folder"):
            writer.flush(saved=True)


def test_a_failed_save_is_tried_again_and_can_be_read(tmp_path):
    folder, aside = tmp_path / "there", tmp_path / "aside"
    with Owner(plain(10), folder=folder, save_every=0.05) as owner:
        until(lambda: Snapshot(folder).generations)
        folder.rename(aside)
        folder.write_text("in the way")
        owner.buffer.append(**steps(range(N_ENVS), 10))
        until(lambda: owner.save_error is not None)
        folder.unlink()
        aside.rename(folder)
        until(lambda: owner.save_error is None)
    assert len(obscodec.load(folder)) == 11


def joined_call(owner):
    """A call of a writer that has joined, with three steps of an environment."""
    owner._answers.answer({"call": "join", "writer": "w", "envs": np.array([0]), "turn": 0}, Sent())
    ring = RingBuffer(3, FIELDS)
    for k in range(3):
        ring.append(**step(0, k))
    message = np.frombuffer(ring.take(np.arange(3), to="encoded").to_bytes(), np.uint8)
    return {"call": "append", "writer": "w", "first": 0, "steps": message}


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_step_that_an_error_leaves_stored_is_counted_once(monkeypatch, is_stored):
    append, n_calls = RingBuffer.append, []

    def failing(ring, **step):
        n_calls.append(1)
        if is_stored or len(n_calls) != 2:
            append(ring, **step)
        if len(n_calls) == 2:
            raise MemoryError

    limiter = RateLimiter(1, tolerance=100)
    with Owner(new_ring(), limiter=limiter) as owner:
        call = joined_call(owner)
        monkeypatch.setattr(RingBuffer, "append", failing)
        with nullcontext() if is_stored else pytest.raises(MemoryError):
            owner._answers._append(call)
        assert limiter.n_inserted == len(numbers_of(owner.buffer)[0]) == (3 if is_stored else 1)
        owner._answers._append(call)
        assert numbers_of(owner.buffer)[0].tolist() == [0, 1, 2]
        assert limiter.n_inserted == 3


@pytest.mark.slow
def test_calls_that_are_interrupted_anywhere_store_each_step_once():
    """At the owner: a writer sends a call again of which it has no answer, be it for a lack of memory."""
    with Owner(new_ring()) as owner:
        writer = Writer(serving(owner), KEY, [0, 1])
        writer._is_closed = True
        for k in range(6):
            writer._ring.append(**steps([0, 1], k))
        writer._encode({"method": "end_episodes", "envs": np.array([1])})
        (chunk,) = writer._kept
        call = {"call": "append", "writer": writer._name, "steps": chunk.message, "after": chunk.after}
        n = 0

        def again():
            call["first"] = 7 * n
            return lambda: owner._answers.answer(call, Sent())

        for place in at_every_line(again, step=97, raised=MemoryError):
            owner._answers.answer(call, Sent())
            n += 1
            assert [len(of) for of in numbers_of(owner.buffer)[:2]] == [6 * n, 6 * n], place
        assert n > 10


def test_a_call_that_comes_again_before_its_first_answer_is_made_once():
    """The connection broke while the owner worked, and the writer has made another one."""
    limiter = RateLimiter(1)
    with Owner(new_ring(), limiter=limiter) as owner:
        call = joined_call(owner)
        threads = [threading.Thread(target=owner._answers.answer, args=(call, Sent())) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: limiter.waiting()["insert"][0] == 2)
        limiter.stop()
        for thread in threads:
            thread.join()
        assert numbers_of(owner.buffer)[0].tolist() == [0, 1, 2]
        assert owner._answers._writers["w"].n == limiter.n_inserted == 3


def test_an_append_that_is_interrupted_anywhere_sends_each_step_once():
    with Owner(new_ring()) as owner:
        writer = Writer(serving(owner), KEY, [0, 1])
        writer._chunk = 2

        def append():
            writer.append(**steps([0, 1], writer._ring.n_appended // 2))

        for place in at_every_line(lambda: append, step=23):
            k = writer._ring.n_appended // 2
            writer.append(**steps([0, 1], k))
            writer.flush()
            assert numbers_of(owner.buffer)[0].tolist() == [*range(k + 1)], place
        writer.close()


def test_strange_messages_do_no_harm():
    rng = np.random.default_rng(0)
    with Owner(plain(60), Prioritized(CAPACITY * N_ENVS)) as owner, Writer(serving(owner), KEY, 1) as writer:
        for k in range(5):
            writer.append(**step(1, k))
        writer.flush()
        before = owner.buffer[:]
        draw = {"call": "draw", "n": 3, "seed": 1, "method": "sample", "by_priority": True, "how": {}}
        name = writer._name
        calls = [
            draw,
            {**draw, "method": "sequences", "how": {"length": 5}},
            {"call": "join", "writer": name, "envs": np.array([1]), "turn": 0},
            {"call": "acknowledge", "writer": name},
            {"call": "update", "life": owner._answers._life, "indices": np.arange(3), "priorities": np.ones(3)},
        ]
        harmless = {("n", 1 << 62), ("writer", "x"), ("envs", None), ("turn", 1 << 62)}
        junk = [None, -1, 2.5, "x", [], {}, np.zeros(3), np.array([7]), 1 << 62, True, np.array(["a"])]
        for call in calls:
            assert "error" not in of_message(owner._answers.answered(as_message(call), Sent()))
            for key in call:
                for value in junk:
                    try:
                        message = as_message({**call, key: value})
                    except TypeError:
                        continue
                    if (isinstance(value, (int, str)) and (key, value) in harmless) or (
                        key == "envs" and value is None
                    ):
                        continue  # honest, and large or new
                    of_message(owner._answers.answered(message, Sent()))
            message = bytearray(as_message(call))
            for _ in range(100):
                damaged = bytearray(message)
                damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
                assert of_message(owner._answers.answered(bytes(damaged), Sent()))["error"] == "CorruptStream"
        with pytest.raises(CorruptStream):
            of_message(b"")
        equal_batches(owner.buffer[:], before)


def test_an_answer_that_fails_has_sent_nothing(monkeypatch):
    """What decodes a batch goes with the first answer that arrives."""
    seen = np.repeat(np.random.default_rng(0).integers(0, 255, (10, 84, 84), np.uint8), 4, axis=0)
    seen[:, 0, 0] = np.arange(40)
    ring = RingBuffer(40, {"obs": Field((84, 84), np.uint8, "delta-rle", block_frames=4)})
    ring.extend(obs=seen)
    ring.decide()
    with Owner(ring) as owner:
        draw = {"call": "draw", "n": 40, "seed": 1, "method": "sample", "by_priority": False, "how": {}}
        sent, received = Sent(), Received()

        def without_memory(state):
            if "batch" in state:
                raise MemoryError
            return as_message(state)

        monkeypatch.setattr(answers_module, "as_message", without_memory)
        assert of_message(owner._answers.answered(as_message(draw), sent))["error"] == "MemoryError"
        monkeypatch.undo()
        answer = of_message(owner._answers.answered(as_message(draw), sent))
        batch = EncodedBatch.from_bytes(answer["batch"].data, received).read()
        equal_batches(batch, ring.take(answer["indices"]))


def test_a_learner_that_fails_to_read_an_answer_reads_the_next_one(monkeypatch):
    with Owner(plain(400)) as owner, Shards([serving(owner)], KEY, timeout=60) as shards:

        def without_memory(*_):
            raise MemoryError

        shards.sample(1)
        monkeypatch.setattr(EncodedBatch, "from_bytes", without_memory)
        with pytest.raises(MemoryError):
            shards.sample(50, 0)
        monkeypatch.undo()
        check_batch(shards.sample(50, 0).batch)


@pytest.mark.slow
def test_many_threads_write_and_learn_at_once():
    owners = [Owner(new_ring()), Owner(new_ring())]
    addresses = [serving(owner) for owner in owners]
    errors = []

    def write(address, env):
        with Writer(address, KEY, env) as writer:
            for k in range(150):
                writer.append(**step(env, k))

    def learn():
        try:
            with Shards(addresses, KEY, timeout=None) as shards:
                while any(thread.is_alive() for thread in writers):
                    try:
                        check_batch(shards.sample(16).batch)
                    except SlotError:
                        time.sleep(0.01)
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(address, env)) for address in addresses for env in range(N_ENVS)]
    learners = [threading.Thread(target=learn) for _ in range(2)]
    for thread in [*writers, *learners]:
        thread.start()
    for thread in [*writers, *learners]:
        thread.join()
    assert not errors
    for owner in owners:
        assert [of.tolist() for of in numbers_of(owner.buffer)] == [[*range(150)]] * 3
        owner.close()
