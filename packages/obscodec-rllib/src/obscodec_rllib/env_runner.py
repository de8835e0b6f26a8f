"""CompressedEnvRunner: RLlib's, whose episodes leave its process with encoded observations."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tree
from obscodec import CorruptStream, Layout, TensorArray
from obscodec.arrays import DeferredRead
from obscodec.buffers import MIN_COMPRESSED_NBYTES
from obscodec.runtime import says_memory_error
from obscodec.stores import StoragePlan, Store, StoreOptions, find_plan
from obscodec.wire import SENDING_CODEC, EncodedBatch
from ray import cloudpickle
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

_OPTIONS = StoreOptions(codec=SENDING_CODEC)
_N_LOOKED_AT = 32  # observations, for how they are made of frames
_N_SPACES = 16  # are kept, packed and unpacked

Leaf = tuple[object, Layout]  # where an array is in an observation, and what it is


class CompressedEnvRunner(SingleAgentEnvRunner):
    """RLlib's ``SingleAgentEnvRunner``; the episodes that it samples go to another process with encoded observations.

    They arrive as plain episodes, so that each algorithm, connector and buffer of RLlib can take them. All is the same,
    bit for bit. The space of the observations, which for images is as large as some of them, is sent in some hundred
    bytes.

    Arrays of 1 KiB or more are encoded. Observations in lists, with ``episodes_to_numpy=False``, are sent as RLlib
    sends them.

    Example:
        >>> from ray.rllib.algorithms.dqn import DQNConfig
        >>> config = DQNConfig().env_runners(env_runner_cls=CompressedEnvRunner, num_env_runners=2)
        >>> config.env_runner_cls.__name__
        'CompressedEnvRunner'
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._found = _Found()

    def sample(self, **options: Any) -> list[SingleAgentEpisode]:
        """What RLlib's class samples: a list of episodes, which are encoded when it is pickled."""
        return _SentEpisodes(super().sample(**options), self._found)


class _Found:
    """What an env runner has found about its observations; it is found once, since that takes longer than encoding."""

    def __init__(self) -> None:
        self._spaces: dict[int, tuple[Any, bytes]] = {}  # with each space, so that no other one gets its address
        self._plans: dict[Leaf, tuple[StoragePlan, int]] = {}  # and how many observations it was found in

    def packed(self, space: Any) -> bytes:
        """A space of observations as bytes; of a box, most are alike."""
        known = self._spaces.get(id(space))
        if known is None:
            if len(self._spaces) >= _N_SPACES:
                self._spaces.clear()  # of an environment that makes a new one for each episode
            known = self._spaces[id(space)] = space, zlib.compress(cloudpickle.dumps(space))  # type: ignore[no-untyped-call]
        return known[1]

    def plan(self, leaf: Leaf, array: npt.NDArray[Any]) -> StoragePlan:
        """How to store a leaf of which these are observations ``[n, *shape]`` of an episode."""
        plan, n = self._plans.get(leaf, (None, 0))
        if plan is None or (plan.frame_stack is None and n < _N_LOOKED_AT):
            some = array[:_N_LOOKED_AT]
            plan = find_plan(some, np.zeros(len(some), np.int64), _OPTIONS)
            self._plans[leaf] = plan, n + len(some)
        return plan


class _Encoded(NamedTuple):
    """What an episode lacks until its observations are decoded."""

    number: int  # of the episode
    is_last_added: bool  # whether its last observation is the one that was added last
    space: bytes | None


class _SentEpisodes(list[SingleAgentEpisode]):
    """Episodes whose pickle has their observations encoded, and becomes a list of plain episodes.

    Args:
        episodes: of one agent.
        found: about their observations; gets what is found here.
    """

    def __init__(self, episodes: Iterable[SingleAgentEpisode], found: _Found) -> None:
        super().__init__(episodes)
        self._found = found

    @says_memory_error
    def __reduce__(self) -> tuple[Any, ...]:
        observations = _Observations(self._found)
        episodes, encoded = [*self], list[_Encoded]()
        for k, episode in enumerate(self):
            of = episode.observations
            if not of.finalized or not len(of.data):
                continue
            bare = episodes[k] = copy.copy(episode)
            bare.observations = copy.copy(of)
            bare.observations.data = tree.map_structure_with_path(
                lambda path, leaf, k=k: observations.added(path, leaf, k), of.data
            )
            is_last_added = _is_last(episode._last_added_observation, of.data)
            if is_last_added:
                bare._last_added_observation = None
            space = episode.observation_space
            if is_shared := space is not None and of.space is space:
                bare.observation_space = None
            encoded.append(_Encoded(k, is_last_added, self._found.packed(space) if is_shared else None))
        return _received, (episodes, encoded, observations.message())


class _Observations:
    """Arrays of observations, in a store for each place in an observation and layout."""

    def __init__(self, found: _Found) -> None:
        self._found = found
        self._stores: dict[Leaf, Store] = {}
        self._arrays: list[TensorArray] = []

    def added(self, path: tuple[object, ...], array: npt.NDArray[Any], sequence: int) -> int | npt.NDArray[Any]:
        """The number of an array ``[n, *shape]`` of an episode among those of the message, or itself if it is small."""
        dtype = array.dtype
        if dtype.kind not in "biufc" or dtype != dtype.newbyteorder("<"):
            return array
        layout = Layout(array.shape[1:], dtype)
        if layout.nbytes < MIN_COMPRESSED_NBYTES:
            return array
        store = self._stores.get((path, layout))
        if store is None:
            store = self._found.plan((path, layout), array).new_store(layout, _OPTIONS)
            self._stores[path, layout] = store
        self._arrays.append(TensorArray(store.append(array, sequence), store))
        return len(self._arrays) - 1

    def message(self) -> bytes:
        """All arrays, encoded."""
        return EncodedBatch.of(DeferredRead(lambda: [array[...] for array in self._arrays])).to_bytes()


def _is_last(observation: Any, arrays: Any) -> bool:
    """Whether an observation is the last one of arrays ``[n, *shape]``, bit for bit."""
    try:
        tree.assert_same_structure(observation, arrays)
    except (TypeError, ValueError):
        return False
    pairs = zip(tree.flatten(observation), tree.flatten(arrays), strict=True)
    return all(
        isinstance(one, np.ndarray)
        and (one.shape, one.dtype) == (array.shape[1:], array.dtype)
        and one.tobytes() == array[-1].tobytes()
        for one, array in pairs
    )


@says_memory_error
def _received(
    episodes: list[SingleAgentEpisode], encoded: Sequence[_Encoded], message: bytes
) -> list[SingleAgentEpisode]:
    """The episodes, with the observations of a message.

    Raises:
        CorruptStream: the message is truncated or altered, or not of these episodes.
    """
    batch = EncodedBatch.from_bytes(message, max_bytes=None)  # pickles come from friends
    arrays: list[npt.NDArray[Any]] = batch.read()

    def array(leaf: int | npt.NDArray[Any]) -> npt.NDArray[Any]:
        if isinstance(leaf, np.ndarray):
            return leaf
        if not 0 <= leaf < len(arrays):
            raise CorruptStream(f"an episode has array {leaf} of {len(arrays)} in its message")
        return arrays[leaf]

    for number, is_last_added, space in encoded:
        episode = episodes[number]
        data = episode.observations.data = tree.map_structure(array, episode.observations.data)
        if is_last_added:
            episode._last_added_observation = tree.map_structure(lambda leaf: leaf[-1].copy(), data)
        if space is not None:
            episode.observation_space = _space(space)
        episode.validate()
    return episodes


@lru_cache(maxsize=_N_SPACES)
def _space(message: bytes) -> Any:
    """A space; all episodes that have it share it."""
    return cloudpickle.loads(zlib.decompress(message))
