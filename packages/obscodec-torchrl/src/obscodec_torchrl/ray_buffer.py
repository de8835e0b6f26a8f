"""RayReplayBuffer: TorchRL's, whose clients send what they write encoded."""

from __future__ import annotations

from typing import Any

from torchrl import data
from torchrl.data.replay_buffers.ray_buffer import _RayReplayBufferClient

from obscodec_torchrl.sending import encoded


class RayReplayBuffer(data.RayReplayBuffer):  # type: ignore[misc]
    """A buffer in an actor of Ray, for a :class:`CompressedStorage`. What clients write goes there encoded.

    It is TorchRL's class, with the same arguments. Only ``extend`` differs: a client compresses leaves of 1 KiB or more
    by itself, and sends its rows alone, not all of what they are a slice of. Batches come back encoded with TorchRL's
    class, too, and are decoded where they arrive.

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
    def extend(self, items: Any, *args: Any, **options: Any) -> Any:
        import ray  # TorchRL's class has said what to do without it

        return ray.get(self._actor.extend.remote(encoded(items), *args, **options))
