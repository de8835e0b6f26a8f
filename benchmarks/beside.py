"""What SB3's rollouts have beside the observations: action masks, recurrent states, goals.

uv run benchmarks/beside.py

Observations are vectors of 8 floats, so that the rest counts. 2,048 steps of 8 environments:

- *masks*: MaskablePPO's buffer with 1,000 actions, of which 5 % are valid, others in each step.
- *states*: RecurrentPPO's buffer with the states of two LSTMs of 256, which read vectors that wander.
- *goals*: a buffer of a user with a goal of 512 floats, the same one for an episode of 200 steps.

``add`` and the minibatches of ``get(256)`` of three buffers take turns: SB3's own, obscodec's that keeps all as it is
(``codec=None``), and obscodec's. Bytes are those that ``stats()`` counts for the array. RSS is measured in a fresh
process each, after a small buffer: its growth when the buffer is full and read, and the peak while it is reset, filled
and read again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import obscodec
import psutil
import torch
import typer
from gymnasium import spaces
from obscodec_sb3 import compressed
from processes import in_fresh_process
from resident_memory import give_back_free_memory
from result_tables import circumstances
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.buffers import RolloutBuffer

_N_STEPS, _N_ENVS, _BATCH, _LAPS = 2_048, 8, 256, 3
_ACTIONS, _LSTM, _GOAL, _EPISODE = 1_000, 256, 512, 200
_SPACE = spaces.Box(-1, 1, (8,))
_RESULTS = Path(__file__).parent / "results" / "beside.md"
_PACKAGES = "obscodec", "stable-baselines3", "sb3-contrib", "torch", "numpy", "numba"
_WAYS: dict[str, dict[str, Any] | None] = {"SB3": None, "obscodec, `codec=None`": {"codec": None}, "obscodec": {}}


class Goals(RolloutBuffer):
    """A buffer of a user, which keeps goals."""

    def reset(self) -> None:
        """Make all arrays anew."""
        super().reset()
        self.goals = np.zeros((self.buffer_size, self.n_envs, _GOAL), np.float32)

    def add(self, *args: Any, goals: Any) -> None:  # type: ignore[override]
        """Store a step."""
        self.goals[self.pos] = goals
        super().add(*args)

    def get(self, batch_size: int | None = None) -> Iterator[Any]:  # type: ignore[override]
        """Minibatches."""
        if not self.generator_ready:
            self.goals = self.swap_and_flatten(self.goals)
        yield from super().get(batch_size)

    def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
        return super()._get_samples(batch_inds, env), self.to_torch(self.goals[batch_inds])


KINDS: dict[str, tuple[type[RolloutBuffer], tuple[str, ...]]] = {
    "masks": (MaskableRolloutBuffer, ("action_masks",)),
    "states": (
        RecurrentRolloutBuffer,
        ("hidden_states_pi", "cell_states_pi", "hidden_states_vf", "cell_states_vf"),
    ),
    "goals": (Goals, ("goals",)),
}


def build(kind: str, way: str, n_steps: int) -> Any:
    """A buffer."""
    stock, options = KINDS[kind][0], _WAYS[way]
    arguments: dict[str, Any] = {"device": "cpu", "n_envs": _N_ENVS}
    if kind == "states":
        arguments["hidden_state_shape"] = (n_steps, 1, _N_ENVS, _LSTM)
    cls: Any = stock if options is None else compressed(stock)
    own = {} if options is None else {"threads": 1, **options}
    return cls(n_steps, _SPACE, spaces.Discrete(_ACTIONS), **arguments, **own)


def steps(kind: str, n_steps: int) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of ``add``."""
    rng, nothing, zeros = np.random.default_rng(0), torch.zeros(_N_ENVS), np.zeros(_N_ENVS)
    torch.manual_seed(0)
    lstms = [torch.nn.LSTM(8, _LSTM) for _ in range(2)]
    states: list[Any] = [None, None]
    obs, goals = np.zeros((_N_ENVS, 8), np.float32), np.zeros((_N_ENVS, _GOAL), np.float32)
    for k in range(n_steps):
        obs = np.clip(obs + rng.normal(0, 0.1, obs.shape), -1, 1).astype(np.float32)
        more: dict[str, Any] = {}
        if kind == "masks":
            more["action_masks"] = rng.random((_N_ENVS, _ACTIONS)) < 0.05
        elif kind == "states":
            with torch.no_grad():
                states = [lstm(torch.from_numpy(obs)[None], of)[1] for lstm, of in zip(lstms, states, strict=True)]
            more["lstm_states"] = RNNStates(*states)
        else:
            new = (k + np.arange(_N_ENVS) * 25) % _EPISODE == 0
            goals = np.where(new[:, None] | (k == 0), rng.normal(size=goals.shape), goals).astype(np.float32)
            more["goals"] = goals
        yield (obs, zeros[:, None], zeros, zeros, nothing, nothing), more


def measured(kind: str) -> dict[str, dict[str, float]]:
    """Times of all buffers in turns, µs, and bytes beside the observations."""
    torch.set_num_threads(1)
    buffers, rng = {way: build(kind, way, _N_STEPS) for way in _WAYS}, np.random.default_rng(0)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for lap in range(_LAPS):
        counted = times if lap else defaultdict(list)  # the first one compiles, and finds the forms
        for way in rng.permutation([*_WAYS]).tolist():
            counted[way, "reset"].append(_elapsed_us(buffers[way].reset))
        for args, more in steps(kind, _N_STEPS):
            for way in rng.permutation([*_WAYS]).tolist():
                counted[way, "add"].append(_elapsed_us(buffers[way].add, *args, **more))
        for buffer in buffers.values():
            buffer.compute_returns_and_advantage(torch.zeros(_N_ENVS), np.zeros(_N_ENVS))
            if hasattr(buffer, "decide"):
                buffer.decide()
        for epoch in range(3):
            minibatches = {way: buffer.get(_BATCH) for way, buffer in buffers.items()}
            for at in range(_N_STEPS * _N_ENVS // _BATCH):
                for way in rng.permutation([*_WAYS]).tolist():
                    elapsed_us = _elapsed_us(next, minibatches[way])
                    if at and epoch:  # the first one of a rollout flattens
                        counted[way, "get"].append(elapsed_us)
    found = {}
    for way, buffer in buffers.items():
        adds = times[way, "add"]
        found[way] = {"MB": _nbytes(buffer, KINDS[kind][1]) / 1e6, "reset": float(np.median(times[way, "reset"]))}
        found[way] |= {"add": float(np.median(adds)), "mean": float(np.mean(adds))}
        found[way]["get"] = float(np.median(times[way, "get"]))
    return found


def _nbytes(buffer: Any, names: tuple[str, ...]) -> int:
    """Bytes of some arrays."""
    if not hasattr(buffer, "stats"):
        return sum(getattr(buffer, name).nbytes for name in names)
    fields = buffer.stats().fields
    held = [fields.get(name, getattr(buffer, name).nbytes) for name in names]
    ids = sum(array.ids.nbytes for name in names if isinstance(array := getattr(buffer, name), obscodec.TensorArray))
    return ids + sum(of if isinstance(of, int) else of.total_bytes for of in held)


def _elapsed_us(call: Callable[..., object], *args: Any, **kwargs: Any) -> float:
    begin = time.perf_counter()
    call(*args, **kwargs)
    return (time.perf_counter() - begin) * 1e6


def resident(kind: str, way: str) -> tuple[float, float]:
    """Growth of RSS, MB, when a buffer is full and read, and at most in the rollout behind it."""
    torch.set_num_threads(1)
    small = build(kind, way, 64)
    _rollout(small, kind, 64)
    kept = list(steps(kind, 16))  # what making steps takes is there before
    give_back_free_memory()
    before = psutil.Process().memory_info().rss
    buffer = build(kind, way, _N_STEPS)
    for _ in range(2):
        _rollout(buffer, kind, _N_STEPS)
    full = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    buffer.reset()
    _rollout(buffer, kind, _N_STEPS)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (peak,) = [1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    del small, kept  # not before
    return (full - before) / 1e6, (peak - before) / 1e6


def _rollout(buffer: Any, kind: str, n_steps: int) -> None:
    if buffer.full:
        buffer.reset()
    for args, more in steps(kind, n_steps):
        buffer.add(*args, **more)
    if hasattr(buffer, "decide"):
        buffer.decide()
    buffer.compute_returns_and_advantage(torch.zeros(_N_ENVS), np.zeros(_N_ENVS))
    for _ in buffer.get(_BATCH):
        pass


def states_x() -> dict[str, float]:
    """How many times smaller the best codec makes 512 states that follow each other in an environment."""
    found: dict[str, list[Any]] = defaultdict(list)
    for _, more in steps("states", _N_STEPS):
        for name, (hidden, cell) in more["lstm_states"]._asdict().items():
            found[f"hidden, {name}"].append(hidden[0, 0].numpy())
            found[f"cell, {name}"].append(cell[0, 0].numpy())
    samples = {name: np.stack(rows[-512:]) for name, rows in found.items()}
    return {name: of.nbytes / len(obscodec.encode(of).to_bytes()) for name, of in samples.items()}


def main(out: Path = _RESULTS) -> None:
    """Measure, and write the table."""
    lines = ["# Beside the observations of SB3's rollouts", ""]
    lines += [f"- {name}: {text}" for name, text in circumstances("sb3", _PACKAGES).items()]
    lines += ["", f"{_N_STEPS:,} steps of {_N_ENVS} environments; in brackets the ratio to SB3's."]
    for kind in KINDS:
        found = in_fresh_process(measured, kind)
        lines += ["", f"## {kind}", "", "| buffer | MB of the arrays | RSS, full | RSS, peak of the next rollout |"]
        lines[-1] += " `reset`, ms | `add` median, µs | `add` mean, µs | `get(256)`, ms |"
        lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for way, of in found.items():
            full, peak = in_fresh_process(resident, kind, way)
            x = {name: value / found["SB3"][name] for name, value in of.items()}
            lines.append(
                f"| {way} | {of['MB']:.2f} ({x['MB']:.3f}x) | {full:.1f} | {peak:.1f} | {of['reset'] / 1e3:.2f} | "
                f"{of['add']:.1f} ({x['add']:.2f}x) | {of['mean']:.1f} ({x['mean']:.2f}x) | "
                f"{of['get'] / 1e3:.2f} ({x['get']:.2f}x) |"
            )
    ratios = ", ".join(f"{name} {x:.2f}" for name, x in in_fresh_process(states_x).items())
    lines += ["", f"The best codec of `encode` makes the states so many times smaller: {ratios}. They stay plain.", ""]
    out.write_text("\n".join(lines), encoding="utf-8")
    print(out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    typer.run(main)
