"""Estimate: the memory that a buffer of an environment will take, before the training begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from obscodec.arguments import as_count, kind_of, says_arguments
from obscodec.buffers.exploration import NEXT, OBSERVATION, OF_MODEL, Policy, is_space, n_envs_of, play
from obscodec.buffers.field import Field
from obscodec.buffers.memory import fit
from obscodec.buffers.ring import RingBuffer
from obscodec.errors import DTypeError
from obscodec.layout import Layout
from obscodec.runtime import free_memory
from obscodec.stats import BufferStats, StoreStats, in_units

_LEAST_SAMPLE = 256  # as many as a store looks at before it decides
_SAMPLE = 4096
_PARTS, _LEAST_PART = 4, 64  # steps of each environment: some blocks
_DECIDED = 1024  # transitions, after which a store has decided, whatever it sees


@dataclass(frozen=True, slots=True)
class FieldEstimate:
    """What a part of the transitions will take.

    Attributes:
        layout: of one item.
        codec: how it is stored, None if it is not compressed.
        nbytes: about its memory in the full buffer; 0 for next observations, which share the frames of observations.
        raw_bytes: its size without compression.
    """

    layout: Layout
    codec: str | None
    nbytes: int
    raw_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a buffer will take: see :func:`estimate`.

    Attributes:
        steps: how many transitions it holds.
        n_sampled: how many transitions were compressed to find out.
        fields: its parts, by name.
        nbytes: about the memory of all of them, with the tables that find them.
        least_bytes: the same if all steps were as the part of the sampled ones that takes least: a quarter or more.
        most_bytes: the same of the part that takes most.
        raw_bytes: their size without compression, next observations included, as an uncompressed buffer has it.
        free_bytes: the memory that was free on this machine, None if nobody knows.
        is_upper_bound: whether only a space was given. Its random observations are noise, which does not shrink, so
            that real ones take less.
        is_of_policy: whether a policy has played; else the actions were random.
    """

    steps: int
    n_sampled: int
    fields: Mapping[str, FieldEstimate]
    nbytes: int
    least_bytes: int
    most_bytes: int
    raw_bytes: int
    free_bytes: int | None
    is_upper_bound: bool
    is_of_policy: bool

    @property
    def optimized_bytes(self) -> int | None:
        """The size without compression and next observations, as with ``optimize_memory_usage`` of Stable-Baselines3.

        None for dictionaries and tuples of observations, for which it has no such option.
        """
        return self.raw_bytes - self.fields[NEXT].raw_bytes if NEXT in self.fields else None

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory."""
        return self.raw_bytes / self.nbytes

    def __str__(self) -> str:
        size, raw = in_units(self.nbytes), f"{in_units(self.raw_bytes)} without compression"
        bounds = in_units(self.least_bytes), in_units(self.most_bytes)
        how, between = "at most" if self.is_upper_bound else "about", ""
        if bounds[0] != bounds[1]:
            between = f", {bounds[0]} to {bounds[1]} by parts of the sample"
        if self.optimized_bytes is not None and self.fields[OBSERVATION].codec is not None:
            raw += f" ({in_units(self.optimized_bytes)} with SB3's optimize_memory_usage)"
        of = "transitions of the policy" if self.is_of_policy else "transitions of random actions"
        judging = f"judging by {self.n_sampled:,} {'random observations of a space' if self.is_upper_bound else of}"
        more = "" if self.is_upper_bound or self.is_of_policy else "; agents that play well may see more"
        text = f"{self.steps:,} transitions take {how} {size}{between}, {raw}, {judging}{more}"
        return f"{text}. {fit(self.least_bytes, self.most_bytes, self.free_bytes)}".removesuffix(". ")


@says_arguments
def estimate(
    env: Any,
    steps: int = 1_000_000,
    *,
    codec: str | None = "auto",
    n_sample: int = _SAMPLE,
    seed: int | None = 0,
    policy: Policy | None = None,
) -> Estimate:
    """What a buffer of transitions will take: plays in an environment, and compresses what it gives.

    Agents that play well may see more than random ones: allow some room, or pass a ``policy``.

    Args:
        env: an environment of Gymnasium with the wrappers of the training, frame stacks included, or a vector of
            environments, of Gymnasium or of Stable-Baselines3; it is not closed. Replay buffers of Stable-Baselines3
            store what a ``VecNormalize`` gets: pass its ``venv``. A space of observations gives an upper bound only.
        steps: how many transitions the buffer holds, of all environments.
        codec: of observations of 1 KiB or more; see ``Field``.
        n_sample: how many transitions to look at, 256 or more. Each of several environments plays its part of them:
            raise the number if many would play only how an episode begins.
        seed: of the environment and of the random actions.
        policy: a function from observations ``[n_envs, *shape]``, an array or what the environment has in its place,
            such as a dictionary of arrays, to the actions, an array ``[n_envs, ...]``. ``n_envs`` is 1 for an
            environment that is no vector. For a model of Stable-Baselines3, pass ``lambda obs: model.predict(obs)[0]``.
            None for random actions.

    Raises:
        DTypeError: ``env`` is no environment and no space, a space has a ``policy``, or an argument has another type.
        ShapeError: a number is out of range, or ``policy`` returns another number of actions.
        SpecError: ``codec`` names no codec.

    Example:
        >>> import gymnasium as gym
        >>> print(estimate(gym.make("CartPole-v1"), 1_000_000, n_sample=256))  # doctest: +ELLIPSIS
        1,000,000 transitions take about 50 MB, 50 MB without compression, judging by 256 transitions of random...
        >>> estimate(gym.make("CartPole-v1"), n_sample=256, policy=lambda obs: (obs[:, 2] > 0).astype(int)).is_of_policy
        True
    """
    n_envs, steps = n_envs_of(env), as_count("steps", steps)
    wanted = "policy must be a function from a batch of observations to a batch of actions, or None"
    if hasattr(policy, "predict"):
        raise DTypeError(f"{wanted}, got {kind_of(policy)}: {OF_MODEL}")
    if policy is not None and (is_space(env) or not callable(policy)):
        raise DTypeError(f"{wanted}, got {'a space to play in' if callable(policy) else kind_of(policy)}")
    n = -(-as_count("n_sample", n_sample, _LEAST_SAMPLE) // n_envs)
    buffer: RingBuffer | None = None
    ends, parts = part_ends(n), list[tuple[int, BufferStats]]()
    for k, step in enumerate(play(env, n, seed, policy), 1):
        if buffer is None:
            buffer = RingBuffer(n, _fields(step, codec), n_envs)
        buffer.append(**step)
        if k == n or (k in ends and k * n_envs >= _DECIDED):
            buffer.decide()
            parts.append((k, buffer.stats()))
    assert buffer is not None
    n_full = -(-steps // n_envs)
    stats = parts[-1][1].projected(n, n_full)
    assert stats.projected_bytes is not None  # it has decided
    least, most = spread(parts, n_full)
    return Estimate(
        steps,
        n * n_envs,
        {name: _of_field(name, buffer, stats, n_full / n) for name in buffer.fields},
        stats.projected_bytes,
        min(least, stats.projected_bytes),
        max(most, stats.projected_bytes),
        round(stats.raw_bytes * n_full / n),
        free_memory(),
        is_upper_bound=is_space(env),
        is_of_policy=policy is not None,
    )


def part_ends(n: int) -> list[int]:
    """Where ``n`` steps are divided into parts that can be compared, the last of which ends with them."""
    n_parts = min(_PARTS, n // _LEAST_PART) or 1
    return [n * k // n_parts for k in range(1, n_parts + 1)]


def spread(parts: Sequence[tuple[int, BufferStats]], capacity: int) -> tuple[int, int]:
    """The least and the most bytes of a buffer of ``capacity`` steps, if all were as those of one part.

    ``parts`` has how many steps the buffer had at the end of each part, and its stats then.
    """
    growth = [(0, 0), *((n, stats.growing_bytes) for n, stats in parts)]
    rates = [max(0, after - before) / (n - first) for (first, before), (n, after) in pairwise(growth)]
    fixed = parts[-1][1].total_bytes - parts[-1][1].growing_bytes
    return round(fixed + min(rates) * capacity), round(fixed + max(rates) * capacity)


def _fields(step: Mapping[str, Any], codec: str | None) -> dict[str, Field]:
    fields = {}
    for name, array in step.items():
        shape = array.shape[1:]
        if name.startswith(NEXT):
            fields[name] = Field(shape, array.dtype, shares=OBSERVATION + name.removeprefix(NEXT))
        else:
            fields[name] = Field(shape, array.dtype, codec if name.startswith(OBSERVATION) else None)
    return fields


def _of_field(name: str, buffer: RingBuffer, stats: BufferStats, times: float) -> FieldEstimate:
    found, layout = stats.fields[name], buffer.fields[name].layout
    raw_bytes = round(len(buffer) * buffer.n_envs * layout.nbytes * times)
    if not isinstance(found, StoreStats):
        return FieldEstimate(layout, None, round(found * times), raw_bytes)
    nbytes = 0 if buffer.fields[name].shares else round(found.total_bytes + found.growing_bytes * (times - 1))
    return FieldEstimate(layout, found.codec, nbytes, raw_bytes)
