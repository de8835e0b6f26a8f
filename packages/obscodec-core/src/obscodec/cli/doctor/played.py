"""Played: the environments that a source is, as a program makes them and plays in them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any, Literal, Self

from obscodec.buffers import is_vec_env

ONE_MILLION = "1_000_000"
Kind = Literal["environment", "vec_env", "vector", "other"]
_ENDS = {"reward": "reward", "terminated": "terminated", "truncated": "truncated"}


@dataclass(frozen=True)
class Played:
    """The environments of a source.

    Attributes:
        imports: the lines that import what ``make_env`` needs.
        setup: the lines that define ``make_env``, a function that makes an environment, or a vector.
        kind: what it makes: one ``"environment"``; a ``"vec_env"`` of Stable-Baselines3; a ``"vector"`` of Gymnasium
            that resets itself in a step of its own; or ``"other"`` vectors.
    """

    imports: tuple[str, ...]
    setup: str
    kind: Kind
    n_envs: int
    observation_space: Any
    action_space: Any

    @classmethod
    def of(cls, env: Any, imports: Iterable[str], registers: Iterable[str], body: Sequence[str], n_envs: int) -> Self:
        """The environments that ``body``, the lines of ``make_env``, makes, after the lines ``registers``."""
        define = "\n".join(["def make_env():", *(f"    {line}" for line in body), "    return env"])
        kind: Kind = "environment"
        if is_vec_env(env):
            kind = "vec_env"
        elif hasattr(env, "num_envs"):
            mode = env.metadata.get("autoreset_mode")
            kind = "vector" if getattr(mode, "name", "NEXT_STEP") == "NEXT_STEP" else "other"
        spaces = [getattr(env, f"single_{of}", getattr(env, of)) for of in ("observation_space", "action_space")]
        return cls(tuple(dict.fromkeys(imports)), "\n\n".join([*registers, define]), kind, n_envs, *spaces)

    @property
    def resets_in_a_step(self) -> bool:
        """Whether a step after the end of an episode is none, but resets the environment."""
        return self.kind == "vector" or (self.kind == "environment" and self.n_envs > 1)

    def loop(self, names: Iterable[str]) -> str | None:
        """A program that plays in them and appends the fields ``names`` to ``buffer``; None for other vectors."""
        if self.kind in ("vec_env", "other"):
            return None
        values = {**dict(_paths(self.action_space, "action", "action")), **_ENDS, "valid": "~ended"}
        values |= dict(_paths(self.observation_space, "observation", "observation"))
        values |= dict(_paths(self.observation_space, "next_observation", "following"))
        step = "\n".join(f"        {name!r}: {values[name]}," for name in names)
        append = f"    step = {{\n{step}\n    }}\n    buffer.append(**step)"
        n = ONE_MILLION if self.n_envs == 1 else f"{ONE_MILLION} // {self.n_envs}"
        begin, play, end = self._lines()
        lines = "\n".join([*begin, f"for _ in range({n}):", *play, append, *end, "batch = buffer.sample(32)"])
        return self.guarded(lines)

    def guarded(self, lines: str) -> str:
        """Lines that make environments. If these are processes, they import the program, and must not run the lines."""
        if self.kind not in ("vec_env", "vector"):
            return lines
        return f"if __name__ == '__main__':\n{indent(lines, '    ')}"

    def _lines(self) -> tuple[list[str], list[str], list[str]]:
        """The lines before the loop, and those in it before and after a step is stored."""
        begin = ["env = make_env()", "observation, _ = env.reset()"]
        end = ["    observation = env.reset()[0] if terminated or truncated else following"]
        play = [
            "    action = env.action_space.sample()",
            "    following, reward, terminated, truncated, _ = env.step(action)",
        ]
        if self.resets_in_a_step:
            if self.kind == "environment":
                begin[0] = f"env = gym.vector.SyncVectorEnv([make_env] * {self.n_envs})"
            begin.append(f"ended = np.zeros({self.n_envs}, bool)  # the next step resets these, and is not valid")
            end = ["    observation, ended = following, terminated | truncated"]
        return begin, play, end


def _paths(space: Any, name: str, expression: str) -> Iterator[tuple[str, str]]:
    """The name of each leaf of a space, as ``leaves`` has it, and the expression for it in a program."""
    parts = getattr(space, "spaces", None)
    if parts is None:
        yield name, expression
        return
    for key, part in parts.items() if hasattr(parts, "items") else enumerate(parts):
        yield from _paths(part, f"{name}.{key}", f"{expression}[{key!r}]")
