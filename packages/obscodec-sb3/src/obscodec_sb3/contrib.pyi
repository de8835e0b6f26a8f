"""The types of the compressed buffers of sb3-contrib, which are made when they are asked for."""

from typing import Any, Unpack

import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer

from obscodec_sb3.rollout import CompressedRolloutBuffer
from obscodec_sb3.signatures import CompressedKeywords, PrefetchKeywords

class CompressedMaskableRolloutBuffer(CompressedRolloutBuffer, MaskableRolloutBuffer):  # type: ignore[misc]
    """``MaskableRolloutBuffer`` with compressed observations."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        **options: Unpack[PrefetchKeywords],
    ) -> None: ...

class CompressedMaskableDictRolloutBuffer(CompressedRolloutBuffer, MaskableDictRolloutBuffer):  # type: ignore[misc]
    """``MaskableDictRolloutBuffer`` with compressed observations."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        **options: Unpack[PrefetchKeywords],
    ) -> None: ...

class CompressedRecurrentRolloutBuffer(CompressedRolloutBuffer, RecurrentRolloutBuffer):  # type: ignore[misc]
    """``RecurrentRolloutBuffer`` with compressed observations."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        hidden_state_shape: tuple[int, int, int, int],
        device: th.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        **options: Unpack[CompressedKeywords],
    ) -> None: ...

class CompressedRecurrentDictRolloutBuffer(CompressedRolloutBuffer, RecurrentDictRolloutBuffer):  # type: ignore[misc]
    """``RecurrentDictRolloutBuffer`` with compressed observations."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        hidden_state_shape: tuple[int, int, int, int],
        device: th.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        **options: Unpack[CompressedKeywords],
    ) -> None: ...
