"""The other compressed buffers of Stable-Baselines3, by name."""

from __future__ import annotations

from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, NStepReplayBuffer
from stable_baselines3.her import HerReplayBuffer

from obscodec_sb3.replay import CompressedReplayBuffer
from obscodec_sb3.rollout import CompressedRolloutBuffer


class CompressedDictReplayBuffer(CompressedReplayBuffer, DictReplayBuffer):
    """``DictReplayBuffer`` with compressed observations; see :class:`CompressedReplayBuffer`.

    ``codec``, ``frame_stack`` and ``budget`` are for all keys, or a dictionary with those of some; the others have the
    defaults. A key that is not in the space raises ``FieldError``.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> space = spaces.Dict(image=spaces.Box(0, 255, (4, 84, 84), np.uint8), vector=spaces.Box(-1, 1, (3,)))
        >>> codecs = {"image": "delta-rle", "vector": None}
        >>> buffer = CompressedDictReplayBuffer(1_000_000, space, spaces.Discrete(2), codec=codecs)
        >>> buffer.observations["image"].shape
        (1000000, 1, 4, 84, 84)
    """


class CompressedNStepReplayBuffer(CompressedReplayBuffer, NStepReplayBuffer):
    """``NStepReplayBuffer`` with compressed observations, without ``prefetch``; see :class:`CompressedReplayBuffer`.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        >>> buffer = CompressedNStepReplayBuffer(1_000_000, space, spaces.Discrete(2), n_steps=5, gamma=0.9)
        >>> buffer.n_steps
        5
    """


class CompressedHerReplayBuffer(CompressedReplayBuffer, HerReplayBuffer):
    """``HerReplayBuffer`` with compressed observations, without ``prefetch``; see :class:`CompressedDictReplayBuffer`.

    Example:
        >>> from stable_baselines3 import SAC
        >>> env = "a goal environment"
        >>> model = SAC("MultiInputPolicy", env, replay_buffer_class=CompressedHerReplayBuffer)  # doctest: +SKIP
    """


class CompressedDictRolloutBuffer(CompressedRolloutBuffer, DictRolloutBuffer):
    """``DictRolloutBuffer`` with compressed observations; see :class:`CompressedRolloutBuffer`.

    ``codec``, ``frame_stack`` and ``budget`` are for all keys, or a dictionary with those of some, as in
    :class:`CompressedDictReplayBuffer`.

    Example:
        >>> from stable_baselines3 import PPO
        >>> env = "an environment with dictionaries"
        >>> model = PPO("MultiInputPolicy", env, rollout_buffer_class=CompressedDictRolloutBuffer)  # doctest: +SKIP
    """
