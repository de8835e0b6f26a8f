"""An object is called from other processes as from its own."""

import os
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import AuthenticationError, get_context
from multiprocessing.connection import Client

import pytest
from obscodec.errors import ShapeError
from obscodec_torchrl.remote_object import RemoteObject


class Tally(Counter[str]):
    """Counts, and tells where."""

    note = "a note"

    def process(self) -> int:
        return os.getpid()

    def refuse(self) -> None:
        raise ShapeError("refused")

    def give_what_can_not_be_sent(self) -> object:
        return threading.Lock()

    def raise_what_can_not_be_sent(self) -> None:
        raise OddError("a", "b")


class OddError(Exception):
    """An error that pickle can't make again."""

    def __init__(self, a: str, b: str) -> None:
        super().__init__(a + b)


@RemoteObject.forward(methods=("update",), attributes=("note",))
class Elsewhere:
    """Stands for a tally of another process."""

    def __init__(self, remote: RemoteObject) -> None:
        self.remote = remote


def calls_from_a_worker(remote: RemoteObject) -> tuple[object, int]:
    remote.call("update", "hello")
    return remote.call("process"), os.getpid()


def calls_from_a_worker_of_a_worker(remote: RemoteObject) -> tuple[object, int]:
    with workers(1) as pool:
        return pool.submit(calls_from_a_worker, remote).result()


def calls_of_a_worker() -> RemoteObject:
    return RemoteObject(Tally())


def workers(n: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n, mp_context=get_context("spawn"))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Workers, which get ``sys.path``, import this file by its path from the root."""
    monkeypatch.syspath_prepend(pytestconfig.rootpath)


def test_workers_and_their_workers_call_the_one_object() -> None:
    tally = Tally()
    remote = RemoteObject(tally)
    with workers(2) as pool:
        given = [*pool.map(calls_from_a_worker, [remote] * 4), *pool.map(calls_from_a_worker_of_a_worker, [remote])]
    for called, worker in given:
        assert called == os.getpid() != worker
    assert tally["l"] == 10


def test_many_threads_call() -> None:
    tally = Tally()
    remote = RemoteObject(tally)
    threads = [threading.Thread(target=remote.call, args=("update", "a")) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally["a"] == 20


def test_what_the_method_raises_is_raised() -> None:
    remote = RemoteObject(tally := Tally())
    with pytest.raises(ShapeError, match="refused"):
        remote.call("refuse")
    with pytest.raises(AttributeError, match="'Tally' object has no attribute 'nothing'"):
        remote.call("nothing")
    with pytest.raises(TypeError, match="cannot pickle"):
        remote.call("give_what_can_not_be_sent")
    with pytest.raises(RuntimeError, match="OddError: ab"):
        remote.call("raise_what_can_not_be_sent")
    assert not tally


def test_a_process_that_has_ended() -> None:
    with workers(1) as pool:
        remote = pool.submit(calls_of_a_worker).result()
    with pytest.raises(ConnectionError):
        remote.call("process")


def test_a_class_stands_for_the_object() -> None:
    elsewhere = Elsewhere(RemoteObject(tally := Tally()))
    elsewhere.update("ab", c=3)
    assert tally == {"a": 1, "b": 1, "c": 3}
    assert elsewhere.note == "a note"


def test_the_object_is_not_kept() -> None:
    remote = RemoteObject(Tally())
    with pytest.raises(ReferenceError, match="the object that update was called on is gone"):
        remote.call("update", "a")


def test_a_caller_that_goes_away_or_has_another_key_disturbs_nobody() -> None:
    tally = Tally()
    remote = RemoteObject(tally)
    Client(remote._address).close()
    with pytest.raises(AuthenticationError):
        Client(remote._address, authkey=b"another")
    remote.call("update", "a")
    assert tally["a"] == 1
