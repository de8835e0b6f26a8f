"""Kernels of buffers and of codecs for images are compiled by another process, before a choice needs them."""

import os
import subprocess
import sys
from functools import partial
from multiprocessing import process
from types import SimpleNamespace

import numpy as np
import pytest
from new_python import run_python
from obscodec import AutoStore, FrameStack, Layout, warming
from obscodec.stores.auto import ahead
from together import together

RNG = np.random.default_rng(0)
TEXTURE = RNG.integers(256, size=(64, 1, 1, 3)).astype(np.uint8) + np.arange(32 * 32 * 3, dtype=np.uint8).reshape(
    32, 32, 3
)
COLOURS = RNG.integers(3, size=(64, 32, 32, 1), dtype=np.uint8) * np.array([9, 80, 60], np.uint8)
GAME = np.zeros((64, 32, 32, 3), np.uint8)
GAME[np.arange(64), np.arange(64) % 32] = 200
STACKS = np.concatenate([TEXTURE[k : 60 + k] for k in range(4)], axis=-1)


@pytest.fixture
def started(monkeypatch):
    """The arguments of all processes that were started; none has a kernel on disk."""
    commands = []

    def popen(command, *, stdin, stdout, stderr, env):
        assert {stdin, stdout, stderr} == {subprocess.DEVNULL}
        commands.append(command)
        options = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "env": env}
        return subprocess.Popen([sys.executable, "-c", ""], **options)

    class Processes:
        Popen, DEVNULL = staticmethod(popen), subprocess.DEVNULL

    monkeypatch.setattr(ahead, "subprocess", Processes)
    monkeypatch.setattr(ahead, "is_on_disk", lambda package, name: False)
    monkeypatch.setattr(ahead, "n_processors", lambda: 2)
    monkeypatch.setattr(process, "parent_process", lambda: None)  # under pytest-xdist, too
    monkeypatch.setattr(ahead, "_asked", {})
    ahead.compile_here()
    return commands


def program(call):
    return f"from obscodec import warming; warming.{call}"


def decide(tensors, **options):
    store = AutoStore(Layout(tensors.shape[1:], tensors.dtype), decide_after=len(tensors), **options)
    ids = store.append(tensors)
    np.testing.assert_array_equal(store.read(ids), tensors)
    assert store.choice is None or store.choice.trials


@pytest.mark.parametrize(
    ("tensors", "options", "spec"),
    [
        (TEXTURE, {}, "pred"),
        (STACKS, {}, "pred"),
        (STACKS, {"frame_stack": FrameStack(4, axis=-1)}, "pred"),
        (COLOURS, {}, "palette"),
        (GAME, {}, None),
        (TEXTURE, {"budget": "fast"}, None),
        (TEXTURE, {"codec": "raw"}, None),
        (RNG.integers(1 << 31, size=(64, 32, 32), dtype=np.int32), {}, "pred"),
        (RNG.integers(1 << 31, size=(64, 1024), dtype=np.int32), {}, None),
        (RNG.integers(2, size=(64, 32, 32)).astype(np.bool_), {}, None),
        (TEXTURE[:1], {}, "pred"),
    ],
    ids=["texture", "stacks", "known stacks", "colours", "game", "fast", "named", "numbers", "vectors", "bools", "one"],
)
def test_what_is_compiled_ahead(tensors, options, spec, started, caplog):
    for _ in range(2):
        decide(tensors, **options)
    says = (
        f"obscodec compiles the codec {spec!r} for images, for half a minute or more, the first time only; your "
        "program goes on meanwhile; `python -m obscodec warm` compiles all kernels ahead"
    )
    assert caplog.messages == ([] if spec is None else [says])
    assert [command[-1] for command in started] == ([] if spec is None else [program(f"compile_codec({spec!r})")])


@pytest.mark.parametrize("there", ["encode", "decode"])
def test_what_an_earlier_process_began_is_finished(there, started, monkeypatch):
    monkeypatch.setattr(ahead, "is_on_disk", lambda package, name: name == f"{there}_items")
    decide(TEXTURE)
    assert len(started) == 1


PREPARES = "another process", "this process"


@pytest.mark.parametrize("who", PREPARES)
def test_kernels_of_buffers_are_compiled_before_a_choice(who, started, monkeypatch, caplog):
    made = []
    monkeypatch.setattr(ahead, "_asked", {})
    monkeypatch.setattr(warming, "compile_buffers", lambda: made.append(who))
    if who == "this process":
        monkeypatch.setattr(ahead, "n_processors", lambda: 1)
    for _ in range(2):
        decide(GAME)
    assert [command[-1] for command in started] == [program("compile_buffers()")][: who == "another process"]
    assert made == [who][: who == "this process"]
    says = (
        "obscodec compiles its kernels for this machine, for half a minute or more, the first time only; your "
        "program goes on meanwhile, and observations wait uncompressed; `python -m obscodec warm` compiles all kernels "
        "ahead"
    )
    assert caplog.messages == [says][: len(started)]  # a log says so if this process compiles


@pytest.mark.parametrize(("value", "expected"), [("now", 1), ("", 0), (None, 0)])
def test_kernels_are_compiled_when_a_store_is_made_if_somebody_wants_it(value, expected, started, monkeypatch):
    monkeypatch.setattr(ahead, "_asked", {})
    if value is not None:
        monkeypatch.setenv("OBSCODEC_COMPILE", value)
    AutoStore(Layout((8, 8), np.uint8))
    assert len(started) == expected


@pytest.mark.parametrize("kernel", range(4))
def test_kernels_that_are_missing_are_compiled(kernel, started, monkeypatch):
    monkeypatch.setattr(ahead, "_asked", {})
    monkeypatch.setattr(ahead, "is_on_disk", lambda *of: of != ahead._OF_BUFFERS[kernel])
    decide(GAME)
    assert len(started) == 1


def test_kernels_that_are_on_disk_are_not_compiled(started, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "_asked", {})
    monkeypatch.setattr(ahead, "is_on_disk", lambda *of: True)
    decide(GAME)
    assert (started, caplog.messages) == ([], [])


def test_threads_start_one_process(started):
    together(*[partial(ahead.prepare_codec, "pred")] * 8)
    assert len(started) == 1


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((0, 0, 0), ["-P"]), ((1, 1, 1), ["-I"]), ((0, 1, 0), ["-P", "-E"]), ((0, 0, 1), ["-P", "-s"])],
)
def test_the_other_process_finds_modules_as_this_one_does(flags, expected, started, monkeypatch):
    names = ("isolated", "ignore_environment", "no_user_site")
    monkeypatch.setattr(ahead, "_FLAGS", SimpleNamespace(**dict(zip(names, flags, strict=True))))
    decide(TEXTURE)
    assert started[0][1 : started[0].index("-c")] == expected


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (ahead, "n_processors", 1),
        (ahead, "cache_folder", None),
        (ahead, "is_on_disk", True),
        (process, "parent_process", "a process"),
    ],
)
def test_where_nothing_is_compiled_ahead(module, name, value, started, monkeypatch):
    monkeypatch.setattr(module, name, lambda *arguments: value)
    decide(TEXTURE)
    assert started == []


@pytest.mark.parametrize("executable", [None, "", "/opt/game/bin/trainer", "/usr/bin/uwsgi"])
def test_only_an_interpreter_is_started(executable, started, monkeypatch):
    """In a program that has Python built in, another name is that of the program."""
    monkeypatch.setattr(sys, "executable", executable)
    decide(TEXTURE)
    assert started == []


def test_a_process_that_can_not_start_is_no_error(started, monkeypatch):
    def refused(*arguments, **options):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(ahead.subprocess, "Popen", refused)
    decide(TEXTURE)


def test_the_process_ends_with_this_one():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    ahead._end(process, os.getpid())
    assert process.returncode != 0
    ahead._end(process, os.getpid())


@pytest.mark.needs("fork")
def test_a_forked_process_that_ends_leaves_it_to_its_starter():
    """A thread of the starter waits for it, and the forked process has the lock of this thread, which nobody frees."""
    script = """
import atexit, subprocess, threading, time
from forked import exit_status, forked
from obscodec.stores.auto import ahead
started = []
class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        started.append(self)
subprocess.Popen = Popen
process = ahead._start("import time; time.sleep(600)")
threading.Thread(target=process.wait, daemon=True).start()
while not started[0]._waitpid_lock.locked():
    time.sleep(0.01)
print(exit_status(forked(atexit._run_exitfuncs, seconds=20)))
time.sleep(0.1)
print(started[0].returncode)
"""
    assert run_python("-c", script) == "0\nNone\n"


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["pred", "palette"])
def test_what_the_process_compiles(spec):
    says = "; from obscodec.kernels import kernels_here; print(*(x[0] for of in kernels_here()[:2] for x in of))"
    names = run_python("-P", "-c", program(f"compile_codec({spec!r})") + says).split()
    package = f"obscodec.codecs.formats.images.{spec}."
    assert {f"{package}{what}.{what}_items" for what in ("encode", "decode")} <= {*names}
