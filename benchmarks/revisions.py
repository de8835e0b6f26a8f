"""Compare the calls of this checkout with those of another one, such as the commit before a change.

git worktree add ../before COMMIT
uv run benchmarks/revisions.py ../before

Each checkout has a process of its own, with the same steps in the same buffers. The two take turns of a few
milliseconds, so that noise of the machine hits both alike; a ratio is of two turns that follow each other. Where in
memory a process lies changes its times by some percent, so there are several; the last columns show how they differ.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

_HERE = Path(__file__).resolve().parents[1]
_PACKAGES = "obscodec-core", "obscodec-sb3"
_CAPACITY, _CALLS = 4000, 25  # calls in a turn
_SHAPE, _CODEC = (84, 84), "delta-rle|lz4:6"


def _frames() -> Iterator[Any]:
    """A square that moves, as an endless game."""
    step = 0
    while True:
        frame = np.zeros(_SHAPE, np.uint8)
        y, x = 3 * step % 80, 5 * step % 80
        frame[y : y + 4, x : x + 4] = 255
        yield frame
        step += 1


def _calls() -> dict[str, Callable[[], None]]:
    """What is timed, with the packages of one checkout; each function is called again and again."""
    import torch
    from gymnasium import spaces
    from obscodec import Field, RingBuffer
    from obscodec_sb3 import CompressedReplayBuffer

    torch.set_num_threads(1)
    np.random.seed(0)
    rng, frames, stack_frames = np.random.default_rng(0), _frames(), _frames()
    space = spaces.Box(0, 255, (4, *_SHAPE), np.uint8)
    sb3 = CompressedReplayBuffer(_CAPACITY, space, spaces.Discrete(6), "cpu", codec=_CODEC, threads=1)
    fields = {"obs": Field(_SHAPE, np.uint8, _CODEC), "reward": Field((), np.float32), "done": Field((), bool)}
    ring = RingBuffer(_CAPACITY, fields, stack={"obs": 4}, pad="edge", episode_end="done", threads=1)
    action, reward, done = np.zeros(1, np.int64), np.zeros(1), np.zeros(1, bool)
    stacks = [np.stack([next(stack_frames) for _ in range(4)])[None]]

    def add() -> None:
        obs = stacks.pop()
        stacks.append(np.concatenate([obs[:, 1:], next(stack_frames)[None, None]], axis=1))
        clocked(sb3.add, obs, stacks[0], action, reward, done, [{}])

    def append() -> None:
        clocked(ring.append, obs=next(frames), reward=1.0, done=len(ring) % 500 == 499)

    def clocked(call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        begin = time.perf_counter_ns()
        call(*args, **kwargs)
        elapsed_ns.append(time.perf_counter_ns() - begin)

    elapsed_ns = _elapsed_ns
    for _ in range(_CAPACITY + _CAPACITY // 4):
        add()
        append()
    calls: dict[str, Callable[[], None]] = {"SB3 add": add, "ring append": append}
    for n in (32, 256):
        calls[f"SB3 sample({n})"] = partial(clocked, sb3.sample, n)
        calls[f"ring sample({n})"] = partial(clocked, ring.sample, n, rng)
    for n_actions in (0, 18, 1_000):
        calls |= _rollout_calls(n_actions, clocked)
    return calls


def _rollout_calls(n_actions: int, clocked: Callable[..., None]) -> dict[str, Callable[[], None]]:
    """Those of a rollout of vectors, with masks of some actions if there are any."""
    import torch
    from gymnasium import spaces
    from obscodec_sb3 import CompressedMaskableRolloutBuffer, CompressedRolloutBuffer

    kind = CompressedMaskableRolloutBuffer if n_actions else CompressedRolloutBuffer
    n_envs, space, rng = 8, spaces.Box(-1, 1, (8,)), np.random.default_rng(0)
    arguments: Any = {"device": "cpu", "n_envs": n_envs, "threads": 1}
    filling, read = (kind(256, space, spaces.Discrete(n_actions or 18), **arguments) for _ in range(2))
    nothing, zeros, obs = torch.zeros(n_envs), np.zeros(n_envs), np.zeros((n_envs, 8), np.float32)
    masks = rng.random((64, n_envs, n_actions)) < 0.05

    def add() -> None:
        if filling.full:
            filling.reset()
        more: Any = {"action_masks": masks[filling.pos % 64]} if n_actions else {}
        clocked(filling.add, obs, zeros[:, None], zeros, zeros, nothing, nothing, **more)

    def minibatches() -> Iterator[Any]:
        while True:
            yield from read.get(256)

    for _ in range(256):
        add()
        read.add(obs, zeros[:, None], zeros, zeros, nothing, nothing)
    batches = minibatches()
    name = f"masks of {n_actions}" if n_actions else "rollout"
    return {f"{name} add": add, f"{name} get(256)": partial(clocked, next, batches)}


_elapsed_ns: list[int] = []


def _serve() -> None:
    """Time a turn of the call that each line of the input names, and print its median, ns."""
    calls = _calls()
    print(json.dumps([*calls]), flush=True)
    for line in sys.stdin:
        _elapsed_ns.clear()
        for _ in range(_CALLS):
            calls[line.strip()]()
        print(float(np.median(_elapsed_ns)), flush=True)


def _process(checkout: Path) -> "subprocess.Popen[str]":
    path = os.pathsep.join(str(checkout / "packages" / name / "src") for name in _PACKAGES)
    command = [sys.executable, "-W", "ignore", str(Path(__file__)), "--serve", str(checkout)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _asked(process: "subprocess.Popen[str]", name: str = "") -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    if name:
        print(name, file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


def _pairs(other: Path, turns: int, words: list[str]) -> Iterator[tuple[str, tuple[float, float]]]:
    """For each call, the medians of the other checkout and of this one, µs, each in a new process."""
    theirs, ours = _process(other), _process(_HERE)
    known = _asked(theirs), _asked(ours)
    names = [name for name in known[0] if name in known[1] and any(word in name for word in words)]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for turn in range(turns):
        for name in names:
            times = {process: _asked(process, name) / 1e3 for process in [theirs, ours][:: 1 if turn % 2 else -1]}
            found[name].append((times[theirs], times[ours]))
    for process in (theirs, ours):
        process.communicate()
    for name, pairs in found.items():
        them, us = np.array(pairs).T
        yield name, (float(np.median(them)), float(np.median(them) * np.median(us / them)))


def main(
    other: Annotated[Path, typer.Argument(help="another checkout of this repository")],
    processes: Annotated[int, typer.Option(min=1, help="of each checkout, one after the other")] = 7,
    turns: Annotated[int, typer.Option(min=1, help="of each call in each process")] = 40,
    only: Annotated[str, typer.Option(help="words: only calls with one of them in their name; all if empty")] = "",
    serve: Annotated[bool, typer.Option("--serve", hidden=True)] = False,
) -> None:
    """Print medians of both checkouts, and ratios of the processes."""
    if serve:
        _serve()
        return
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(processes):
        for name, pair in _pairs(other.resolve(), turns, only.split(",")):
            found.setdefault(name, []).append(pair)
    print(f"{'':20}{'other, µs':>12}{'this, µs':>12}{'difference':>12}{'ratio':>8}{'lowest':>8}{'highest':>8}")
    for name, pairs in found.items():
        them, us = np.array(pairs).T
        ratios = us / them
        times = f"{np.median(them):12.2f}{np.median(us):12.2f}{np.median(us - them):12.2f}"
        print(f"{name:20}{times}{np.median(ratios):8.3f}{ratios.min():8.3f}{ratios.max():8.3f}")


if __name__ == "__main__":
    typer.run(main)
