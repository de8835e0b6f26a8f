"""RLlib's episode replay buffers, with compressed observations."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import Any, cast

from obscodec import DTypeError, SpecError
from obscodec.arguments import as_count
from obscodec.codecs import check_encodable
from obscodec.stats import BufferStats, StoreStats
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils import force_list
from ray.rllib.utils.replay_buffers import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer

from obscodec_rllib.observations import CompressedObservations
from obscodec_rllib.rows import Row, as_rows, decoded, decoded_array
from obscodec_rllib.stores import Stores

_MADE_ANEW = "_stores", "_sequences", "episodes"  # in a copy


class _Compressed:
    """What both classes have in front of those of RLlib: it compresses the observations of their episodes.

    RLlib's code runs unchanged. While it adds, the chunks that it gets are copies with compressed observations. While
    it samples, observations are placeholders, which are decoded together afterwards.
    """

    def __init__(
        self, capacity: int = 10_000, *, codec: str = "auto", min_nbytes: int = 1024, **options: object
    ) -> None:
        super().__init__(capacity, **options)  # type: ignore[call-arg]
        self._stores = Stores(check_encodable(codec), as_count("min_nbytes", min_nbytes))
        self._sequences: dict[str, int] = {}  # of episodes that go on, by their ids

    def add(self, episodes: Any, *more: Any, **options: Any) -> None:
        """Add an episode or a list of them, or chunks of episodes, as RLlib's class does.

        All observations are compressed before anything else changes.

        Raises:
            DTypeError: an episode is of several agents.
            ShapeError: the next chunk of an episode has observations of other shapes or dtypes.
        """
        given = force_list(episodes)
        chunks = [self._encoded(of) for of in given]
        try:
            super().add(chunks, *more, **options)  # type: ignore[misc]
        finally:
            for chunk in chunks:
                if isinstance(chunk.observations, CompressedObservations):
                    chunk.observations.is_new = False
        for of in given:
            stored = self._stored(of.id_)
            if stored is not None and stored.observation_space is None:
                stored.observation_space = self._shared(of.observation_space)
        self._sequences = {id_: k for id_, k in self._sequences.items() if self._goes_on(id_)}

    def sample(self, num_items: int | None = None, **options: Any) -> Any:
        """What RLlib's class samples with the same seed; the observations of a sample are decoded together."""
        with as_rows():
            sampled = super().sample(num_items, **options)  # type: ignore[misc]
        if isinstance(sampled, dict):
            rows = sampled["obs"]
            if rows.size and isinstance(rows.flat[0], Row):
                sampled["obs"] = decoded_array(rows)
            return sampled
        observations = [episode.observations for episode in sampled]
        for of, data in zip(observations, decoded([of.data for of in observations]), strict=True):
            of.data = data
        return sampled

    def get_state(self) -> dict[str, Any]:
        """The state for a checkpoint, with compressed observations: dictionaries, lists, numbers, texts and arrays.

        Any later version reads it. RLlib's own classes refuse it.
        """
        with as_rows():
            state: dict[str, Any] = super().get_state()  # type: ignore[misc]
        return {**state, "_indices": [*state["_indices"]], "stores": self._stores.state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of :meth:`get_state`, or of RLlib's class, in the place of all that is in the buffer.

        Raises:
            CorruptStream: no buffer has such a state.
            SnapshotError: a newer version wrote it.
        """
        super().set_state({**state, "_indices": [*state["_indices"]]})  # type: ignore[misc]

    def decide(self) -> None:
        """Wait until the codecs are chosen, which happens in the background, and all observations are compressed."""
        self._stores.decide()

    def stats(self) -> BufferStats:
        """What the observations in the buffer take; actions, rewards and infos are those of RLlib, and do not count."""
        fields: dict[str, StoreStats | int] = {}
        for (name, layout), store in self._stores.stores.items():
            fields[f"{name}, {layout}" if name in fields else name] = store.stats()
        plain_bytes = id_bytes = raw_bytes = 0
        for of in self._compressed():
            plain_bytes += of.plain_nbytes
            id_bytes += sum(leaf.ids.nbytes for leaf in of.owned.values())
            raw_bytes += sum(leaf.array.nbytes for leaf in of.owned.values())
        stats = BufferStats(fields, id_bytes, 0, plain_bytes, raw_bytes + plain_bytes)
        return stats.projected(self.get_num_timesteps(), self.capacity)  # type: ignore[attr-defined]

    def _encoded(self, episode: SingleAgentEpisode) -> SingleAgentEpisode:
        """A copy of an episode for RLlib's ``add``, with compressed observations."""
        if not isinstance(episode, SingleAgentEpisode):
            raise DTypeError(
                f"the buffer has episodes of one agent, SingleAgentEpisode, got {type(episode).__name__}: episodes of "
                "several agents are for RLlib's MultiAgentEpisodeReplayBuffer, which does not compress them"
            )
        chunk = copy.copy(episode)
        if not len(episode.observations.data):
            return chunk
        in_use = {*self._sequences.values()}
        sequence = self._sequences.setdefault(episode.id_, next(k for k in count() if k not in in_use))
        chunk.observations = new = CompressedObservations.encoded(self._stores, episode.observations, sequence)
        stored = self._stored(episode.id_)
        if stored is not None and isinstance(stored.observations, CompressedObservations):
            stored.observations.check_alike(new)
        new.is_new = True
        # RLlib copies these, and never reads them in a buffer: a space of images is as large as some observations.
        chunk._observation_space = new.space = chunk._last_added_observation = None
        return chunk

    def _stored(self, id_: str) -> SingleAgentEpisode | None:
        """The episode in the buffer with an id."""
        index = self.episode_id_to_index.get(id_)  # type: ignore[attr-defined]
        return None if index is None else self.episodes[index - self._num_episodes_evicted]  # type: ignore[attr-defined]

    def _goes_on(self, id_: str) -> bool:
        stored = self._stored(id_)
        return stored is not None and not stored.is_done

    def _shared(self, space: Any) -> Any:
        """An equal space that an episode in the buffer has already, or this one."""
        spaces = {id(of): of for of in (episode.observation_space for episode in self.episodes) if of is not None}
        return next((of for of in spaces.values() if of is space or of == space), space)

    def _compressed(self) -> list[CompressedObservations]:
        every = (episode.observations for episode in self.episodes)
        return [of for of in every if isinstance(of, CompressedObservations)]

    def _set_episodes(self, state: Mapping[str, Any]) -> None:
        """Part of RLlib's ``set_state``; here, the episodes take the place of those in the buffer."""
        stores = Stores.restored(self._stores.codec, self._stores.min_nbytes, state.get("stores", ()))
        restored = deque(_restored(of, stores) for of in state["episodes"])
        self._stores, self._sequences, self.episodes = stores, {}, restored
        for episode in restored:
            episode.observation_space = self._shared(episode.observation_space)

    def __reduce__(self) -> tuple[Any, ...]:
        of_dict, of_slots = cast("tuple[dict[str, Any], dict[str, Any]]", object.__getstate__(self))
        values = {name: value for name, value in {**of_dict, **of_slots}.items() if name not in _MADE_ANEW}
        options = {"codec": self._stores.codec, "min_nbytes": self._stores.min_nbytes}
        return _unpickled, (type(self), values, options, self.get_state())


class CompressedEpisodeReplayBuffer(_Compressed, EpisodeReplayBuffer):  # type: ignore[misc]
    """RLlib's ``EpisodeReplayBuffer``, with compressed observations.

    It draws, orders and evicts as RLlib's class does, and returns the same samples with the same seed. Observations
    come back as arrays of their own: a learner that writes into a sample changes nothing in the buffer.

    Args:
        capacity: how many timesteps the buffer has room for.
        codec: of all observations, see ``obscodec.Field``; ``"auto"`` chooses one in the background, as
            ``obscodec.AutoStore`` does.
        min_nbytes: arrays of an observation that have fewer bytes stay as they are.
        options: those of RLlib's class.

    Raises:
        SpecError: the codec is malformed.
        ShapeError: ``min_nbytes`` is less than 1.

    Example:
        >>> import numpy as np
        >>> from ray.rllib.env.single_agent_episode import SingleAgentEpisode
        >>> frames = [np.full((84, 84, 1), t / 255, np.float32) for t in range(101)]
        >>> episode = SingleAgentEpisode(
        ...     observations=frames, actions=[0] * 100, rewards=[0.0] * 100, truncated=True, len_lookback_buffer=0
        ... )
        >>> buffer = CompressedEpisodeReplayBuffer(10_000)
        >>> buffer.add(episode)
        >>> buffer.sample(8, n_step=3, sample_episodes=True)[0].get_observations(-1).shape
        (84, 84, 1)
    """


class CompressedPrioritizedEpisodeReplayBuffer(_Compressed, PrioritizedEpisodeReplayBuffer):  # type: ignore[misc]
    """RLlib's ``PrioritizedEpisodeReplayBuffer``, the default of DQN, with compressed observations.

    See :class:`CompressedEpisodeReplayBuffer`.

    RLlib drops its own ``alpha`` and ``beta`` where the type of a buffer changes: the example keeps them.

    Example:
        >>> from ray.rllib.algorithms.dqn import DQNConfig
        >>> config = DQNConfig()
        >>> kind = "obscodec_rllib.CompressedPrioritizedEpisodeReplayBuffer"
        >>> config = config.training(replay_buffer_config={**config.replay_buffer_config, "type": kind})
        >>> config.replay_buffer_config["alpha"], config.replay_buffer_config["beta"]
        (0.6, 0.4)
    """

    def sample(
        self, num_items: int | None = None, *, beta: float | None = 0.0, to_numpy: bool = False, **options: Any
    ) -> Any:
        """See :meth:`CompressedEpisodeReplayBuffer.sample`.

        Raises:
            SpecError: ``beta`` is None, as DQN has it where ``replay_buffer_config`` lacks it.
        """
        if beta is None:
            raise SpecError(
                'beta must be a number, got None: give "alpha" and "beta" in the configuration, such as 0.6 and 0.4, '
                "the defaults of DQN, which RLlib drops where the type of a buffer changes"
            )
        sampled = super().sample(num_items, beta=beta, **options)
        return [episode.to_numpy() for episode in sampled] if to_numpy else sampled


def _restored(saved: Mapping[str, Any], stores: Stores) -> SingleAgentEpisode:
    """An episode of a state of the buffer, or of one of RLlib's."""
    of = saved["observations"]
    if "ids" not in of:
        episode = SingleAgentEpisode.from_state({**saved})
        if len(episode.observations.data):
            episode.observations = CompressedObservations.encoded(stores, episode.observations, 0)
        return episode
    made = CompressedObservations.restored(stores, of, None)
    plain = {**of, "data": made.placeholder()}
    episode = SingleAgentEpisode.from_state({**saved, "observations": plain})
    made.space = episode.observations.space
    episode.observations = made
    return episode


def _unpickled(
    kind: type[_Compressed], values: Mapping[str, Any], options: Mapping[str, Any], state: Mapping[str, Any]
) -> _Compressed:
    made = kind.__new__(kind)
    for name, value in values.items():
        setattr(made, name, value)
    made._stores, made._sequences = Stores(**options), {}
    made.set_state(state)
    return made
