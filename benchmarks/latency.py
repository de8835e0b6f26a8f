"""How long single calls of buffers take, beside those of the stock buffers: what an environment loop notices.

uv run benchmarks/latency.py

Each class has a process of its own, in which ours and the stock buffer get the same steps, in a random order; every
fourth step draws a batch from both. *Busy*: a thread trains a convolutional network with torch all the time. *Cold*:
no kernel of obscodec is compiled yet; a step comes every 5 ms, until all observations are compressed.

The clock also counts the time of other programs: look at the longest calls on an idle machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from result_tables import circumstances

_SIZE, _FILM, _BATCH = 20_000, 8_000, 32
_COLD_S, _PACE_S, _CHECK = 90.0, 0.005, 400  # seconds at most; between two steps; steps until it looks again
_SAMPLE_FROM, _SAMPLE_EVERY = 100, 4  # HER samples from an episode that has ended
_N_SNAPSHOTS = 10
_SLOW = {"TorchRL storage": 10}  # a tenth of the steps: the stock buffer takes milliseconds for each
_RESULTS = Path(__file__).parent / "results" / "latency.md"
_HEADINGS = "median", "p99", "p99.9", "longest"

Image = npt.NDArray[np.uint8]
Step = tuple[Any, ...]
Calls = dict[str, Callable[..., object]]  # by name: those that store a step, and that draw a batch


class Game:
    """Steps of a game: six squares that move, 84x84, stacks of four, an episode every 100 steps."""

    def __init__(self) -> None:
        self.film = np.zeros((_FILM, 84, 84), np.uint8)
        self.film[:, 10:14], self.film[:, :, 40] = 90, 30
        for t, frame in enumerate(self.film):
            for k in range(6):
                y, x = (t * (k + 1)) // 2 % 78, (t * (3 * k + 1)) // 3 % 78
                frame[y : y + 6, x : x + 6] = 40 * k + 55

    def step(self, number: int) -> tuple[Image, Image, int, float, bool]:
        """Observation and next one ``u8[4, 84, 84]``, action, reward, and whether an episode ends."""
        k = number % (_FILM - 5)
        return self.film[k : k + 4], self.film[k + 1 : k + 5], number % 6, float(number % 7), number % 100 == 99


def _sb3(name: str) -> tuple[Any, Any, Callable[..., Step]]:
    """A class of Stable-Baselines3 and ours, and the arguments of ``add``."""
    from gymnasium import spaces
    from obscodec_sb3 import compressed
    from stable_baselines3.common import buffers
    from stable_baselines3.her import HerReplayBuffer

    class WithBonus(buffers.ReplayBuffer):
        """A class of a user, which does more in ``add``."""

        bonus = 0.0

        def add(self, *step: Any) -> None:
            self.bonus += 1
            super().add(*step)

    image, vector = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Box(-9, 9, (3,), np.float32)
    goals: dict[str, Any] = {"observation": image, "achieved_goal": vector, "desired_goal": vector}
    both: dict[str, Any] = {"image": image, "vector": vector}
    kinds: dict[str, tuple[Any, Any]] = {
        "ReplayBuffer": (buffers.ReplayBuffer, image),
        "DictReplayBuffer": (buffers.DictReplayBuffer, spaces.Dict(both)),
        "HerReplayBuffer": (HerReplayBuffer, spaces.Dict(goals)),
        "NStepReplayBuffer": (getattr(buffers, "NStepReplayBuffer", None), image),
        "a class of your own": (WithBonus, image),
    }
    stock, space = kinds[name]
    more: dict[str, Any] = {"env": _OneEnv()} if name == "HerReplayBuffer" else {}
    stock_buffer, ours = (
        of(_SIZE, space, spaces.Discrete(6), device="cpu", **more) for of in (stock, compressed(stock))
    )
    point = np.zeros((1, 3), np.float32)

    def arguments(obs: Image, next_obs: Image, action: int, reward: float, done: bool) -> Step:
        pair: Any = obs[None], next_obs[None]
        if name == "DictReplayBuffer":
            pair = [{"image": of, "vector": point} for of in pair]
        elif name == "HerReplayBuffer":
            pair = [{"observation": of, "achieved_goal": point, "desired_goal": point} for of in pair]
        return (*pair, np.array([action]), np.array([reward], np.float32), np.array([done]), [{}])

    return stock_buffer, ours, arguments


class _OneEnv:
    """What HER asks of an environment, but for rewards of other goals."""

    num_envs = 1

    def env_method(self, _: str, achieved: Any, *__: object, **___: object) -> list[Any]:
        return [np.zeros(len(achieved), np.float32)]


def _torchrl() -> tuple[Any, Any, Callable[..., Step]]:
    import torch
    from obscodec_torchrl import CompressedStorage
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    kinds = LazyTensorStorage, CompressedStorage
    stock, ours = (TensorDictReplayBuffer(storage=of(_SIZE), batch_size=_BATCH) for of in kinds)

    def arguments(obs: Image, next_obs: Image, action: int, reward: float, done: bool) -> Step:
        after = {"pixels": torch.from_numpy(next_obs[None]), "reward": torch.tensor([[reward]])}
        after["done"] = torch.tensor([[done]])
        step = {"pixels": torch.from_numpy(obs[None]), "action": torch.tensor([action]), "next": after}
        return (TensorDict(step, [1]),)

    return stock, ours, arguments


def _ring() -> tuple[Any, Any, Callable[..., Step]]:
    """A RingBuffer, beside Stable-Baselines3's buffer."""
    from obscodec import Field, RingBuffer

    stock, _, sb3_arguments = _sb3("ReplayBuffer")
    fields = {
        "obs": Field((4, 84, 84), np.uint8),
        "next_obs": Field((4, 84, 84), np.uint8, shares="obs"),
        "action": Field((), np.int64),
        "reward": Field((), np.float32),
        "done": Field((), np.bool_),
    }
    ring, rng = RingBuffer(_SIZE, fields), np.random.default_rng(0)

    class Ring:
        """With the names of Stable-Baselines3's buffer."""

        saved = ring
        decide = ring.decide
        stats = ring.stats

        @staticmethod
        def add(obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, _: object) -> None:
            ring.append(obs=obs[0], next_obs=next_obs[0], action=action[0], reward=reward[0], done=done[0])

        @staticmethod
        def sample(n: int) -> object:
            return ring.sample(n, rng)

    return stock, Ring, sb3_arguments


_CLASSES: dict[str, Callable[[], tuple[Any, Any, Callable[..., Step]]]] = {
    "ReplayBuffer": lambda: _sb3("ReplayBuffer"),
    "DictReplayBuffer": lambda: _sb3("DictReplayBuffer"),
    "HerReplayBuffer": lambda: _sb3("HerReplayBuffer"),
    "NStepReplayBuffer": lambda: _sb3("NStepReplayBuffer"),
    "a class of your own": lambda: _sb3("a class of your own"),
    "RingBuffer": _ring,
    "TorchRL storage": _torchrl,
}


def _calls(name: str, buffer: Any) -> Calls:
    """How a step is stored in a buffer, and a batch drawn."""
    if name == "TorchRL storage":
        return {"extend": buffer.extend, "sample": buffer.sample}
    return {"append" if name == "RingBuffer" else "add": buffer.add, "sample": lambda: buffer.sample(_BATCH)}


def _is_compressed(name: str, buffer: Any) -> bool:
    stats = (buffer.storage if name == "TorchRL storage" else buffer).stats()
    return all(getattr(of, "is_decided", True) for of in stats.fields.values())


def _elapsed_s(call: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def _learn(ended: threading.Event) -> None:
    """Train a network on batches of noise until the end."""
    import torch
    from torch import nn

    layers = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(5184, 6)]
    network, x = nn.Sequential(*layers), torch.rand(64, 4, 84, 84)
    optimizer = torch.optim.Adam(network.parameters())
    while not ended.is_set():
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()


def measure_warm(name: str, n_steps: int, *, busy: bool) -> dict[str, Any]:
    """Times of all calls in seconds, by buffer and call: median, p99, p99.9 and the longest."""
    game, rng = Game(), np.random.default_rng(0)
    stock, ours, arguments = _CLASSES[name]()
    calls = {"stock": _calls(name, stock), "ours": _calls(name, ours)}
    times: dict[str, list[float]] = defaultdict(list)
    ended = threading.Event()
    learner = threading.Thread(target=_learn, args=(ended,))
    if busy:
        learner.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            write, finish = _saving(name, ours, folder)
            for number in range(n_steps):
                step = arguments(*game.step(number))
                for which in rng.permutation(["stock", "ours"]).tolist():
                    store, sample = calls[which]
                    times[f"{which} {store}"].append(_elapsed_s(calls[which][store], *step))
                    if number >= _SAMPLE_FROM and number % _SAMPLE_EVERY == 0:
                        times[f"{which} {sample}"].append(_elapsed_s(calls[which][sample]))
                if number % (n_steps // _N_SNAPSHOTS) == n_steps // _N_SNAPSHOTS - 1:
                    times["ours snapshot"].append(_elapsed_s(write, number))
            finish()
    finally:
        ended.set()
        if busy:
            learner.join()
    return {of: [float(np.quantile(found, q)) for q in (0.5, 0.99, 0.999, 1)] for of, found in times.items()}


def _saving(name: str, ours: Any, folder: str) -> tuple[Callable[[int], object], Callable[[], object]]:
    """What begins to save a buffer in the background, and what waits for the end of that."""
    if name == "TorchRL storage":
        from obscodec_torchrl import SnapshotHook

        hook = SnapshotHook(ours, folder, every=1)
        return hook.write, hook.finish
    from obscodec import Snapshot

    snapshot, saved = Snapshot(folder), getattr(ours, "saved", ours)
    return lambda number: snapshot.write(saved, generation=number), snapshot.wait


def measure_cold(name: str) -> dict[str, Any]:
    """Seconds of the longest call of each kind until all is compressed, and of what comes before."""
    game = Game()
    # What any training with the stock buffer imports: seconds that are not ours.
    import_module("torchrl.data" if name == "TorchRL storage" else "stable_baselines3.her")
    began = time.perf_counter()
    _, ours, arguments = _CLASSES[name]()
    found = {"import and construction": time.perf_counter() - began}
    (store, add), (_, sample) = _calls(name, ours).items()
    longest: dict[str, float] = defaultdict(float)
    began = time.perf_counter()
    for number in range(int(_COLD_S / _PACE_S)):
        longest[store] = max(longest[store], _elapsed_s(add, *arguments(*game.step(number))))
        if number >= _SAMPLE_FROM and number % _SAMPLE_EVERY == 0:
            longest["sample"] = max(longest["sample"], _elapsed_s(sample))
        time.sleep(_PACE_S)
        if number % _CHECK == _CHECK - 1 and _is_compressed(name, ours):
            break
    return {**found, **longest, "all compressed after": time.perf_counter() - began}


def _in_new_process(name: str, *options: str, cache: str | None = None) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # an installed package has its bytecode, too
    if cache:
        environment["NUMBA_CACHE_DIR"] = cache
    command = [sys.executable, __file__, "--only", name, *options]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _in_ms(seconds: float) -> str:
    ms = 1e3 * seconds
    return f"{ms:.3f}" if ms < 1 else f"{ms:.1f}"


def _warm_table(found: dict[str, dict[str, Any]]) -> list[str]:
    """For each class and call: the stock buffer's times in ms, then ours, and the ratios of medians and p99.9."""
    heads = [f"{whose} {heading}" for whose in ("stock", "ours") for heading in _HEADINGS]
    lines = [f"| | call | {' | '.join(heads)} | median | p99.9 |", f"| --- | --- |{' ---: |' * 10}"]
    for name, times in found.items():
        for of in [key.removeprefix("ours ") for key in times if key.startswith("ours ")]:
            ours, stock = times[f"ours {of}"], times.get(f"stock {of}")
            cells = [*(map(_in_ms, stock) if stock else [""] * 4), *map(_in_ms, ours)]
            ratios = [f"{ours[k] / stock[k]:.2f}" if stock else "" for k in (0, 2)]
            bold = [f"**{ratio}**" if ratio and float(ratio) > 1 else ratio for ratio in ratios]
            lines.append(f"| {name} | `{of}` | {' | '.join([*cells, *bold])} |")
    return lines


def _cold_table(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["| | import and construction | longest `add` | longest `sample` | all compressed after |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    for name, times in found.items():
        lines.append(f"| {name} | {' | '.join(f'{seconds:.2f}' for seconds in times.values())} |")
    return lines


def main(
    steps: Annotated[int, typer.Option(help="for each class, warm")] = 200_000,
    classes: Annotated[str, typer.Option(help="some of the classes, with commas between them")] = ",".join(_CLASSES),
    only: Annotated[str, typer.Option(hidden=True)] = "",
    busy: Annotated[bool, typer.Option("--busy", hidden=True)] = False,
    cold: Annotated[bool, typer.Option("--cold", hidden=True)] = False,
) -> None:
    """Print the tables, and write them to ``benchmarks/results/latency.md`` if all classes are measured."""
    if only:
        print(json.dumps(measure_cold(only) if cold else measure_warm(only, steps, busy=busy)))
        return
    about, names = circumstances("benchmarks"), classes.split(",")
    lines = ["# How long single calls take", "", *(f"- {name}: {text}" for name, text in about.items()), ""]
    lines += [
        f"Milliseconds, of {steps:,} steps of each class (TorchRL: a tenth), a batch of {_BATCH} each {_SAMPLE_EVERY}, "
        f"buffers of {_SIZE:,}; the last columns are ours, relative to the stock buffer. RingBuffer is beside "
        "Stable-Baselines3's ReplayBuffer. `snapshot` begins to save in the background."
    ]
    for title, options in (("On an idle machine", []), ("Beside a learner that keeps torch busy", ["--busy"])):
        found = {name: _in_new_process(name, "--steps", str(steps // _SLOW.get(name, 1)), *options) for name in names}
        lines += ["", f"## {title}", "", *_warm_table(found)]
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            found[name] = _in_new_process(name, "--cold", cache=cache)
    lines += ["", "## With nothing compiled, in seconds", "", *_cold_table(found)]
    text = "\n".join(lines) + "\n"
    print(text)
    if classes == ",".join(_CLASSES):
        _RESULTS.write_text(text)


if __name__ == "__main__":
    typer.run(main)
