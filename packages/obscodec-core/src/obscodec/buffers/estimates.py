"""Estimate: the memory that a buffer of an environment will take, before the training begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obscodec.arguments import as_count, says_arguments
from obscodec.buffers.exploration import NEXT, OBSERVATION, is_space, n_envs_of, random_steps
from obscodec.buffers.field import Field
from obscodec.buffers.ring import RingBuffer
from obscodec.layout import Layout
from obscodec.stats import BufferStats, StoreStats, in_units

_LEAST_SAMPLE = 256  # as many as a store looks at before it decides
_SAMPLE = 4096


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
        raw_bytes: their size without compression, next observations included, as an uncompressed buffer has it.
        is_upper_bound: whether only a space was given. Its random observations are noise, which does not shrink, so
            that real ones take less.
    """

    steps: int
    n_sampled: int
    fields: Mapping[str, FieldEstimate]
    nbytes: int
    raw_bytes: int
    is_upper_bound: bool

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory."""
        return self.raw_bytes / self.nbytes

    def __str__(self) -> str:
        how = "at most" if self.is_upper_bound else "about"
        of = "random observations of a space" if self.is_upper_bound else "transitions of random actions"
        return (
            f"{self.steps:,} transitions take {how} {in_units(self.nbytes)}, {in_units(self.raw_bytes)} without "
            f"compression, judging by {self.n_sampled:,} {of}"
        )


@says_arguments
def estimate(
    env: Any, steps: int = 1_000_000, *, codec: str | None = "auto", n_sample: int = _SAMPLE, seed: int | None = 0
) -> Estimate:
    """What a buffer of transitions will take: runs an environment with random actions, and compresses what it gives.

    Agents that play well may see more than random ones: allow some room.

    Args:
        env: an environment of Gymnasium with the wrappers of the training, frame stacks included, or a vector of
            environments; it is not closed. A space of observations gives an upper bound only.
        steps: how many transitions the buffer holds, of all environments.
        codec: of observations of 1 KiB or more; see ``Field``.
        n_sample: how many transitions to look at, 256 or more.
        seed: of the environment and of the actions.

    Raises:
        DTypeError: ``env`` is no environment and no space, or an argument has another type.
        ShapeError: a number is out of range.
        SpecError: ``codec`` names no codec.

    Example:
        >>> import gymnasium as gym
        >>> print(estimate(gym.make("CartPole-v1"), 1_000_000, n_sample=256))
        1,000,000 transitions take about 50 MB, 50 MB without compression, judging by 256 transitions of random actions
    """
    n_envs, steps = n_envs_of(env), as_count("steps", steps)
    n = -(-as_count("n_sample", n_sample, _LEAST_SAMPLE) // n_envs)
    buffer: RingBuffer | None = None
    for step in random_steps(env, n, seed):
        if buffer is None:
            buffer = RingBuffer(n, _fields(step, codec), n_envs)
        buffer.append(**step)
    assert buffer is not None
    buffer.decide()
    n_full = -(-steps // n_envs)
    stats = buffer.stats().projected(n, n_full)
    assert stats.projected_bytes is not None  # it has decided
    fields = {name: _of_field(name, buffer, stats, n_full / n) for name in buffer.fields}
    return Estimate(
        steps,
        n * n_envs,
        fields,
        stats.projected_bytes,
        round(stats.raw_bytes * n_full / n),
        is_upper_bound=is_space(env),
    )


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
