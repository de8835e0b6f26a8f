"""RayReplayBuffer: TorchRL's, whose clients send what they write encoded, and get batches in less time."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import numpy as np
from torchrl import data
from torchrl.data.replay_buffers.ray_buffer import _RayReplayBufferClient

from obscodec_torchrl.sending import encoded, is_sent_encoded

# Results of less than 100 KiB come with the answer of an actor. Larger ones go through two object stores, which takes
# some 6 ms more; so a batch comes as several results.
_N_PARTS = 12
_MOST_OF_PART = 90_000


class RayReplayBuffer(data.RayReplayBuffer):  # type: ignore[misc]
    """A buffer in an actor of Ray, for a :class:`CompressedStorage`. What clients write goes there encoded.

    It is TorchRL's class, with the same arguments. In ``extend``, a client compresses leaves of 1 KiB or more by
    itself, and sends its rows alone, not all of what they are a slice of. Batches come back encoded with TorchRL's
    class, too, and are decoded where they arrive; ``sample`` of this one has them come with the answer of the actor,
    in parts, past the object stores of Ray, as long as they have less than 1 MB.

    Raises:
        RuntimeError: Ray is not installed: ``pip install obscodec-torchrl[ray]``.

    Example:
        >>> from functools import partial
        >>> from obscodec_torchrl import CompressedStorage
        >>> options = {"storage": partial(CompressedStorage, 100_000), "batch_size": 256}
        >>> buffer = RayReplayBuffer(**options, remote_config={"num_cpus": 0})  # doctest: +SKIP
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.transport_kind == "ray":
            self._client = self.client()

    def client(self) -> Any:
        """A client that can be pickled, and can't end the actor."""
        return _Client(self._rb, has_gpu=self.has_gpu) if self.transport_kind == "ray" else super().client()


class _Client(_RayReplayBufferClient):  # type: ignore[misc]
    def sample(self, *args: Any, **options: Any) -> Any:
        import ray

        parts = self._actor.__ray_call__.options(num_returns=_N_PARTS).remote(sampled_in_parts, args, options)
        try:
            return joined(ray.get(parts))
        except Exception:
            for part in parts:  # else Ray tells of each error that nobody has asked for
                with suppress(Exception):
                    ray.get(part)
            raise

    def extend(self, items: Any, *args: Any, **options: Any) -> Any:
        import ray  # TorchRL's class has said what to do without it

        return ray.get(self._actor.extend.remote(encoded(items), *args, **options))


def sampled_in_parts(buffer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    """A batch as so many results: parts of its pickle, or all of it, or itself if it is not encoded."""
    from ray import cloudpickle

    batch, nothing = buffer.sample(*args, **options), [None] * (_N_PARTS - 1)
    if not is_sent_encoded(batch):
        return [(batch,), *nothing]
    pickled = cloudpickle.dumps(batch)  # type: ignore[no-untyped-call]
    n = -(-len(pickled) // _N_PARTS)
    if n > _MOST_OF_PART:
        return [np.frombuffer(pickled, np.uint8), *nothing]  # which Ray sends without another copy
    return [pickled[k * n : (k + 1) * n] for k in range(_N_PARTS)]


def joined(parts: list[Any]) -> Any:
    """The batch of which these are the parts."""
    first, *_ = parts
    if isinstance(first, tuple):
        return first[0]
    return pickle.loads(first.data if isinstance(first, np.ndarray) else b"".join(parts))
