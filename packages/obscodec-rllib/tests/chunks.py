"""Episodes as an env runner sends them, and what two of them have in common."""

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import tree
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

SPACE = gym.spaces.Box(0, 1, (8, 8, 4), np.float32)


def observation(rng: np.random.Generator, step: int, kind: str) -> Any:
    """A picture in which a dot moves, alone or among other observations."""
    picture = np.zeros((8, 8, 4), np.float32)
    picture[step % 8, int(rng.integers(8))] = rng.integers(256) / 255
    if kind == "box":
        return picture
    return {"camera": picture, "pose": rng.random(3), "more": (np.int64(step), picture.astype(np.uint8).repeat(8, 0))}


def play(rng: np.random.Generator, kind: str, n_envs: int = 2, lookback: int = 1) -> Any:
    """Yields the chunks of some environments, some steps at a time, without an end."""
    ids = [0]

    def begin() -> SingleAgentEpisode:
        ids[0] += 1
        episode = SingleAgentEpisode(f"episode {ids[0]}", observation_space=SPACE if kind == "box" else None)
        episode.add_env_reset(observation(rng, 0, kind), {"step": 0})
        return episode

    running = [begin() for _ in range(n_envs)]
    while True:
        chunks = []
        for _ in range(int(rng.integers(1, 6))):
            for k, episode in enumerate(running):
                end = rng.random()
                episode.add_env_step(
                    observation(rng, episode.t + 1, kind),
                    int(rng.integers(4)),
                    float(rng.random()),
                    {"step": episode.t + 1},
                    terminated=end < 0.06,
                    truncated=0.06 <= end < 0.1,
                    extra_model_outputs={"logits": rng.random(2)},
                )
                if episode.is_done:
                    chunks.append(episode.to_numpy())
                    running[k] = begin()
        going_on = [episode.cut(len_lookback_buffer=lookback) for episode in running]
        chunks += [episode.to_numpy() for episode in running if episode.t > 0]
        running = [new if old.t > 0 else old for old, new in zip(running, going_on, strict=True)]
        yield chunks


def assert_same(a: Any, b: Any) -> None:
    """Two nested values have the same arrays, bit for bit, at the same places."""
    tree.assert_same_structure(a, b)
    for x, y in zip(tree.flatten(a), tree.flatten(b), strict=True):
        if isinstance(x, (np.ndarray, np.generic)):
            assert isinstance(y, type(x))
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
        else:
            assert x == y


def assert_same_episode(a: SingleAgentEpisode, b: SingleAgentEpisode, *, same_id: bool = True) -> None:
    """Two episodes have the same of everything."""
    for name in ("t", "t_started", "is_terminated", "is_truncated", "observation_space", *(["id_"] if same_id else [])):
        assert getattr(a, name) == getattr(b, name), name
    pairs = [(getattr(a, name), getattr(b, name)) for name in ("observations", "actions", "rewards", "infos")]
    assert {*a.extra_model_outputs} == {*b.extra_model_outputs}
    pairs += [(of, b.extra_model_outputs[name]) for name, of in a.extra_model_outputs.items()]
    for x, y in pairs:
        assert (x.lookback, x.finalized, len(x)) == (y.lookback, y.finalized, len(y))
        before, size = -x.lookback, len(x)
        wanted = slice(before, size)
        assert_same(x.get(wanted, neg_index_as_lookback=True), y.get(wanted, neg_index_as_lookback=True))


def contents(buffer: Any) -> list[npt.NDArray[Any]]:
    """All observations in a buffer."""
    return [leaf for of in buffer.episodes for leaf in tree.flatten(of.get_observations())]
