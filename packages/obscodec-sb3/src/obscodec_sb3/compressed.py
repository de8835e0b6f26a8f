"""The compressed form of any buffer of Stable-Baselines3."""

from typing import Any

import obscodec
from obscodec.state import versioned
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, ReplayBuffer, RolloutBuffer

from obscodec_sb3.base import COMPRESSED, CompressedBuffer
from obscodec_sb3.replay import CompressedReplayBuffer, DictStoredDirectly, StoredDirectly
from obscodec_sb3.rollout import CompressedRolloutBuffer


def compressed(buffer_class: type[BaseBuffer]) -> type[CompressedBuffer]:
    """A subclass of a class of buffers that keeps observations compressed, without loss.

    It takes the arguments of ``buffer_class`` and the options of :class:`CompressedReplayBuffer`; its ``add``,
    ``sample`` and ``get`` run the code of ``buffer_class``.

    Args:
        buffer_class: ``ReplayBuffer``, ``RolloutBuffer`` or a subclass, such as your own. All arrays that its
            constructor makes with ``obs_shape`` at the end are compressed. While the constructor and ``reset`` run,
            ``obs_shape`` has a 0 in front. After some steps, other large arrays ``[buffer_size, n_envs, ...]`` that
            repeat are compressed, and of two distinct numbers, each takes a bit: assign to them by position.

    Returns:
        The subclass, the same one at each call.

    Raises:
        DTypeError: it is no such class.

    Example:
        >>> from stable_baselines3.common.buffers import ReplayBuffer
        >>> compressed(ReplayBuffer).__name__
        'CompressedReplayBuffer'
    """
    known = (CompressedBuffer, ReplayBuffer, RolloutBuffer)
    if not (isinstance(buffer_class, type) and issubclass(buffer_class, known)):
        what = "compressed() takes a subclass of ReplayBuffer or RolloutBuffer"
        raise obscodec.DTypeError(f"{what}, got {buffer_class!r}")
    if issubclass(buffer_class, CompressedBuffer):
        return buffer_class
    if buffer_class not in COMPRESSED:
        ours = CompressedReplayBuffer if issubclass(buffer_class, ReplayBuffer) else CompressedRolloutBuffer
        more: tuple[type, ...] = ()
        if ours is CompressedReplayBuffer:
            more = (DictStoredDirectly if issubclass(buffer_class, DictReplayBuffer) else StoredDirectly,)

        def reduce(self: CompressedBuffer, protocol: Any) -> Any:
            if type(self) is made:  # pickle can't find this class by its name
                return versioned((_empty, (buffer_class,), self.__getstate__()), "obscodec_sb3")
            return ours.__reduce_ex__(self, protocol)

        about = f"``{buffer_class.__name__}`` with compressed observations."
        members = {"__doc__": about, "__module__": __package__, "__reduce_ex__": reduce}
        made = type(f"Compressed{buffer_class.__name__}", (ours, buffer_class, *more), members)
    return COMPRESSED[buffer_class]


def _empty(buffer_class: type[BaseBuffer]) -> CompressedBuffer:
    """A compressed buffer that waits for its state."""
    return object.__new__(compressed(buffer_class))
