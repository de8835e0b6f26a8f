"""An owner that is killed again and again under load: each step is stored once, or reported lost."""

import threading
import time

import numpy as np
import obscodec
import pytest
from obscodec.errors import SlotError, Unreachable
from obscodec.shards import Shards, Writer
from sharded import KEY, N_ENVS, OwnerProcess, check_batch, numbers_of, step

_WAIT_S = 300.0


def kill_owners(folder, n_kills, seconds, seed):
    """Kill an owner so many times while writers and a learner work; what the writers have sent, and what they lost."""
    rng, owner = np.random.default_rng(seed), OwnerProcess(folder)
    n_sent, lost, errors = [0] * N_ENVS, [0] * N_ENVS, []
    n_batches, n_missing = 0, 0
    ends = threading.Event()

    def write(env):
        try:
            with Writer(owner.address, KEY, env, timeout=_WAIT_S) as writer:
                while not ends.is_set():
                    writer.append(**step(env, n_sent[env]))
                    n_sent[env] += 1
                    time.sleep(0.02)
                writer.flush(saved=True)
                lost[env] = writer.n_lost
        except BaseException as error:
            errors.append(error)
            raise

    def learn():
        nonlocal n_batches, n_missing
        try:
            with Shards([owner.address], KEY, timeout=1.0) as shards:
                while not ends.is_set():
                    try:
                        check_batch(shards.sample(16).batch)
                        n_batches += 1
                    except (Unreachable, SlotError):
                        n_missing += 1
                        time.sleep(0.05)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=write, args=[env]) for env in range(N_ENVS)] + [threading.Thread(target=learn)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(n_kills):
            time.sleep(seconds / n_kills * rng.uniform(0.5, 1.5))
            owner.kill()
            owner.start()
        time.sleep(1)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
        owner.end()
    assert not errors
    assert n_batches > n_kills
    return n_sent, lost, n_batches, n_missing


def check_kills(folder, n_kills, seconds, seed):
    """All that was sent is there once, in its order, but for what was reported lost."""
    n_sent, lost, n_batches, n_missing = kill_owners(folder, n_kills, seconds, seed)
    ring = obscodec.load(folder)
    check_batch(ring.sample(200, 0))
    for env, found in enumerate(numbers_of(ring)):
        assert (np.diff(found) > 0).all()
        assert len(found) + lost[env] == n_sent[env]
        assert found[-1] == n_sent[env] - 1
    for episode in ring.episodes(unfinished=True):
        assert (np.diff(episode["k"]) == 1).all()
    return f"{n_kills} kills: {sum(n_sent):,} steps sent, {sum(lost)} lost, {n_batches:,} batches, {n_missing} refused"


@pytest.mark.slow
def test_an_owner_that_is_killed_twice_loses_nothing_in_silence(tmp_path):
    check_kills(tmp_path, 2, 4.0, 0)


@pytest.mark.slow
@pytest.mark.long
def test_an_owner_that_is_killed_twenty_times_loses_nothing_in_silence(tmp_path, capsys):
    told = check_kills(tmp_path, 20, 180.0, 1)
    with capsys.disabled():
        print(f"\n{told}")  # noqa: T201
